//! One operation on many clients, as a closed loop: each client sends its next request after the last response.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::OwnedMutexGuard;
use tokio::task::JoinSet;

use super::client::{ApiCallError, ApiConnection};
use super::meter::ServerMeter;
use super::process::MeasureError;
use super::report::WorkloadOutcome;
use super::session::Session;

/// What each client repeats.
pub(crate) trait BenchOperation: Send + Sync + 'static {
    /// Runs the `turn`-th operation of all clients. Returns the size of the response in bytes.
    fn perform(
        &self,
        client: &mut LoadClient,
        turn: u64,
    ) -> impl Future<Output = Result<u64, ApiCallError>> + Send;
}

/// A client.
pub(crate) struct LoadClient {
    pub connection: OwnedMutexGuard<ApiConnection>,
    /// The continue token of the next page; empty for the first.
    pub cursor: String,
}

/// When to stop.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LoadBudget {
    Operations(u64),
    Time(Duration),
}

/// How an operation is repeated.
#[derive(Clone, Debug)]
pub(crate) struct LoadSpec {
    pub name: String,
    pub clients: usize,
    pub budget: LoadBudget,
    /// The range of turns, which are numbers of objects: from `first` up to, not including, `end`.
    pub first: u64,
    pub end: u64,
    /// The number of operations before the measurement.
    pub warm_up: u64,
}

impl LoadSpec {
    /// Any number of turns within the session's budget.
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
        let budget = LoadBudget::Operations(end - first);
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
            LoadBudget::Operations(operations) => Some(operations.min(self.end - self.first)),
            LoadBudget::Time(_) => None,
        }
    }
}

/// Why a workload failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WorkloadError {
    #[error(transparent)]
    ApiCall(#[from] ApiCallError),
    #[error(transparent)]
    Measure(#[from] MeasureError),
    #[error("{0}")]
    Wrong(String),
}

/// Runs `operation` as `load` says, and measures it.
pub(crate) async fn drive(
    session: &Session,
    load: LoadSpec,
    operation: impl BenchOperation,
) -> Result<WorkloadOutcome, WorkloadError> {
    let operation = Arc::new(operation);
    if load.warm_up > 0 {
        let budget = LoadBudget::Operations(load.warm_up);
        run_clients(
            session,
            &LoadSpec {
                budget,
                ..load.clone()
            },
            &operation,
        )
        .await?;
    }
    let meter = ServerMeter::start(&session.servers)?;
    let tally = run_clients(session, &load, &operation).await?;
    let reading = meter.stop()?;
    Ok(WorkloadOutcome::new(
        load.name,
        &reading,
        tally.latencies,
        tally.bytes,
    ))
}

#[derive(Default)]
struct LoadTally {
    latencies: Vec<u32>,
    bytes: u64,
}

/// Runs all clients until the budget is spent or one fails.
async fn run_clients(
    session: &Session,
    load: &LoadSpec,
    operation: &Arc<impl BenchOperation>,
) -> Result<LoadTally, WorkloadError> {
    let line = session.progress.line(&load.name, load.total());
    let turns = Arc::new(AtomicU64::new(load.first));
    let mut clients = JoinSet::new();
    for connection in session.connections.iter().take(load.clients) {
        let client = LoadClient {
            connection: connection.clone().lock_owned().await,
            cursor: String::new(),
        };
        clients.spawn(client.run(
            load.clone(),
            operation.clone(),
            turns.clone(),
            line.ticks.clone(),
        ));
    }
    let mut total = LoadTally::default();
    while let Some(tally) = clients.join_next().await {
        let tally = tally.expect("a client does not panic")?;
        total.latencies.extend(tally.latencies);
        total.bytes += tally.bytes;
    }
    Ok(total)
}

impl LoadClient {
    /// Repeats `operation` until the budget is spent.
    async fn run(
        mut self,
        load: LoadSpec,
        operation: Arc<impl BenchOperation>,
        turns: Arc<AtomicU64>,
        ticks: Arc<AtomicU64>,
    ) -> Result<LoadTally, ApiCallError> {
        let (n_turns, deadline) = match load.budget {
            LoadBudget::Operations(operations) => (operations, None),
            LoadBudget::Time(time) => (u64::MAX, Some(Instant::now() + time)),
        };
        let end = load.end.min(load.first.saturating_add(n_turns));
        let mut tally = LoadTally::default();
        let mut begin = Instant::now();
        while deadline.is_none_or(|deadline| begin < deadline) {
            let turn = turns.fetch_add(1, Ordering::Relaxed);
            if turn >= end {
                break;
            }
            tally.bytes += operation.perform(&mut self, turn).await?;
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
}
