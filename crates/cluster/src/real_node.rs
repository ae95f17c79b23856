//! The node with real containers in the process of the API server: this machine.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use mizzen_apiserver::{Server, User};
use mizzen_bootstrap::objects::{bootstrap_nodes, bootstrap_volumes};
use mizzen_bootstrap::pki::Authority;
use mizzen_bootstrap::users;
use mizzen_node as node;
use mizzen_node::cri::{CriOptions, CriRuntime};
use mizzen_node::shutdown::ShutdownConfig;
use mizzen_node::{NodeAddress, StaticPodSource};
use mizzen_sdk::informer::Factory;

use crate::command::NodePressure;
use crate::election::{ComponentLease, LeaderCandidate};
use crate::leader_elected_component::{LeaderElectedComponent, LeaderTask};
use crate::simulated_nodes::ScopedInformers;

/// The prefix of the lease's name, which the role of the agent names (`bootstrap/data/nodes.roles`).
const LEASE: &str = "cri";

/// The node with real containers.
#[derive(Clone)]
pub(crate) struct RealNode {
    /// Its runtime.
    pub cri: CriOptions,
    /// Its address.
    pub address: NodeAddress,
    /// Its static pods.
    pub static_pods: Option<StaticPodSource>,
    /// What it keeps for the system, and when it evicts pods.
    pub pressure: NodePressure,
    /// How it ends its pods before this machine shuts down.
    pub shutdown: ShutdownConfig,
    /// How long its connections of exec, attach and port-forward may be idle.
    pub streaming_idle_timeout: Duration,
}

/// Starts the node as a candidate of its lease. The server calls it with a client certificate of `authority`; it shares
/// `informers`.
pub(crate) async fn start(
    options: RealNode,
    server: &Server,
    candidate: &LeaderCandidate,
    authority: &Authority,
    informers: &Factory,
) -> Result<LeaderElectedComponent, String> {
    bootstrap_nodes(server).await?;
    bootstrap_volumes(server, node::PROVISIONER).await?;
    let agent = client(server, users::node_agent());
    let lease = ComponentLease::for_nodes(LEASE);
    let run = run(
        options,
        server.clone(),
        authority.certificate.clone(),
        informers.clone(),
    );
    Ok(LeaderElectedComponent::start(
        agent,
        candidate.clone(),
        lease,
        run,
    ))
}

/// Runs the agent. It connects to the runtime whenever it leads, and adopts what runs there.
fn run(real_node: RealNode, server: Server, authority: String, informers: Factory) -> LeaderTask {
    Box::new(move |readiness| {
        let (cri_options, authority) = (real_node.cri.clone(), authority.clone());
        let static_pods = real_node.static_pods.clone();
        let pressure = real_node.pressure.clone();
        let address = real_node.address;
        let shutdown = real_node.shutdown.clone();
        let streaming_idle_timeout = real_node.streaming_idle_timeout;
        let (server, informers) = (server.clone(), ScopedInformers(informers.scoped()));
        Box::pin(async move {
            let name = cri_options.node.clone();
            let runtime = CriRuntime::connect(cri_options)
                .await
                .map_err(|error| error.to_string())?;
            let agent = client(&server, users::node_agent());
            let mut options = node::Options::cri(agent, &name, runtime);
            options.client_of = Arc::new(move |name| client(&server, User::node(name)));
            options.informers = Some(informers.0.clone());
            options.static_pods = static_pods;
            options.node_address = Some(address);
            pressure.apply(&mut options);
            options.shutdown = shutdown;
            options.streaming_idle_timeout = streaming_idle_timeout;
            let serving =
                node::Serving::bind(address.listen(), &authority, options.clock.clone()).await;
            options.serving = Some(serving.map_err(|error| error.to_string())?);
            readiness.set_ready();
            node::run(options).await;
            Err("the node has stopped".into())
        })
    })
}

fn client(server: &Server, user: User) -> Client {
    Client::new(server.in_process(user, "kubelet"), "default")
}
