//! Runs commands at their times.

use std::path::PathBuf;

use clap::Parser;
use kube::{Client, Config, CustomResourceExt as _};
use mizzen_sdk::kubeconfig;
use mizzen_sdk::manager::Manager;

/// Run commands at their times.
///
/// Example: at --kubeconfig kubeconfig
#[derive(Parser)]
struct Arguments {
    /// How to reach the API server; by default `$KUBECONFIG` or `~/.kube/config`, and in a cluster the
    /// service account of the pod.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Print the CustomResourceDefinition and exit.
    #[arg(long)]
    crd: bool,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = Arguments::parse();
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    if arguments.crd {
        println!("{}", serde_json::to_string_pretty(&at::At::crd())?);
        return Ok(());
    }
    let config = match &arguments.kubeconfig {
        Some(file) => kubeconfig::load(file, None, "at").await?,
        None => Config::infer().await?,
    };
    let mut manager = Manager::new(Client::try_from(config)?);
    let context = manager.cluster().context("at");
    manager.add_controller(at::controller(&context));
    println!("at follows Ats");
    Ok(manager.run_until_signal().await?)
}
