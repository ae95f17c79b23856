//! Runs commands at their times.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Parser;
use kube::{Client, Config, CustomResourceExt as _};
use mizzen_sdk::manager::Manager;
use mizzen_sdk::{election, kubeconfig};

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
    /// Serve /metrics, /healthz and /readyz at this address; port 0 serves none.
    #[arg(long, default_value = "127.0.0.1:0")]
    endpoints: SocketAddr,
    /// Elect a leader with a Lease in the namespace of the pod, `$POD_NAMESPACE`.
    #[arg(long)]
    leader_elect: bool,
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
    let mut manager = Manager::new(Client::try_from(config)?).endpoints(arguments.endpoints);
    if arguments.leader_elect {
        let variable = |name: &str| std::env::var(name);
        let namespace = variable("POD_NAMESPACE").unwrap_or_else(|_| "default".into());
        let identity = variable("POD_NAME").unwrap_or_else(|_| "at".into());
        manager = manager.leader_election(namespace, "at", election::Options::new(identity));
    }
    let context = manager.cluster().context("at");
    manager.add_controller(at::controller(&context));
    println!("at follows Ats");
    Ok(manager.run_until_signal().await?)
}
