//! The state of a cluster, as `mizzen status` prints it.

use std::time::Duration;

use http::Request;
use kube::Client;
use mizzen_sdk::kubeconfig;
use mizzen_value::{Value, value};
use tokio::time::timeout;

use super::directory::{ClusterDirectory, ClusterDirectoryError};
use super::record::RunRecord;

/// How long a server may take to say that it is ready.
const READYZ_TIMEOUT: Duration = Duration::from_secs(2);

/// Whether a cluster runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClusterState {
    /// It serves, and `/readyz` says that it is ready.
    Ready,
    /// Its process runs, but `/readyz` fails or does not answer.
    NotReady,
    /// Its process runs, but does not serve yet.
    Starting,
    /// No process runs it.
    Stopped,
}

impl ClusterState {
    /// The word for it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            ClusterState::Ready => "ready",
            ClusterState::NotReady => "not ready",
            ClusterState::Starting => "starting",
            ClusterState::Stopped => "stopped",
        }
    }
}

/// A cluster and its state.
pub(crate) struct ClusterStatus {
    /// Its directory.
    pub(crate) directory: ClusterDirectory,
    /// Its state.
    pub(crate) state: ClusterState,
    /// The process that runs it, unless it is in another PID namespace.
    pub(crate) pid: Option<i32>,
    /// The present run, or else the last one.
    pub(crate) record: Option<RunRecord>,
}

impl ClusterStatus {
    /// Inspects a cluster: its lock, its record, and `/readyz` of its server.
    pub(crate) async fn inspect(
        directory: ClusterDirectory,
    ) -> Result<ClusterStatus, ClusterDirectoryError> {
        let pid = directory.holder()?;
        let record = directory.record();
        let state = match (pid, &record) {
            (None, _) => ClusterState::Stopped,
            (Some(pid), Some(record)) if pid == 0 || pid == record.pid => {
                let is_ready = timeout(READYZ_TIMEOUT, is_ready(record)).await;
                match is_ready.unwrap_or_default() {
                    true => ClusterState::Ready,
                    false => ClusterState::NotReady,
                }
            }
            _ => ClusterState::Starting,
        };
        Ok(ClusterStatus {
            directory,
            state,
            pid: pid.filter(|pid| *pid > 0),
            record,
        })
    }

    /// The record, if it is of the process that runs now.
    pub(crate) fn run(&self) -> Option<&RunRecord> {
        let is_serving = matches!(self.state, ClusterState::Ready | ClusterState::NotReady);
        self.record.as_ref().filter(|_| is_serving)
    }

    /// The status for `-o json` and `-o yaml`. Fields of a run are left out if there is none.
    pub(crate) fn to_value(&self) -> Value {
        let directory = &self.directory;
        let mut value = value!({
            "name": (directory.name.as_ref().map(|name| name.as_str())),
            "state": (self.state.word()),
            "dataDir": (directory.path.display().to_string()),
        });
        if let Some(pid) = self.pid {
            value.set("pid", pid);
        }
        if let Some(run) = self.run() {
            value.set("address", &run.server);
            value.set("since", &run.since);
            value.set("version", &run.version);
            value.set("nodes", run.n_nodes);
            value.set("kubeconfig", run.kubeconfig.display().to_string());
            if let Some(log) = &run.log {
                value.set("log", log.display().to_string());
            }
        }
        value
    }
}

/// Whether `/readyz` succeeds for the administrator.
async fn is_ready(record: &RunRecord) -> bool {
    let request = async {
        let config = kubeconfig::load(&record.kubeconfig, None, "mizzen-status")
            .await
            .ok()?;
        let client = Client::try_from(config).ok()?;
        let request = Request::get("/readyz").body(Vec::new()).ok()?;
        client.request_text(request).await.ok()
    };
    request.await.is_some()
}
