//! The order of start and stop.

use std::io;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
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
use super::{Cluster, Endpoints, LeaderElection, Manager};
use crate::election::{Election, SetupError};

/// Why a manager ended.
///
/// ```
/// # use mizzen_apiserver::User;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
/// use mizzen_sdk::manager::{Manager, RunError, Task};
///
/// let mut manager = Manager::new(client);
/// manager.add_task(Task::new("backup", async |_stop| panic!("out of paper")));
/// let outcome = manager.run(std::future::pending()).await;
/// assert!(matches!(outcome, Err(RunError::Panic(task)) if task == "backup"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
    ///
    /// ```
    /// # use mizzen_apiserver::User;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
    /// use mizzen_sdk::manager::{Manager, RunError, Task};
    ///
    /// let mut manager = Manager::new(client);
    /// manager.add_task(Task::new("backup", async |_stop| Err("no disk".into())));
    /// let outcome = manager.run(std::future::pending()).await;
    /// assert_eq!(outcome.unwrap_err().to_string(), "task backup failed: no disk");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn run(mut self, stop: impl Future<Output = ()>) -> Result<(), RunError> {
        let election = match self.election.take() {
            Some(LeaderElection {
                namespace,
                name,
                options,
            }) => Some(Election::new(
                self.client.clone(),
                &namespace,
                &name,
                options,
            )?),
            None => None,
        };
        let tasks = std::mem::take(&mut self.tasks);
        let mut running = self.start(election.as_ref()).await?;
        let mut stop = pin!(stop);
        let outcome = match running.sync(stop.as_mut()).await {
            Ok(true) => running.work(election, tasks, stop).await,
            outcome => outcome.map(drop),
        };
        running.stop(outcome).await
    }

    /// Starts the endpoints, the webhooks and the informers.
    async fn start(self, election: Option<&Election>) -> Result<RunningManager, RunError> {
        let mut collectors = self.collectors;
        for cluster in &self.clusters {
            collectors.push(Arc::new(cluster.clone()));
        }
        if let Some(election) = election {
            collectors.push(Arc::new(election.observe()));
        }
        let state = Arc::new(EndpointState {
            live: self.live,
            ready: self.ready,
            collectors,
            is_ready: AtomicBool::new(false),
        });
        let (failures, failed) = mpsc::channel(1);
        let mut running = RunningManager {
            serving: TaskGroup::new(&failures),
            webhooks: TaskGroup::new(&failures),
            replica_tasks: TaskGroup::new(&failures),
            failures,
            failed,
            state: state.clone(),
            clusters: self.clusters,
            sync_timeout: self.sync_timeout,
            grace: self.grace,
            deadline: None,
            has_overrun: false,
        };
        let listener = match self.endpoints {
            Endpoints::Off => None,
            Endpoints::On(listener) => Some(listener),
            Endpoints::At(address) => {
                Some(TcpListener::bind(address).await.map_err(RunError::Listen)?)
            }
        };
        if let Some(listener) = listener {
            running
                .serving
                .spawn(Task::new("endpoints", |stop| async move {
                    state.serve(listener, stop).await;
                    Ok(())
                }));
        }
        for task in self.webhooks {
            running.webhooks.spawn(task);
        }
        for cluster in &running.clusters {
            cluster.informers().start();
        }
        Ok(running)
    }
}

/// A manager whose endpoints, webhooks and informers have started.
struct RunningManager {
    clusters: Vec<Cluster>,
    state: Arc<EndpointState>,
    serving: TaskGroup,
    webhooks: TaskGroup,
    replica_tasks: TaskGroup,
    failures: mpsc::Sender<RunError>,
    /// The first failure stops the manager; it is the one that is returned.
    failed: mpsc::Receiver<RunError>,
    sync_timeout: Duration,
    grace: Duration,
    /// The end of the grace period, once the stop has begun.
    deadline: Option<Instant>,
    /// Whether tasks did not end in time.
    has_overrun: bool,
}

impl RunningManager {
    /// Waits for the caches; false if the manager was stopped before.
    async fn sync(&mut self, stop: Pin<&mut impl Future<Output = ()>>) -> Result<bool, RunError> {
        let clusters = &self.clusters;
        let synced = async {
            for cluster in clusters {
                cluster.informers().wait_for_sync().await;
            }
        };
        tokio::select! {
            synced = timeout(self.sync_timeout, synced) => match synced {
                Ok(()) => Ok(true),
                Err(_) => Err(RunError::Sync(self.sync_timeout)),
            },
            () = stop => Ok(false),
            Some(error) = self.failed.recv() => Err(error),
        }
    }

    /// Runs the tasks until a stop, a failure or the loss of the lease, and then stops those of the
    /// leader.
    async fn work(
        &mut self,
        election: Option<Election>,
        tasks: Vec<Task>,
        stop: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<(), RunError> {
        self.state.is_ready.store(true, Ordering::Relaxed);
        let (leader_tasks, others): (Vec<_>, Vec<_>) =
            tasks.into_iter().partition(|task| task.needs_leader);
        for task in others {
            self.replica_tasks.spawn(task);
        }
        let observer = election.as_ref().map(Election::observe);
        let stop_leading = watch::Sender::new(false);
        let group = TaskGroup::with_stop(&self.failures, stop_leading.clone());
        let mut leading = pin!(lead(election, group, leader_tasks));
        let outcome = tokio::select! {
            () = stop => Ok(()),
            Some(error) = self.failed.recv() => Err(error),
            () = &mut leading => Err(RunError::LeaseLost),
        };
        let deadline = self.begin_stop();
        stop_leading.send_replace(true);
        // A candidate that does not lead has no tasks to wait for.
        let leads = observer.is_none_or(|observer| observer.state().leading);
        if leads && !matches!(outcome, Err(RunError::LeaseLost)) {
            self.has_overrun = timeout_at(deadline, leading).await.is_err();
        }
        outcome
    }

    /// The process is not ready any more, and the grace period begins.
    fn begin_stop(&mut self) -> Instant {
        self.state.is_ready.store(false, Ordering::Relaxed);
        *self
            .deadline
            .get_or_insert_with(|| Instant::now() + self.grace)
    }

    /// Stops what runs on every replica, in the reverse order of the start.
    async fn stop(mut self, outcome: Result<(), RunError>) -> Result<(), RunError> {
        let deadline = self.begin_stop();
        self.has_overrun |= !self.replica_tasks.stop(deadline).await;
        for cluster in &self.clusters {
            cluster.informers().stop();
        }
        self.has_overrun |= !self.webhooks.stop(deadline).await;
        self.has_overrun |= !self.serving.stop(deadline).await;
        outcome?;
        if let Ok(error) = self.failed.try_recv() {
            return Err(error);
        }
        match self.has_overrun {
            true => Err(RunError::Grace(self.grace)),
            false => Ok(()),
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
