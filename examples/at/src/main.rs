//! Runs commands at their times.

use std::path::PathBuf;

use clap::Parser;
use kube::{Client, Config, CustomResourceExt as _};
use mizzen_sdk::controller::Context;
use mizzen_sdk::kubeconfig;

/// Runs commands at their times.
///
/// Example: at --kubeconfig kubeconfig
#[derive(Parser)]
struct Arguments {
    /// How to reach the API server; in a cluster the service account of the pod.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Print the CustomResourceDefinition and exit.
    #[arg(long)]
    crd: bool,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = Arguments::parse();
    if arguments.crd {
        println!("{}", serde_json::to_string_pretty(&at::At::crd())?);
        return Ok(());
    }
    let config = match &arguments.kubeconfig {
        Some(file) => kubeconfig::load(file, None, "at").await?,
        None => Config::incluster()?,
    };
    let context = Context::new(Client::try_from(config)?).named("at");
    let stop = async { drop(tokio::signal::ctrl_c().await) };
    Ok(at::controller(&context).run(stop).await?)
}
