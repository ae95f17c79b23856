//! The simulated nodes in the process of the API server.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use mizzen_apiserver::{Server, User};
use mizzen_bootstrap::objects::bootstrap_nodes;
use mizzen_bootstrap::pki::Authority;
use mizzen_bootstrap::users;
use mizzen_node as node;
use mizzen_sdk::informer::Factory;
use mizzen_value::Value;

use crate::election::{ComponentLease, LeaderCandidate};
use crate::leader_elected_component::{LeaderElectedComponent, LeaderTask};

/// The prefix of their names.
const PREFIX: &str = "node";

/// The number of nodes and their capacity.
#[derive(Debug, Clone)]
pub(crate) struct SimulatedNodes {
    /// The number of nodes.
    pub n: usize,
    /// The capacity of each.
    pub capacity: Value,
    /// How long their connections of exec, attach and port-forward may be idle.
    pub streaming_idle_timeout: Duration,
}

impl SimulatedNodes {
    /// Starts the nodes as a candidate of their lease. The server calls them with a client certificate of `authority`; they
    /// share `informers`.
    pub(crate) async fn start(
        self,
        server: &Server,
        candidate: &LeaderCandidate,
        authority: &Authority,
        informers: &Factory,
    ) -> Result<Option<LeaderElectedComponent>, String> {
        if self.n == 0 {
            return Ok(None);
        }
        bootstrap_nodes(server).await?;
        let agent = client(server, users::node_agent());
        let run = self.run(
            server.clone(),
            authority.certificate.clone(),
            informers.clone(),
        );
        Ok(Some(LeaderElectedComponent::start(
            agent,
            candidate.clone(),
            ComponentLease::for_nodes(PREFIX),
            run,
        )))
    }

    /// Runs the kubelets of all nodes: they share watches, and each writes as its own node.
    fn run(self, server: Server, authority: String, informers: Factory) -> LeaderTask {
        Box::new(move |readiness| {
            let mut options =
                node::Options::simulated(client(&server, users::node_agent()), self.n);
            let (api_server, authority) = (server.clone(), authority.clone());
            options.client_of = Arc::new(move |name| client(&api_server, User::node(name)));
            options.prefix = PREFIX.into();
            options.capacity = self.capacity.clone();
            options.streaming_idle_timeout = self.streaming_idle_timeout;
            let informers = ScopedInformers(informers.scoped());
            Box::pin(async move {
                options.informers = Some(informers.0.clone());
                let serving =
                    node::Serving::bind(options.address, &authority, options.clock.clone()).await;
                options.serving = Some(serving.map_err(|error| error.to_string())?);
                readiness.set_ready();
                node::run(options).await;
                Err("the nodes have stopped".into())
            })
        })
    }
}

/// Informer handlers that are removed when this is dropped.
pub(crate) struct ScopedInformers(pub Factory);

impl Drop for ScopedInformers {
    fn drop(&mut self) {
        self.0.stop();
    }
}

fn client(server: &Server, user: User) -> Client {
    Client::new(server.in_process(user, "kubelet"), "default")
}
