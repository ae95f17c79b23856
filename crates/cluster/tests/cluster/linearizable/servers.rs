//! The servers of a run, on the same data if there are several.

use tokio::sync::{Mutex, watch};

use crate::client::{Client, Credentials};
use crate::process::{Home, Process};

/// Servers that can be killed, started again and paused.
pub(crate) struct Servers(Vec<Server>);

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
        let servers = Servers(homes.into_iter().map(Server::new).collect());
        for server in &servers.0 {
            server.start(&mut *server.process.lock().await).await;
        }
        servers
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// A connection to a server, once it is started; `None` if it does not respond.
    pub(crate) async fn connect(&self, server_idx: usize) -> Option<Client> {
        let mut endpoint = self.0[server_idx].endpoint.subscribe();
        let endpoint = endpoint.wait_for(Option::is_some).await.ok()?.clone()?;
        let connected = Client::try_connect(&endpoint.address, &endpoint.credentials);
        connected.await.ok()
    }

    /// Kills a server with SIGKILL, and starts it again.
    pub(crate) async fn kill(&self, server_idx: usize) {
        let server = &self.0[server_idx];
        let mut process = server.process.lock().await;
        server.endpoint.send_replace(None);
        if let Some(process) = process.take() {
            process.kill().await;
        }
        server.start(&mut process).await;
    }

    /// Pauses a server until `over`.
    pub(crate) async fn pause(&self, server_idx: usize, over: impl Future<Output = ()>) {
        let process = self.0[server_idx].process.lock().await;
        let process = process.as_ref().expect("it runs");
        process.pause();
        over.await;
        process.resume();
    }

    pub(crate) async fn stop(&self) {
        for server in &self.0 {
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
