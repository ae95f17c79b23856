//! The simulated nodes that run beside the server, and how they and it reach one another.

use std::sync::Arc;

use kube::Client;
use mizzen_apiserver::{Server, User};
use mizzen_node as node;
use mizzen_sdk::informer::Factory;
use mizzen_value::Value;

use crate::bootstrap::bootstrap_nodes;
use crate::election::{Candidate, Lease};
use crate::pki::Authority;
use crate::seat::{Seat, Work};

/// Who looks for all nodes together. Its role is in `data/nodes.roles`.
const AGENT: &str = "system:node-agent";
/// How their names begin.
const PREFIX: &str = "node";

/// How many nodes run beside the server, and how large they are.
#[derive(Debug, Clone, Default)]
pub(crate) struct Nodes {
    /// How many.
    pub n: usize,
    /// How much each has.
    pub capacity: Value,
}

impl Nodes {
    /// Lets the nodes run beside `server` as soon as nobody else runs nodes of their names. The server asks them for logs
    /// with a certificate of `authority`; they hear of objects by `informers`.
    pub(crate) async fn start(
        self,
        server: &Server,
        candidate: &Candidate,
        authority: &Authority,
        informers: &Factory,
    ) -> Result<Option<Seat>, String> {
        if self.n == 0 {
            return Ok(None);
        }
        bootstrap_nodes(server).await?;
        let agent = client(server, User::component(AGENT));
        let work = self.work(
            server.clone(),
            authority.certificate.clone(),
            informers.clone(),
        );
        Ok(Some(Seat::take(
            agent,
            candidate.clone(),
            Lease::of_nodes(PREFIX),
            work,
        )))
    }

    /// The kubelets of all nodes in one: they look together, and write each as itself.
    fn work(self, server: Server, authority: String, informers: Factory) -> Work {
        Box::new(move |settled| {
            let mut options =
                node::Options::simulated(client(&server, User::component(AGENT)), self.n);
            let (beside, authority) = (server.clone(), authority.clone());
            options.client_of = Arc::new(move |name| client(&beside, User::node(name)));
            options.prefix = PREFIX.into();
            options.capacity = self.capacity.clone();
            let lent = Lent(informers.lend());
            Box::pin(async move {
                options.informers = Some(lent.0.clone());
                let serving =
                    node::Serving::bind(options.address, &authority, options.clock.clone()).await;
                options.serving = Some(serving.map_err(|error| error.to_string())?);
                settled.now();
                node::run(options).await;
                Err("they ended by themselves".into())
            })
        })
    }
}

/// Informers that are lent until this is dropped.
struct Lent(Factory);

impl Drop for Lent {
    fn drop(&mut self) {
        self.0.stop();
    }
}

fn client(server: &Server, user: User) -> Client {
    Client::new(server.in_process(user, "kubelet"), "default")
}
