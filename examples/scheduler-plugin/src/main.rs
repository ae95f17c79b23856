//! Schedules pods of `schedulerName: tier-scheduler` in any Kubernetes cluster.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Parser;
use mizzen_scheduler::framework::BoxError;
use mizzen_scheduler::{Options, start};
use mizzen_sdk::{kubeconfig, signal};

/// A scheduler with the plugin Tiers.
///
/// Example: tier-scheduler --kubeconfig kubeconfig --config manifests/configuration.yaml
#[derive(Parser)]
struct Arguments {
    /// How to reach the API server; by default `$KUBECONFIG` or `~/.kube/config`, and in a cluster the
    /// service account of the pod.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// A KubeSchedulerConfiguration.
    #[arg(long)]
    config: PathBuf,
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let arguments = Arguments::parse();
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    let config = match &arguments.kubeconfig {
        Some(file) => kubeconfig::load(file, None, "tier-scheduler").await?,
        None => kube::Config::infer().await?,
    };
    let mut options = Options::new(kube::Client::try_from(config)?);
    options.configuration = Arc::new(scheduler_plugin::configuration(&fs::read(
        &arguments.config,
    )?)?);
    let stop = signal::shutdown()?;
    let scheduler = start(options)?;
    scheduler.synced().await;
    println!("tier-scheduler is ready");
    stop.await;
    Ok(())
}
