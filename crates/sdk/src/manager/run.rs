//! The order of start and stop.

use std::io;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use super::endpoints::EndpointState;
use super::task::{Stop, Task, TaskError};
use super::{Endpoints, LeaderElection, Manager};
use crate::election::{Election, SetupError};

/// Why a manager ended.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The port of the endpoints, or the signals, cannot be listened on.
    #[error("cannot listen: {0}")]
    Listen(#[source] io::Error),
    /// The leader election is misconfigured.
    #[error(transparent)]
    Election(#[from] SetupError),
    /// The caches did not sync in time: a kind may not be served, or not be readable.
    #[error("the caches did not sync within {0:?}")]
    Sync(Duration),
    /// A task failed.
    #[error("task {name} failed: {source}")]
    Task {
        /// Its name.
        name: String,
        /// Why.
        source: TaskError,
    },
    /// A task panicked.
    #[error("task {0} panicked")]
    Panic(String),
    /// Another replica may lead now.
    #[error("the lease was lost")]
    LeaseLost,
    /// Tasks did not end in time.
    #[error("tasks did not end within {0:?}")]
    Grace(Duration),
}

impl Manager {
    /// Runs until `stop` resolves, a task fails or the lease is lost; then stops everything in
    /// reverse order. If the future is dropped, everything ends at once.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<(), RunError> {
        let Manager {
            clusters,
            client,
            tasks,
            webhooks,
            election,
            endpoints,
            live,
            ready,
            mut collectors,
            grace,
            sync_timeout,
            read_your_writes: _,
        } = self;
        let election = match election {
            Some(LeaderElection {
                namespace,
                name,
                options,
            }) => Some(Election::new(client, &namespace, &name, options)?),
            None => None,
        };
        // The other clusters have informers of the same names.
        collectors.push(Arc::new(clusters[0].informers().clone()));
        if let Some(election) = &election {
            collectors.push(Arc::new(election.observe()));
        }
        let state = Arc::new(EndpointState {
            live,
            ready,
            collectors,
            is_ready: AtomicBool::new(false),
        });
        let observer = election.as_ref().map(Election::observe);
        // The first failure stops the manager; it is the one that is returned.
        let (failures, mut failed) = mpsc::channel(1);
        let mut stop = pin!(stop);

        let mut serving = TaskGroup::new(&failures);
        let listener = match endpoints {
            Endpoints::Off => None,
            Endpoints::On(listener) => Some(listener),
            Endpoints::At(address) => {
                Some(TcpListener::bind(address).await.map_err(RunError::Listen)?)
            }
        };
        if let Some(listener) = listener {
            let state = state.clone();
            serving.spawn(Task::new("endpoints", |stop| async move {
                state.serve(listener, stop).await;
                Ok(())
            }));
        }
        let mut webhook_tasks = TaskGroup::new(&failures);
        webhooks
            .into_iter()
            .for_each(|task| webhook_tasks.spawn(task));
        clusters
            .iter()
            .for_each(|cluster| cluster.informers().start());
        let synced = async {
            for cluster in &clusters {
                cluster.informers().wait_for_sync().await;
            }
        };
        let synced = tokio::select! {
            synced = timeout(sync_timeout, synced) => match synced {
                Ok(()) => Ok(true),
                Err(_) => Err(RunError::Sync(sync_timeout)),
            },
            () = &mut stop => Ok(false),
            Some(error) = failed.recv() => Err(error),
        };

        let mut replica_tasks = TaskGroup::new(&failures);
        let mut ended_in_time = true;
        let (outcome, deadline) = match synced {
            Ok(true) => {
                state.is_ready.store(true, Ordering::Relaxed);
                let (leader_tasks, others): (Vec<_>, Vec<_>) =
                    tasks.into_iter().partition(|task| task.needs_leader);
                others
                    .into_iter()
                    .for_each(|task| replica_tasks.spawn(task));
                let stop_leading = watch::Sender::new(false);
                let group = TaskGroup::with_stop(&failures, stop_leading.clone());
                let mut leading = pin!(lead(election, group, leader_tasks));
                let outcome = tokio::select! {
                    () = &mut stop => Ok(()),
                    Some(error) = failed.recv() => Err(error),
                    () = &mut leading => Err(RunError::LeaseLost),
                };
                state.is_ready.store(false, Ordering::Relaxed);
                let deadline = Instant::now() + grace;
                stop_leading.send_replace(true);
                // A candidate that does not lead has no tasks to wait for.
                let leads = observer.is_none_or(|observer| observer.state().leading);
                if leads && !matches!(outcome, Err(RunError::LeaseLost)) {
                    ended_in_time = timeout_at(deadline, leading).await.is_ok();
                }
                (outcome, deadline)
            }
            synced => (synced.map(drop), Instant::now() + grace),
        };
        ended_in_time &= replica_tasks.stop(deadline).await;
        clusters
            .iter()
            .for_each(|cluster| cluster.informers().stop());
        ended_in_time &= webhook_tasks.stop(deadline).await;
        ended_in_time &= serving.stop(deadline).await;
        outcome?;
        if let Ok(error) = failed.try_recv() {
            return Err(error);
        }
        match ended_in_time {
            true => Ok(()),
            false => Err(RunError::Grace(grace)),
        }
    }
}

/// Runs the tasks of the leader while this replica leads. Returns when they have ended after a stop,
/// or when the lease was lost.
async fn lead(election: Option<Election>, mut group: TaskGroup, tasks: Vec<Task>) {
    let stop = Stop(group.stop.subscribe());
    let work = async move {
        tasks.into_iter().for_each(|task| group.spawn(task));
        stop.requested().await;
        group.drain().await;
    };
    match election {
        Some(election) => {
            election.lead(work).await;
        }
        None => work.await,
    }
}

/// Tasks that are stopped together. They are aborted when it is dropped.
struct TaskGroup {
    tasks: JoinSet<()>,
    stop: watch::Sender<bool>,
    failures: mpsc::Sender<RunError>,
}

impl TaskGroup {
    fn new(failures: &mpsc::Sender<RunError>) -> TaskGroup {
        TaskGroup::with_stop(failures, watch::Sender::new(false))
    }

    fn with_stop(failures: &mpsc::Sender<RunError>, stop: watch::Sender<bool>) -> TaskGroup {
        TaskGroup {
            tasks: JoinSet::new(),
            stop,
            failures: failures.clone(),
        }
    }

    fn spawn(&mut self, Task { name, run, .. }: Task) {
        let (stop, failures) = (Stop(self.stop.subscribe()), self.failures.clone());
        self.tasks.spawn(async move {
            // The call itself may panic, not only its future.
            let outcome = AssertUnwindSafe(async { run(stop).await })
                .catch_unwind()
                .await;
            let error = match outcome {
                Ok(Ok(())) => return,
                Ok(Err(source)) => RunError::Task { name, source },
                Err(_) => RunError::Panic(name),
            };
            tracing::error!(%error, "the manager stops");
            let _ = failures.try_send(error);
        });
    }

    /// Waits until all tasks have ended.
    async fn drain(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }

    /// Stops all tasks; false if they have not ended in time.
    async fn stop(&mut self, deadline: Instant) -> bool {
        self.stop.send_replace(true);
        timeout_at(deadline, self.drain()).await.is_ok()
    }
}
