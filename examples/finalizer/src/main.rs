//! Keeps a bucket for each Bucket.

use std::path::PathBuf;

use clap::Parser;
use kube::{Client, Config, CustomResourceExt as _};
use mizzen_sdk::controller::Context;
use mizzen_sdk::kubeconfig;

/// Keeps a bucket for each Bucket.
///
/// Example: finalizer --kubeconfig kubeconfig
#[derive(Parser)]
struct Arguments {
    /// How to reach the API server; by default `$KUBECONFIG` or `~/.kube/config`, and in a cluster the
    /// service account of the pod.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Print the CustomResourceDefinition and exit.
    #[arg(long)]
    crd: bool,
    /// The directory that stands for the object storage.
    #[arg(long, default_value = "buckets")]
    storage: PathBuf,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = Arguments::parse();
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    if arguments.crd {
        println!(
            "{}",
            serde_json::to_string_pretty(&finalizer::Bucket::crd())?
        );
        return Ok(());
    }
    let config = match &arguments.kubeconfig {
        Some(file) => kubeconfig::load(file, None, "finalizer").await?,
        None => Config::infer().await?,
    };
    let context = Context::new(Client::try_from(config)?).named("finalizer");
    println!("finalizer follows Buckets, until Ctrl-C");
    let stop = async { drop(tokio::signal::ctrl_c().await) };
    Ok(
        finalizer::controller(&context, finalizer::Directory::new(arguments.storage))
            .run(stop)
            .await?,
    )
}
