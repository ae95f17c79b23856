//! Shared by components that run alone: leader election, and stopping.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use futures_util::FutureExt as _;
use kube::Client;
use mizzen_bootstrap::pki::PkiError;
use tokio::runtime::Builder;

use crate::component_server::ComponentStatus;
use crate::compose::{ComposeError, stop_signal};
use crate::connect::ConnectError;
use crate::election::{ComponentLease, ElectionChange, ElectionTerm, LeaderCandidate, Standby};

/// Why a component stopped.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LeadError {
    /// There is no client.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// Another process leads, or the server was unreachable for too long.
    #[error("lost the lease {0}; stopping, so that no two replicas run at once")]
    Lost(String),
    /// A file cannot be read.
    #[error(transparent)]
    File(#[from] PkiError),
    /// An argument, or the file that it names, is invalid.
    #[error("{}: {why}", .file.display())]
    Configuration {
        /// The argument or the file.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Real containers cannot run.
    #[error(transparent)]
    NodeRuntime(#[from] super::node_runtime::RuntimeError),
    /// The secure port cannot be served.
    #[error(transparent)]
    Serve(#[from] ComposeError),
    /// The process could not be set up.
    #[error("cannot start: {0}")]
    Runtime(#[from] io::Error),
}

/// Runs a component on a runtime of its own.
pub(super) fn run(component: impl Future<Output = Result<(), LeadError>>) -> Result<(), LeadError> {
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(component);
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome
}

/// Runs `work` until it is stopped, while holding the lease if there is one.
pub(super) async fn lead(
    client: Client,
    lease: Option<ComponentLease>,
    status: &ComponentStatus,
    work: impl Future<Output = Result<(), LeadError>>,
) -> Result<(), LeadError> {
    let (signal, stopping) = (stop_signal()?, status.clone());
    let stop = async move {
        signal.await;
        stopping.stop();
    };
    let stop = stop.boxed().shared();
    let Some(lease) = lease else {
        return tokio::select! { outcome = work => outcome, () = stop => Ok(()) };
    };
    let on_change = |change| match change {
        ElectionChange::Started(observer) => status.observe(observer),
        ElectionChange::Standby(standby @ Standby::Waiting(_)) => standby.print(&lease),
        // The client logs its failed requests.
        ElectionChange::Standby(Standby::Unknown(_)) => {}
    };
    let term = ElectionTerm {
        client,
        lease: &lease,
    };
    let candidate = LeaderCandidate::for_process().with_metrics(status.metrics());
    match candidate.lead(term, stop, on_change, work).await {
        None => Err(LeadError::Lost(format!(
            "{}/{}",
            lease.namespace, lease.name
        ))),
        Some(outcome) => outcome.unwrap_or(Ok(())),
    }
}
