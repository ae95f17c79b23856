//! `shop-operator`: runs controllers and webhooks until it is stopped.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use clap::Parser;
use kube::{Client, Config};
use mizzen_sdk::manager::{Manager, Task};
use mizzen_sdk::webhook::{CertificateRotator, Endpoint, RotationOptions, Server};
use mizzen_sdk::{clock, election, kubeconfig};
use tokio::net::TcpListener;

use shop_operator::{Error, install, manager, webhooks};

/// Run the operator
///
/// Example: shop-operator --local --kubeconfig kubeconfig
#[derive(Parser)]
struct Arguments {
    /// Connect as this file says [default: $KUBECONFIG, ~/.kube/config, or the service account of the pod]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Apply the CustomResourceDefinitions, and register the webhooks at the loopback interface: for an API server on
    /// the same machine. In a cluster the manifests do that
    #[arg(long)]
    local: bool,
    /// Serve /metrics, /healthz and /readyz at this address; port 0 serves none
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    endpoints: SocketAddr,
    /// Serve webhooks at this port
    #[arg(long, value_name = "PORT", default_value_t = 9443)]
    webhook_port: u16,
    /// Run controllers only on the replica that holds the Lease shop-operator
    #[arg(long)]
    leader_elect: bool,
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let arguments = Arguments::parse();
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    let config = match &arguments.kubeconfig {
        Some(file) => kubeconfig::load(file, None, "shop-operator").await?,
        None => Config::infer().await?,
    };
    let client = Client::try_from(config)?;
    if arguments.local {
        install(&client).await?;
    }
    // The Deployment sets them; a process outside of a cluster is alone.
    let namespace = std::env::var("POD_NAMESPACE").unwrap_or_else(|_| "default".into());
    let identity = std::env::var("POD_NAME").unwrap_or_else(|_| "shop-operator".into());
    let mut manager = manager(client.clone(), clock::wall_clock()).endpoints(arguments.endpoints);
    if arguments.leader_elect {
        let options = election::Options::new(identity);
        manager = manager.leader_election(&namespace, "shop-operator", options);
    }
    if let Some(server) = webhooks::server()? {
        add_webhooks(&mut manager, server, client, &namespace, &arguments).await?;
    }
    println!("shop-operator runs");
    Ok(manager.run_until_signal().await?)
}

/// Serves webhooks with certificates of their own, which replicas share in a Secret.
async fn add_webhooks(
    manager: &mut Manager,
    server: Server,
    client: Client,
    namespace: &str,
    arguments: &Arguments,
) -> Result<(), Error> {
    let name = "shop-operator-webhook";
    let address = match arguments.local {
        true => Ipv4Addr::LOCALHOST,
        false => Ipv4Addr::UNSPECIFIED,
    };
    let listener = TcpListener::bind((address, arguments.webhook_port)).await?;
    let endpoint = match arguments.local {
        true => Endpoint::Url(format!("https://{}", listener.local_addr()?)),
        false => Endpoint::service(namespace, name),
    };
    let mut options = RotationOptions::new(namespace, name, endpoint.names());
    options.targets = server.injection_targets();
    let rotator = CertificateRotator::start(client.clone(), options).await?;
    if arguments.local {
        server.apply(&client, &endpoint, &rotator.bundle()).await?;
    }
    manager.add_webhooks(server, listener, rotator.certificate());
    let rotate = Task::new("certificates", async move |stop| {
        tokio::select! {
            () = rotator.run() => {}
            () = stop.requested() => {}
        }
        Ok(())
    });
    manager.add_task(rotate.on_every_replica());
    Ok(())
}
