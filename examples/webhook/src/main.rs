//! Serves the webhooks of backups.

use backup_webhook::{Error, register};
use clap::Parser;
use kube::Client;
use mizzen_sdk::signal;
use mizzen_sdk::webhook::Endpoint;
use tokio::net::TcpListener;

/// Serve the webhooks of backups.
///
/// Example: backup-webhook --local
#[derive(Parser)]
struct Arguments {
    /// The port to listen on; 0 picks a free one.
    #[arg(long, default_value_t = 9443)]
    port: u16,
    /// The namespace of the Service and of the Secret with the certificates.
    #[arg(long, default_value = "default")]
    namespace: String,
    /// The Service in front of the webhooks.
    #[arg(long, default_value = "backup-webhook")]
    service: String,
    /// Listen on the loopback interface, and register its URL instead of the Service: for an API server on the same machine.
    #[arg(long)]
    local: bool,
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let Arguments {
        port,
        namespace,
        service,
        local,
    } = Arguments::parse();
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    let host = if local { "127.0.0.1" } else { "0.0.0.0" };
    let listener = TcpListener::bind((host, port)).await?;
    let address = listener.local_addr()?;
    let endpoint = match local {
        true => Endpoint::Url(format!("https://{address}")),
        false => Endpoint::service(&namespace, service),
    };
    let webhooks = register(Client::try_default().await?, &namespace, endpoint).await?;
    println!("webhooks are registered and served at {address}");
    webhooks.serve(listener, signal::shutdown()?).await;
    Ok(())
}
