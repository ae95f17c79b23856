//! One run against one server: options, connections and namespace.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Mutex;

use super::client::{ApiCall, ApiCallError, ApiConnection, ApiEndpoint};
use super::load::LoadBudget;
use super::meter::ServerMeter;
use super::process::{MeasureError, Processes};
use super::progress::ProgressDisplay;
use super::report::{BenchReport, micros};
use super::{BenchError, Options};

/// Shared by all workloads.
pub(crate) struct Session {
    pub options: Options,
    endpoint: ApiEndpoint,
    pub servers: Processes,
    pub namespace: String,
    /// Whether the namespace may exist.
    pub has_namespace: AtomicBool,
    pub progress: ProgressDisplay,
    /// One per client; a workload borrows as many as it needs.
    pub connections: Vec<Arc<Mutex<ApiConnection>>>,
    /// For requests that are not measured.
    own: Arc<Mutex<ApiConnection>>,
    /// The endpoint with the credentials of the service account, if measured requests are sent as one.
    account: OnceLock<ApiEndpoint>,
    turns: AtomicU64,
}

impl Session {
    /// Connects every client. Creates nothing on the server.
    pub(super) async fn open(options: Options) -> Result<Self, BenchError> {
        let endpoint = ApiEndpoint::load(&options.kubeconfig, options.context.as_deref()).await?;
        let servers = Processes::new(options.server_pid.clone());
        servers.cpu()?;
        let connections = connect(&endpoint, &options).await?;
        let own = match options.as_service_account {
            true => Arc::new(Mutex::new(endpoint.connect().await?)),
            false => connections[0].clone(),
        };
        Ok(Self {
            // Random enough for a name: the seed of the standard library's hash maps.
            namespace: format!("bench-{:08x}", RandomState::new().hash_one(0) as u32),
            has_namespace: AtomicBool::new(false),
            progress: ProgressDisplay::new(),
            turns: AtomicU64::new(1),
            options,
            endpoint,
            servers,
            connections,
            own,
            account: OnceLock::new(),
        })
    }

    /// The endpoint of measured requests.
    pub(super) fn endpoint(&self) -> &ApiEndpoint {
        self.account.get().unwrap_or(&self.endpoint)
    }

    /// Sends measured requests with the credentials of `account` from now on.
    pub(super) async fn connect_as(&self, account: ApiEndpoint) -> Result<(), BenchError> {
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

    /// Fills in the server, its version and its idle CPU.
    pub(super) async fn describe(&self, report: &mut BenchReport) -> Result<(), BenchError> {
        let version = self.call(&ApiCall::get("/version")).await?;
        let version: serde_json::Value = serde_json::from_slice(&version).unwrap_or_default();
        report.version = version["gitVersion"]
            .as_str()
            .unwrap_or("unknown version")
            .to_owned();
        report.server = self.endpoint.origin().to_owned();
        report.clients = self.options.clients;
        report.connections = self.options.connections.unwrap_or(self.options.clients);
        report.objects = self.options.objects;
        report.idle_cpu_us_per_second = self.idle_cpu().await?;
        Ok(())
    }

    /// The server's CPU without requests, in microseconds per second.
    async fn idle_cpu(&self) -> Result<Option<f64>, MeasureError> {
        if self.servers.is_empty() {
            return Ok(None);
        }
        let meter = ServerMeter::start(&self.servers)?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let reading = meter.stop()?;
        Ok(reading
            .server_cpu
            .map(|cpu| micros(cpu) / reading.elapsed.as_secs_f64()))
    }

    /// Sends a request that is not measured.
    pub(super) async fn call(&self, call: &ApiCall) -> Result<hyper::body::Bytes, ApiCallError> {
        self.own.lock().await.fetch(call).await
    }

    /// A number that no update has used, so that no update is a no-op.
    pub(super) fn next_turn(&self) -> u64 {
        self.turns.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn budget(&self) -> LoadBudget {
        match self.options.operations {
            Some(operations) => LoadBudget::Operations(operations),
            None => LoadBudget::Time(Duration::from_secs_f64(self.options.seconds)),
        }
    }
}

async fn connect(
    endpoint: &ApiEndpoint,
    options: &Options,
) -> Result<Vec<Arc<Mutex<ApiConnection>>>, ApiCallError> {
    let n_clients = options.clients.max(options.list_clients);
    let n_connections = options.connections.unwrap_or(n_clients).min(n_clients);
    let mut connections = Vec::with_capacity(n_clients);
    for client_idx in 0..n_clients {
        let connection = match client_idx < n_connections {
            true => endpoint.connect().await?,
            false => {
                let shared: &Arc<Mutex<ApiConnection>> = &connections[client_idx % n_connections];
                shared.lock().await.share().await?
            }
        };
        connections.push(Arc::new(Mutex::new(connection)));
    }
    Ok(connections)
}
