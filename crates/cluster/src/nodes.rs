//! The simulated nodes that run beside the server, and how they and it reach one another.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;

use kube::Client;
use mizzen_apiserver::{Server, User};
use mizzen_node as node;
use mizzen_object::Value;
use mizzen_sdk::informer::Factory;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::bootstrap::bootstrap_nodes;
use crate::pki::Authority;

/// Who looks for all nodes together. Its role is in `data/nodes.roles`.
const AGENT: &str = "system:node-agent";

/// How many nodes run beside the server, and how large they are.
#[derive(Debug, Clone, Default)]
pub struct Nodes {
    /// How many.
    pub n: usize,
    /// How much each has.
    pub capacity: Value,
}

/// Nodes at work. They stop when this is dropped.
pub struct Running(JoinHandle<()>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Nodes {
    /// Starts the nodes beside `server`, which asks them for logs with a certificate of `authority`. They hear of objects
    /// by `informers`.
    pub async fn start(
        self,
        server: &Server,
        authority: &Authority,
        informers: &Factory,
    ) -> io::Result<Option<Running>> {
        if self.n == 0 {
            return Ok(None);
        }
        bootstrap_nodes(server).await.map_err(io::Error::other)?;
        // The kubelets of all nodes in one: they look together, and write each as itself.
        let mut options = node::Options::simulated(client(server, User::component(AGENT)), self.n);
        let server = server.clone();
        options.client_of = Arc::new(move |name| client(&server, User::node(name)));
        options.capacity = self.capacity;
        options.informers = Some(informers.clone());
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let serving = node::Serving::new(listener, &authority.certificate, options.clock.clone());
        options.serving = Some(serving.map_err(io::Error::other)?);
        Ok(Some(Running(tokio::spawn(node::run(options)))))
    }
}

fn client(server: &Server, user: User) -> Client {
    Client::new(server.in_process(user, "kubelet"), "default")
}
