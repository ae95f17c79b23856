//! Keeps a Deployment for each Foo.

use std::path::PathBuf;

use clap::Parser;
use kube::{Client, Config, CustomResourceExt as _};
use mizzen_sdk::kubeconfig;
use mizzen_sdk::manager::Manager;

/// Keep a Deployment for each Foo.
///
/// Example: foo --kubeconfig kubeconfig
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
        println!("{}", serde_json::to_string_pretty(&foo::Foo::crd())?);
        return Ok(());
    }
    let config = match &arguments.kubeconfig {
        Some(file) => kubeconfig::load(file, None, "foo").await?,
        None => Config::infer().await?,
    };
    let mut manager = Manager::new(Client::try_from(config)?);
    let context = manager.cluster().context("foo");
    manager.add_controller(foo::controller(&context));
    println!("foo follows Foos");
    Ok(manager.run_until_signal().await?)
}
