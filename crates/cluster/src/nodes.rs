//! The simulated nodes that run beside the server, and how they and it reach one another.

use std::io;
use std::net::Ipv4Addr;

use kube::Client;
use mizzen_apiserver::{Server, User};
use mizzen_node as node;
use mizzen_object::Value;
use mizzen_sdk::informer::Factory;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::pki::Authority;

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
        // The kubelets of all nodes in one: nobody else can come this way.
        let user = User::master("system:node-agent");
        let mut options =
            node::Options::simulated(Client::new(server.in_process(user, "kubelet"), "default"), self.n);
        options.capacity = self.capacity;
        options.informers = Some(informers.clone());
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let serving = node::Serving::new(listener, &authority.certificate, options.clock.clone());
        options.serving = Some(serving.map_err(io::Error::other)?);
        Ok(Some(Running(tokio::spawn(node::run(options)))))
    }
}
