//! `mizzen node`: simulated nodes alone, against any server.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use mizzen_node as node;
use mizzen_object::Value;
use tokio::net::TcpListener;

use super::lead::{self, LeadError};
use crate::connect::connect;

/// Run simulated nodes alone, against any Kubernetes API server.
#[derive(Args)]
#[command(
    after_help = "Example:\n  mizzen node --kubeconfig ./data/admin.kubeconfig --nodes 50 --name edge \
                        --capacity cpu=8,memory=16Gi,pods=110\n  kubectl --kubeconfig ./data/admin.kubeconfig get nodes"
)]
pub struct Node {
    /// How to reach the server
    #[arg(long, value_name = "FILE")]
    kubeconfig: PathBuf,
    /// How many nodes to run
    #[arg(long, value_name = "N", default_value_t = 1)]
    nodes: u32,
    /// The address of the nodes, at which the server asks for logs
    #[arg(long, value_name = "IP", default_value = "127.0.0.1")]
    address: IpAddr,
    /// How the names of nodes begin; a number follows
    #[arg(long, value_name = "PREFIX", default_value = "node")]
    name: String,
    /// How much each node has; what is not named is as usual: cpu=8, memory=32Gi, pods=110
    #[arg(long, value_name = "NAME=AMOUNT,…", default_value = "", value_parser = node::parse_capacity)]
    capacity: Value,
}

/// Who runs containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Runtime {
    /// Whoever is found
    Auto,
    /// Nobody: pods only look as if they ran
    Simulated,
}

impl Node {
    /// Runs until told to stop.
    pub fn run(self) -> Result<(), LeadError> {
        lead::run(async {
            let client = connect(&self.kubeconfig, "kubelet").await?;
            let mut options = node::Options::simulated(client.clone(), self.nodes as usize);
            options.prefix = self.name;
            options.capacity = self.capacity;
            options.address = self.address;
            options.serving = serving(&client, self.address, &options).await;
            lead::lead(client, None, "the nodes", async {
                eprintln!("{} simulated nodes are at work", self.nodes);
                node::run(options).await;
            })
            .await
        })
    }
}

/// Where the server may ask for logs. Nodes without that are nodes, too.
async fn serving(client: &kube::Client, address: IpAddr, options: &node::Options) -> Option<node::Serving> {
    let listen = async {
        let authority = node::client_authority(client).await.map_err(|error| error.to_string())?;
        let listener = TcpListener::bind((address, 0)).await.map_err(|error| error.to_string())?;
        node::Serving::new(listener, &authority, options.clock.clone()).map_err(|error| error.to_string())
    };
    match listen.await {
        Ok(serving) => Some(serving),
        Err(error) => {
            tracing::warn!(error, "there will be no logs");
            None
        }
    }
}
