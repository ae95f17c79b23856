//! The servers of a run, on the same data if there are several.

use std::sync::Arc;

use tokio::sync::{Mutex, watch};

use super::etcd::EtcdCluster;
use crate::client::{Client, Credentials};
use crate::process::{Home, Process};

/// Servers that can be killed, started again and paused.
pub(crate) struct Servers {
    servers: Vec<Server>,
    /// What is below them. It ends after them.
    etcd: Option<Arc<EtcdCluster>>,
}

struct Server {
    home: Home,
    process: Mutex<Option<Process>>,
    /// Where it is, unless it is being started.
    endpoint: watch::Sender<Option<Endpoint>>,
}

/// The address of a server, which changes with every start.
#[derive(Clone)]
struct Endpoint {
    address: String,
    credentials: Credentials,
}

impl Servers {
    /// A server in each of `homes`.
    pub(crate) async fn start(homes: Vec<Home>) -> Servers {
        Servers::start_on(homes, None).await
    }

    /// Servers on etcd, each with its own connections to it.
    pub(crate) async fn start_on_etcd(etcd: Arc<EtcdCluster>, n: usize, prefix: &str) -> Servers {
        Servers::start_on(etcd.homes(n, prefix).await, Some(etcd)).await
    }

    async fn start_on(homes: Vec<Home>, etcd: Option<Arc<EtcdCluster>>) -> Servers {
        let servers: Vec<_> = homes.into_iter().map(Server::new).collect();
        for server in &servers {
            if etcd.is_some() && server.home.path() != servers[0].home.path() {
                server.home.copy_keys(&servers[0].home.data_dir());
            }
            server.start(&mut *server.process.lock().await).await;
        }
        Servers { servers, etcd }
    }

    /// The etcd below them, if there is one.
    pub(crate) fn etcd(&self) -> Option<&EtcdCluster> {
        self.etcd.as_deref()
    }

    pub(crate) fn len(&self) -> usize {
        self.servers.len()
    }

    /// A connection to a server, once it is started; `None` if it does not respond.
    pub(crate) async fn connect(&self, server_idx: usize) -> Option<Client> {
        let mut endpoint = self.servers[server_idx].endpoint.subscribe();
        let endpoint = endpoint.wait_for(Option::is_some).await.ok()?.clone()?;
        let connected = Client::try_connect(&endpoint.address, &endpoint.credentials);
        connected.await.ok()
    }

    /// Kills a server with SIGKILL, and starts it again.
    pub(crate) async fn kill(&self, server_idx: usize) {
        let server = &self.servers[server_idx];
        let mut process = server.process.lock().await;
        server.endpoint.send_replace(None);
        if let Some(process) = process.take() {
            process.kill().await;
        }
        server.start(&mut process).await;
    }

    /// Pauses a server until `over`.
    pub(crate) async fn pause(&self, server_idx: usize, over: impl Future<Output = ()>) {
        let process = self.servers[server_idx].process.lock().await;
        let process = process.as_ref().expect("it runs");
        process.pause();
        over.await;
        process.resume();
    }

    pub(crate) async fn stop(&self) {
        for server in &self.servers {
            if let Some(process) = server.process.lock().await.take() {
                process.stop().await;
            }
        }
    }
}

impl Server {
    fn new(home: Home) -> Server {
        Server {
            home,
            process: Mutex::default(),
            endpoint: watch::Sender::new(None),
        }
    }

    async fn start(&self, slot: &mut Option<Process>) {
        let process = self.home.start().await;
        self.endpoint.send_replace(Some(Endpoint {
            address: process.address.clone(),
            credentials: process.credentials.clone(),
        }));
        *slot = Some(process);
    }
}
