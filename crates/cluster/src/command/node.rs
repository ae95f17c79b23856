//! `mizzen node`: simulated nodes alone, against any server.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use mizzen_apiserver::{ComponentHealth, Endpoint, HealthCheck};
use mizzen_node as node;
use mizzen_object::validate::names::{is_dns1123_subdomain, is_qualified_name};
use mizzen_sdk::api::Api;
use mizzen_sdk::resource::LEASES;
use mizzen_sdk::seam::wall_clock;
use mizzen_sdk::{Key, Object};
use mizzen_value::quantity::Quantity;
use mizzen_value::time::to_unix;
use mizzen_value::{Value, value};
use tokio::time::sleep;

use super::component::LogArgs;
use super::lead::{self, LeadError};
use super::secure_serving::{Component, SecureServingArgs};
use crate::component_server::{ComponentStatus, Ping, ShutdownCheck};
use crate::connect::connect;
use crate::election::Lease;
use crate::log::say;

/// How many of the nodes are looked at to know whether all are there.
const LAST: usize = 32;
/// How long to wait between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Run simulated nodes alone, against any Kubernetes API server.
#[derive(Args)]
#[command(
    after_help = "Example:\n  mizzen node --kubeconfig ./data/admin.kubeconfig --nodes 50 --name edge \
                        --capacity cpu=8,memory=16Gi,pods=110\n  kubectl --kubeconfig ./data/admin.kubeconfig get nodes"
)]
pub(crate) struct Node {
    /// How to reach the server
    #[arg(long, value_name = "FILE")]
    kubeconfig: PathBuf,
    /// How many nodes to run
    #[arg(long, value_name = "N", default_value_t = 1)]
    nodes: u32,
    /// The address of the first node, at which the server asks for logs. In 127.0.0.0/8 each further node has the next
    /// address (on Linux); any other address is that of all nodes
    #[arg(long, value_name = "IP", default_value = "127.0.0.1")]
    address: IpAddr,
    /// How the names of nodes begin; a number follows
    #[arg(long, value_name = "PREFIX", default_value = "node", value_parser = prefix)]
    name: String,
    /// How much each node has; what is not named is as usual: cpu=8, memory=32Gi, pods=110
    #[arg(long, value_name = "NAME=AMOUNT,…", default_value = "", value_parser = capacity)]
    capacity: Value,
    #[command(flatten)]
    serving: SecureServingArgs,
    #[command(flatten)]
    log: LogArgs,
}

/// Who runs containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Runtime {
    /// Whoever is found
    Auto,
    /// Nobody: pods only look as if they ran
    Simulated,
}

impl Node {
    /// Runs until told to stop.
    pub(crate) fn run(self) -> Result<(), LeadError> {
        self.log.init();
        lead::run(async {
            let client = connect(&self.kubeconfig, "kubelet").await?;
            let status = ComponentStatus::default();
            self.serving.serve(component_of(&status), &status).await?;
            let mut options = node::Options::simulated(client.clone(), self.nodes as usize);
            options.prefix = self.name;
            options.capacity = self.capacity;
            options.address = self.address;
            options.metrics = status.metrics().clone();
            let lease = Lease::of_nodes(&options.prefix);
            lead::lead(client.clone(), Some(lease), &status, async {
                options.serving = serving(&client, &options).await;
                let registered = registered(&client, options.prefix.clone(), options.n_nodes);
                let at_work = async {
                    registered.await;
                    match self.nodes {
                        1 => say!("1 simulated node is at work"),
                        n => say!("{n} simulated nodes are at work"),
                    }
                    std::future::pending().await
                };
                tokio::select! { () = node::run(options) => Ok(()), never = at_work => never }
            })
            .await
        })
    }
}

/// What is served of the nodes. Kubernetes: a kubelet serves this at the port at which it is asked for logs; here all nodes of
/// the process share one port for it.
fn component_of(status: &ComponentStatus) -> Component {
    let health = ComponentHealth::default();
    let ping: Arc<dyn HealthCheck> = Arc::new(Ping("ping".into()));
    let shutdown: Arc<dyn HealthCheck> = Arc::new(ShutdownCheck(status.clone()));
    health.add(Endpoint::Healthz, vec![ping.clone()]);
    health.add(Endpoint::Livez, vec![ping.clone()]);
    health.add(Endpoint::Readyz, vec![ping, shutdown]);
    let configuration =
        value!({"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"});
    Component {
        name: "kubelet",
        port: 10250,
        tolerates_lookup_failure: true,
        health,
        configuration: value!({ "kubeletconfig": configuration }),
    }
}

/// What the name of a node may begin with.
fn prefix(text: &str) -> Result<String, String> {
    match is_dns1123_subdomain(&format!("{text}-0")) {
        wrong if wrong.is_empty() => Ok(text.into()),
        wrong => Err(wrong.join("; ")),
    }
}

/// How much a node has, as the server will take it.
pub(super) fn capacity(text: &str) -> Result<Value, String> {
    let capacity = node::parse_capacity(text)?;
    for (name, amount) in capacity.entries() {
        let wrong = is_qualified_name(name);
        if !wrong.is_empty() {
            return Err(format!(
                "{name:?} is not the name of a resource: {}",
                wrong.join("; ")
            ));
        }
        if Quantity::of(amount.str()).is_negative() {
            return Err(format!("{name}={} is less than nothing", amount.str()));
        }
    }
    Ok(capacity)
}

/// Waits until the nodes have said that they live. They do so in order, some at a time: when the last have, all have.
async fn registered(client: &kube::Client, prefix: String, n_nodes: usize) {
    let (api, began) = (Api::new(client.clone()), wall_clock()().as_second());
    let renewed =
        |lease: Option<Object>| lease.and_then(|lease| to_unix(lease.at("spec.renewTime").str()));
    for at in n_nodes.saturating_sub(LAST)..n_nodes {
        let key = Key::new("kube-node-lease", format!("{prefix}-{at}"));
        while !matches!(api.find(&LEASES, &key).await.map(renewed), Ok(Some(at)) if at >= began) {
            sleep(LOOK_AGAIN).await;
        }
    }
}

/// Where the server may ask for logs. Nodes without that are nodes, too.
async fn serving(client: &kube::Client, options: &node::Options) -> Option<node::Serving> {
    let listen = async {
        let authority = node::client_authority(client)
            .await
            .map_err(|error| error.to_string())?;
        let serving = node::Serving::bind(options.address, &authority, options.clock.clone()).await;
        serving.map_err(|error| error.to_string())
    };
    match listen.await {
        Ok(serving) => Some(serving),
        Err(error) => {
            tracing::warn!(error, "there will be no logs");
            None
        }
    }
}
