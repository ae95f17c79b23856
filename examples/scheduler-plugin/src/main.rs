//! Schedules pods of `schedulerName: tier-scheduler` in any Kubernetes cluster.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Parser;
use mizzen_scheduler::framework::BoxError;
use mizzen_scheduler::{Options, start};
use mizzen_sdk::kubeconfig;

/// A scheduler with the plugin Tiers.
///
/// Example: tier-scheduler --kubeconfig kubeconfig --config manifests/configuration.yaml
#[derive(Parser)]
struct Arguments {
    /// How to reach the API server.
    #[arg(long)]
    kubeconfig: PathBuf,
    /// A KubeSchedulerConfiguration.
    #[arg(long)]
    config: PathBuf,
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let arguments = Arguments::parse();
    let config = kubeconfig::load(&arguments.kubeconfig, None, "tier-scheduler").await?;
    let mut options = Options::new(kube::Client::try_from(config)?);
    options.configuration = Arc::new(scheduler_plugin::configuration(&fs::read(
        &arguments.config,
    )?)?);
    let scheduler = start(options)?;
    scheduler.synced().await;
    println!("tier-scheduler is ready");
    tokio::signal::ctrl_c().await?;
    Ok(())
}
