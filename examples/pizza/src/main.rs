//! Serves pizzas behind a Kubernetes API server, or converts them for one.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Parser, Subcommand};
use mizzen_apiserver::clock::{SystemRandom, WallClock};
use mizzen_apiserver::delegate::{Serving, Upstream};
use mizzen_registry::{Registry, Store};
use mizzen_sdk::signal;
use tokio::net::TcpListener;

/// A restaurant behind a Kubernetes API server.
///
/// Example: pizza serve --kubeconfig kubeconfig --port 8443 --certificate pizza.crt
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// The port to listen on; 0 picks a free one.
    #[arg(long, default_value_t = 8443, global = true)]
    port: u16,
    /// Where to write the certificate, for the `caBundle` of an APIService or a webhook.
    #[arg(long, default_value = "pizza.crt", global = true)]
    certificate: PathBuf,
}

#[derive(Subcommand)]
enum Command {
    /// Serves pizzas, toppings and the menu.
    Serve {
        /// How to reach the main API server.
        #[arg(long)]
        kubeconfig: PathBuf,
    },
    /// Converts pizzas for a CustomResourceDefinition.
    Convert,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let Arguments {
        command,
        port,
        certificate,
    } = Arguments::parse();
    let identity = pizza::certificate()?;
    fs::write(&certificate, &identity.certificate)?;
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    println!("pizza listens on {}", listener.local_addr()?);

    let stop = signal::shutdown()?;
    let Command::Serve { kubeconfig } = command else {
        return pizza::webhook::serve(listener, identity, stop).await;
    };
    let store = Store::in_memory(Default::default());
    let registry = Registry::new(store, Arc::new(WallClock), Arc::new(SystemRandom));
    let upstream = Upstream::load(&kubeconfig, &registry)?;
    let server = pizza::server(registry).upstream(&upstream);
    Ok(server.run(Serving { listener, identity }, stop).await?)
}
