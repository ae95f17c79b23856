//! Serves the webhooks of backups.

use backup_webhook::{Error, register};
use clap::Parser;
use kube::Client;
use mizzen_sdk::webhook::Endpoint;
use tokio::net::TcpListener;

/// Serve the webhooks of backups.
///
/// Example: backup-webhook --url https://127.0.0.1:9443
#[derive(Parser)]
struct Arguments {
    /// The port to listen on.
    #[arg(long, default_value_t = 9443)]
    port: u16,
    /// The namespace of the Service and of the Secret with the certificates.
    #[arg(long, default_value = "default")]
    namespace: String,
    /// The Service in front of the webhooks.
    #[arg(long, default_value = "backup-webhook")]
    service: String,
    /// The URL at which the API server reaches the webhooks, outside of a cluster.
    #[arg(long)]
    url: Option<String>,
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let Arguments {
        port,
        namespace,
        service,
        url,
    } = Arguments::parse();
    let (endpoint, host) = match url {
        Some(url) => (Endpoint::Url(url), "127.0.0.1"),
        None => (Endpoint::service(&namespace, service), "0.0.0.0"),
    };
    let listener = TcpListener::bind((host, port)).await?;
    println!("listening on {}", listener.local_addr()?);
    let webhooks = register(Client::try_default().await?, &namespace, endpoint).await?;
    let stop = async { drop(tokio::signal::ctrl_c().await) };
    webhooks.serve(listener, stop).await;
    Ok(())
}
