//! `mizzen node`: only nodes, simulated or this machine, against any API server.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use mizzen_apiserver::{ComponentHealth, HealthCheck, HealthEndpoint};
use mizzen_node as node;
use mizzen_node::cri::CriRuntime;
use mizzen_object::validate::names::{is_dns1123_subdomain, is_qualified_name};
use mizzen_sdk::clock::wall_clock;
use mizzen_sdk::dynamic::DynamicClient;
use mizzen_sdk::resource::LEASES;
use mizzen_sdk::{Key, Object};
use mizzen_value::quantity::Quantity;
use mizzen_value::time::to_unix;
use mizzen_value::{Value, value};
use tokio::time::sleep;

use super::component::LogArgs;
use super::lead::{self, LeadError};
use super::node_runtime::{NodeRuntimeArgs, RuntimeError};
use super::secure_serving::{SecureServingArgs, ServedComponent};
use crate::component_server::{ComponentStatus, Ping, ShutdownCheck};
use crate::connect::{connect, server_address};
use crate::election::ComponentLease;
use crate::log::print_error;

/// The number of nodes at the end that must be registered before all are.
const N_CHECKED: usize = 32;
/// The polling interval.
const POLL: Duration = Duration::from_millis(100);

/// Run only nodes, simulated or real, against any Kubernetes API server
#[derive(Args)]
#[command(
    after_help = "Example:\n  mizzen node --kubeconfig ./data/admin.kubeconfig --nodes 50 --name edge \
                        --capacity cpu=8,memory=16Gi,pods=110\n  kubectl --kubeconfig ./data/admin.kubeconfig get nodes\n\n  \
                        sudo mizzen node --kubeconfig ./data/admin.kubeconfig --node-runtime cri"
)]
pub(crate) struct NodeCommand {
    /// Connect to the API server with this kubeconfig file
    #[arg(long, value_name = "FILE")]
    kubeconfig: PathBuf,
    /// Run this many nodes
    #[arg(long, value_name = "N", default_value_t = 1)]
    nodes: u32,
    /// Serve logs, exec and metrics at this address of the first node. In 127.0.0.0/8 each further node has the next address
    /// (on Linux); all nodes share any other address. With --node-runtime cri, --node-ip is the address of the node
    #[arg(long, value_name = "IP", default_value = "127.0.0.1")]
    address: IpAddr,
    /// Name nodes with this prefix and a number
    #[arg(long, value_name = "PREFIX", default_value = "node", value_parser = prefix)]
    name: String,
    /// Set the capacity of each node; other resources keep the defaults cpu=8, memory=32Gi, pods=110
    #[arg(long, value_name = "NAME=AMOUNT,…", default_value = "", value_parser = capacity)]
    capacity: Value,
    #[command(flatten)]
    runtime: NodeRuntimeArgs,
    #[command(flatten)]
    serving: SecureServingArgs,
    #[command(flatten)]
    log: LogArgs,
}

impl NodeCommand {
    /// Runs until it is stopped.
    pub(crate) fn run(self) -> Result<(), LeadError> {
        self.log.init();
        lead::run(async {
            let client = connect(&self.kubeconfig, "kubelet").await?;
            let status = ComponentStatus::default();
            self.serving
                .serve(self.served_component(&status), &status)
                .await?;
            let real_node = self.runtime.real_node().await?;
            let is_real = real_node.is_some();
            let mut options = match real_node {
                Some(mut real_node) => {
                    real_node.api_server = Some(server_address(&self.kubeconfig).await?);
                    let name = real_node.node.clone();
                    let runtime = CriRuntime::connect(real_node).await;
                    let runtime = runtime.map_err(RuntimeError::from)?;
                    let mut options = node::Options::cri(client.clone(), &name, runtime);
                    options.static_pods = self.runtime.static_pods();
                    options.node_address = Some(self.runtime.node_address(Some(self.address)));
                    self.runtime.pressure()?.apply(&mut options);
                    options.shutdown = self.runtime.shutdown()?;
                    options
                }
                None => {
                    let mut options = node::Options::simulated(client.clone(), self.nodes as usize);
                    options.prefix = self.name;
                    options.capacity = self.capacity;
                    options
                }
            };
            options.address = self.address;
            options.streaming_idle_timeout = self.runtime.streaming_connection_idle_timeout;
            options.metrics = status.metrics().clone();
            let lease = ComponentLease::for_nodes(&options.prefix);
            lead::lead(client.clone(), Some(lease), &status, async {
                options.serving = bind_serving(&client, &options).await;
                let registered = wait_until_registered(&client, &options);
                let name = options.prefix.clone();
                let announce = async {
                    registered.await;
                    match self.nodes {
                        _ if is_real => print_error!("node {name} is running"),
                        1 => print_error!("1 simulated node is running"),
                        n => print_error!("{n} simulated nodes are running"),
                    }
                    std::future::pending().await
                };
                tokio::select! { () = node::run(options) => Ok(()), never = announce => never }
            })
            .await
        })
    }

    /// Health checks and configuration of the secure port. Kubernetes: a kubelet serves these at the port of its API; here all
    /// nodes of the process share one port for them.
    fn served_component(&self, status: &ComponentStatus) -> ServedComponent {
        let health = ComponentHealth::default();
        let ping: Arc<dyn HealthCheck> = Arc::new(Ping("ping".into()));
        let shutdown: Arc<dyn HealthCheck> = Arc::new(ShutdownCheck(status.clone()));
        health.add(HealthEndpoint::Healthz, vec![ping.clone()]);
        health.add(HealthEndpoint::Livez, vec![ping.clone()]);
        health.add(HealthEndpoint::Readyz, vec![ping, shutdown]);
        let configuration = value!( { "apiVersion":"kubelet.config.k8s.io/v1beta1", "kind":"KubeletConfiguration" } );
        ServedComponent {
            name: "kubelet",
            port: 10250,
            tolerates_lookup_failure: true,
            health,
            configuration: value!( { "kubeletconfig":configuration } ),
        }
    }
}

/// Parses a prefix of node names.
fn prefix(text: &str) -> Result<String, String> {
    match is_dns1123_subdomain(&format!("{text}-0")) {
        wrong if wrong.is_empty() => Ok(text.into()),
        wrong => Err(wrong.join("; ")),
    }
}

/// Parses a capacity that the API server accepts.
pub(crate) fn capacity(text: &str) -> Result<Value, String> {
    let capacity = node::parse_capacity(text)?;
    for (name, amount) in capacity.entries() {
        let wrong = is_qualified_name(name);
        if !wrong.is_empty() {
            return Err(format!(
                "{name:?} is not the name of a resource: {}",
                wrong.join("; ")
            ));
        }
        if Quantity::parse_or_zero(amount.str()).is_negative() {
            return Err(format!("{name}={} is negative", amount.str()));
        }
    }
    Ok(capacity)
}

/// Waits until the nodes have renewed their leases. They register in order, some at a time: when the last have, all have.
fn wait_until_registered(
    client: &kube::Client,
    options: &node::Options,
) -> impl Future<Output = ()> + use<> {
    let name = |at: usize| match options.is_numbered {
        true => format!("{}-{at}", options.prefix),
        false => options.prefix.clone(),
    };
    let n_nodes = options.n_nodes;
    let checked = n_nodes.saturating_sub(N_CHECKED)..n_nodes;
    let names: Vec<String> = checked.map(name).collect();
    let client = client.clone();
    async move { wait_for_leases(&client, names).await }
}

async fn wait_for_leases(client: &kube::Client, names: Vec<String>) {
    let (api, began) = (
        DynamicClient::new(client.clone()),
        wall_clock()().as_second(),
    );
    let renewed =
        |lease: Option<Object>| lease.and_then(|lease| to_unix(lease.at("spec.renewTime").str()));
    for name in names {
        let key = Key::new("kube-node-lease", name);
        while !matches!(api.find(&LEASES, &key).await.map(renewed), Ok(Some(at)) if at >= began) {
            sleep(POLL).await;
        }
    }
}

/// Binds the API of the nodes. Without it they run, but serve no logs.
async fn bind_serving(client: &kube::Client, options: &node::Options) -> Option<node::Serving> {
    let listen = async {
        let authority = node::client_authority(client)
            .await
            .map_err(|error| error.to_string())?;
        let address = match &options.node_address {
            // It listens where the user has said, or where the node is reached.
            Some(of_node) if options.address.is_loopback() => of_node.listen(),
            _ => options.address,
        };
        let serving = node::Serving::bind(address, &authority, options.clock.clone()).await;
        serving.map_err(|error| error.to_string())
    };
    match listen.await {
        Ok(serving) => Some(serving),
        Err(error) => {
            tracing::warn!(
                error,
                "cannot serve the API of nodes, logs and exec are unavailable"
            );
            None
        }
    }
}
