//! What the parts that run alone have in common: of several, one works, until told to stop.

use std::cell::Cell;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use futures_util::FutureExt as _;
use kube::Client;
use mizzen_sdk::election::{Election, Options};
use tokio::runtime::Builder;

use crate::compose::stop_signal;
use crate::connect::ConnectError;
use crate::log;
use crate::pki::PkiError;

/// Where the leases are.
const NAMESPACE: &str = "kube-system";

/// Why a part does not work.
#[derive(Debug, thiserror::Error)]
pub enum LeadError {
    /// The server cannot be reached.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// Another took over, or the server could not be reached for too long.
    #[error("lost the lease {NAMESPACE}/{0}; stopping, so that no two work at once")]
    Lost(&'static str),
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
    /// The process could not be set up.
    #[error("cannot start: {0}")]
    Runtime(#[from] io::Error),
}

/// Runs a part.
pub fn run(part: impl Future<Output = Result<(), LeadError>>) -> Result<(), LeadError> {
    log::init();
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(part);
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome
}

/// Works as soon as nobody else does, if there is a lease to go by, until told to stop.
pub async fn lead(
    client: Client,
    lease: Option<&'static str>,
    what: &str,
    work: impl Future<Output = ()>,
) -> Result<(), LeadError> {
    let stop = stop_signal()?.shared();
    // Being told to stop ends the work, so that the lease is given back.
    let is_leading = Cell::new(false);
    let work = async {
        is_leading.set(true);
        tokio::select! { () = work => {} () = stop.clone() => {} }
    };
    let Some(lease) = lease else {
        work.await;
        return Ok(());
    };
    eprintln!("{what}: waiting for the lease {NAMESPACE}/{lease}");
    let options = Options::new(format!("{}_{}", host(), std::process::id()));
    let election = Election::new(client, NAMESPACE, lease, options).expect("the defaults hold together");
    let told_to_stop_waiting = async {
        stop.clone().await;
        if is_leading.get() {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        outcome = election.lead(work) => outcome.ok_or(LeadError::Lost(lease)),
        () = told_to_stop_waiting => Ok(()),
    }
}

fn host() -> String {
    nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok()).unwrap_or_default()
}
