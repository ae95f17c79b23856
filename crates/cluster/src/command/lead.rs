//! What the parts that run alone have in common: of several, one works, until told to stop.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use futures_util::FutureExt as _;
use kube::Client;
use tokio::runtime::Builder;

use crate::component_server::ComponentStatus;
use crate::compose::{ComposeError, stop_signal};
use crate::connect::ConnectError;
use crate::election::{Candidate, Lease, Standing};
use crate::pki::PkiError;

/// Why a part does not work.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LeadError {
    /// The server cannot be reached.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// Another took over, or the server could not be reached for too long.
    #[error("lost the lease {0}; stopping, so that no two work at once")]
    Lost(String),
    /// A file cannot be read.
    #[error(transparent)]
    File(#[from] PkiError),
    /// What the part is told makes no sense.
    #[error("{}: {why}", .file.display())]
    Configuration {
        /// Where it is written.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// It cannot serve.
    #[error(transparent)]
    Serve(#[from] ComposeError),
    /// The process could not be set up.
    #[error("cannot start: {0}")]
    Runtime(#[from] io::Error),
}

/// Runs a part, which logs already.
pub(super) fn run(part: impl Future<Output = Result<(), LeadError>>) -> Result<(), LeadError> {
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(part);
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome
}

/// Works as soon as nobody else does, if there is a lease to go by, until told to stop.
pub(super) async fn lead(
    client: Client,
    lease: Option<Lease>,
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
    // What keeps the lease from being asked for is said on the way to the server.
    let tell = |standing: Standing| {
        if let Standing::Waiting(_) = standing {
            standing.say(&lease);
        }
    };
    let observe = |observer| status.observe(observer);
    let candidate = Candidate::of_process().measured(status.metrics());
    match candidate
        .lead(client, &lease, stop, tell, observe, work)
        .await
    {
        None => Err(LeadError::Lost(format!(
            "{}/{}",
            lease.namespace, lease.name
        ))),
        Some(outcome) => outcome.unwrap_or(Ok(())),
    }
}
