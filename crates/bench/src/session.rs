//! One run against one server: connections, namespace, and what the command line asked for.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Mutex;

use super::client::{Call, CallError, Connection, Endpoint};
use super::load::Budget;
use super::meter::Meter;
use super::process::{MeasureError, Processes};
use super::progress::Progress;
use super::report::{Report, micros};
use super::{BenchError, Options};

/// Shared by all workloads.
pub(crate) struct Session {
    pub options: Options,
    endpoint: Endpoint,
    pub servers: Processes,
    pub namespace: String,
    /// Whether the namespace may exist.
    pub has_namespace: AtomicBool,
    pub progress: Progress,
    /// One per client; a workload borrows as many as it needs.
    pub connections: Vec<Arc<Mutex<Connection>>>,
    /// For what is not measured.
    own: Arc<Mutex<Connection>>,
    /// Who puts the load on, if it is not the user of the kubeconfig file.
    account: OnceLock<Endpoint>,
    turns: AtomicU64,
}

impl Session {
    /// Connects every client. Nothing is written yet.
    pub(super) async fn open(options: Options) -> Result<Self, BenchError> {
        let endpoint = Endpoint::load(&options.kubeconfig, options.context.as_deref()).await?;
        let servers = Processes::new(options.server_pid.clone());
        servers.cpu()?;
        let connections = connect(&endpoint, &options).await?;
        let own = match options.as_service_account {
            true => Arc::new(Mutex::new(endpoint.connect().await?)),
            false => connections[0].clone(),
        };
        Ok(Self {
            namespace: format!("bench-{:08x}", random() as u32),
            has_namespace: AtomicBool::new(false),
            progress: Progress::new(),
            turns: AtomicU64::new(1),
            options,
            endpoint,
            servers,
            connections,
            own,
            account: OnceLock::new(),
        })
    }

    /// Whom the load goes to, as who puts it on.
    pub(super) fn endpoint(&self) -> &Endpoint {
        self.account.get().unwrap_or(&self.endpoint)
    }

    /// From now on the load is put on as whoever this leads to.
    pub(super) async fn connect_as(&self, account: Endpoint) -> Result<(), BenchError> {
        for (connection, other) in self
            .connections
            .iter()
            .zip(connect(&account, &self.options).await?)
        {
            std::mem::swap(&mut *connection.lock().await, &mut *other.lock().await);
        }
        let _ = self.account.set(account);
        Ok(())
    }

    /// Fills in what the report says about the server.
    pub(super) async fn describe(&self, report: &mut Report) -> Result<(), BenchError> {
        let version = self.call(&Call::get("/version")).await?;
        let version: serde_json::Value = serde_json::from_slice(&version).unwrap_or_default();
        report.version = version["gitVersion"]
            .as_str()
            .unwrap_or("unknown version")
            .to_owned();
        report.server = self.endpoint.origin().to_owned();
        report.clients = self.options.clients;
        report.connections = self.options.connections.unwrap_or(self.options.clients);
        report.objects = self.options.objects;
        report.idle_cpu_us_per_second = self.idle().await?;
        Ok(())
    }

    /// What the server uses when left alone, in microseconds of CPU per second.
    async fn idle(&self) -> Result<Option<f64>, MeasureError> {
        if self.servers.is_empty() {
            return Ok(None);
        }
        let meter = Meter::start(&self.servers)?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let reading = meter.stop()?;
        Ok(reading
            .server_cpu
            .map(|cpu| micros(cpu) / reading.elapsed.as_secs_f64()))
    }

    /// A call outside any measurement.
    pub(super) async fn call(&self, call: &Call) -> Result<hyper::body::Bytes, CallError> {
        self.own.lock().await.fetch(call).await
    }

    /// A number that no update has used: the server cannot mistake it for an update that changes nothing.
    pub(super) fn next_turn(&self) -> u64 {
        self.turns.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn budget(&self) -> Budget {
        match self.options.operations {
            Some(operations) => Budget::Operations(operations),
            None => Budget::Time(Duration::from_secs_f64(self.options.seconds)),
        }
    }
}

async fn connect(
    endpoint: &Endpoint,
    options: &Options,
) -> Result<Vec<Arc<Mutex<Connection>>>, CallError> {
    let n_clients = options.clients.max(options.list_clients);
    let n_connections = options.connections.unwrap_or(n_clients).min(n_clients);
    let mut connections = Vec::with_capacity(n_clients);
    for client_idx in 0..n_clients {
        let connection = match client_idx < n_connections {
            true => endpoint.connect().await?,
            false => {
                let shared: &Arc<Mutex<Connection>> = &connections[client_idx % n_connections];
                shared.lock().await.share().await?
            }
        };
        connections.push(Arc::new(Mutex::new(connection)));
    }
    Ok(connections)
}

/// Enough randomness for a name, from what the standard library seeds its hash maps with.
fn random() -> u64 {
    RandomState::new().hash_one(std::process::id())
}
