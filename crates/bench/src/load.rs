//! One operation on many clients: closed loop, each client asks again when it was answered.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::OwnedMutexGuard;
use tokio::task::JoinSet;

use super::client::{CallError, Connection};
use super::meter::Meter;
use super::process::MeasureError;
use super::report::Outcome;
use super::session::Session;

/// What one client does again and again.
pub(crate) trait Operation: Send + Sync + 'static {
    /// Does it for the `turn`-th time (over all clients). Answers how many bytes came back.
    fn perform(
        &self,
        worker: &mut Worker,
        turn: u64,
    ) -> impl Future<Output = Result<u64, CallError>> + Send;
}

/// A client at work.
pub(crate) struct Worker {
    pub connection: OwnedMutexGuard<Connection>,
    /// Where this client's walk through the pages of a list is; empty at the beginning.
    pub cursor: String,
}

/// When to stop.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Budget {
    Operations(u64),
    Time(Duration),
}

/// How an operation is to be repeated.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub name: String,
    pub clients: usize,
    pub budget: Budget,
    /// Turns begin here and end, at the latest, before `end`: the numbers of the objects that may be touched.
    pub first: u64,
    pub end: u64,
    /// So many operations before the clock starts.
    pub warm_up: u64,
}

impl Load {
    /// Within the session's budget, any number of turns.
    pub(super) fn new(session: &Session, name: impl Into<String>, clients: usize) -> Self {
        let budget = session.budget();
        Self {
            name: name.into(),
            clients,
            budget,
            first: 0,
            end: u64::MAX,
            warm_up: 0,
        }
    }

    /// Exactly these turns.
    pub(super) fn range(name: impl Into<String>, clients: usize, first: u64, end: u64) -> Self {
        let budget = Budget::Operations(end - first);
        Self {
            name: name.into(),
            clients,
            budget,
            first,
            end,
            warm_up: 0,
        }
    }

    fn total(&self) -> Option<u64> {
        match self.budget {
            Budget::Operations(operations) => Some(operations.min(self.end - self.first)),
            Budget::Time(_) => None,
        }
    }
}

/// Why a workload has no outcome.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WorkloadError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error(transparent)]
    Measure(#[from] MeasureError),
    #[error("{0}")]
    Wrong(String),
}

/// Puts `operation` on the server as `load` says, and measures.
pub(crate) async fn drive(
    session: &Session,
    load: Load,
    operation: impl Operation,
) -> Result<Outcome, WorkloadError> {
    let operation = Arc::new(operation);
    if load.warm_up > 0 {
        let budget = Budget::Operations(load.warm_up);
        volley(
            session,
            &Load {
                budget,
                ..load.clone()
            },
            &operation,
        )
        .await?;
    }
    let meter = Meter::start(&session.servers)?;
    let tally = volley(session, &load, &operation).await?;
    let reading = meter.stop()?;
    Ok(Outcome::new(
        load.name,
        &reading,
        tally.latencies,
        tally.bytes,
    ))
}

#[derive(Default)]
struct Tally {
    latencies: Vec<u32>,
    bytes: u64,
}

/// All clients at once. The first error ends it; dropping it ends it too.
async fn volley(
    session: &Session,
    load: &Load,
    operation: &Arc<impl Operation>,
) -> Result<Tally, WorkloadError> {
    let line = session.progress.line(&load.name, load.total());
    let turns = Arc::new(AtomicU64::new(load.first));
    let mut clients = JoinSet::new();
    for connection in session.connections.iter().take(load.clients) {
        let worker = Worker {
            connection: connection.clone().lock_owned().await,
            cursor: String::new(),
        };
        clients.spawn(work(
            worker,
            load.clone(),
            operation.clone(),
            turns.clone(),
            line.ticks.clone(),
        ));
    }
    let mut total = Tally::default();
    while let Some(tally) = clients.join_next().await {
        let tally = tally.expect("a client does not panic")?;
        total.latencies.extend(tally.latencies);
        total.bytes += tally.bytes;
    }
    Ok(total)
}

async fn work(
    mut worker: Worker,
    load: Load,
    operation: Arc<impl Operation>,
    turns: Arc<AtomicU64>,
    ticks: Arc<AtomicU64>,
) -> Result<Tally, CallError> {
    let (n_turns, deadline) = match load.budget {
        Budget::Operations(operations) => (operations, None),
        Budget::Time(time) => (u64::MAX, Some(Instant::now() + time)),
    };
    let end = load.end.min(load.first.saturating_add(n_turns));
    let mut tally = Tally::default();
    let mut begin = Instant::now();
    while deadline.is_none_or(|deadline| begin < deadline) {
        let turn = turns.fetch_add(1, Ordering::Relaxed);
        if turn >= end {
            break;
        }
        tally.bytes += operation.perform(&mut worker, turn).await?;
        let now = Instant::now();
        tally.latencies.push(
            now.duration_since(begin)
                .as_micros()
                .try_into()
                .unwrap_or(u32::MAX),
        );
        ticks.fetch_add(1, Ordering::Relaxed);
        begin = now;
    }
    Ok(tally)
}
