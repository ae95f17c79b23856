//! Tasks of a manager.

use std::error::Error;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::watch;

/// Why a task failed. The manager stops and returns it.
///
/// ```
/// use mizzen_sdk::manager::{Task, TaskError};
///
/// async fn backup() -> Result<(), TaskError> {
///     std::fs::metadata("/no/such/disk")?; // any error
///     Ok(())
/// }
///
/// let task = Task::new("backup", async |_stop| backup().await);
/// # drop(task);
/// ```
pub type TaskError = Box<dyn Error + Send + Sync>;

/// A task of a manager. It runs until it ends by itself or [`Stop`] is requested. By default it runs
/// on the leader alone.
///
/// ```
/// use mizzen_sdk::manager::{Stop, Task};
///
/// let task = Task::new("collector", async |stop: Stop| {
///     stop.requested().await;
///     Ok(())
/// });
/// let task = task.on_every_replica();
/// ```
pub struct Task {
    pub(super) name: String,
    pub(super) needs_leader: bool,
    pub(super) run: Box<dyn FnOnce(Stop) -> BoxFuture<'static, Result<(), TaskError>> + Send>,
}

impl Task {
    /// A task of the leader.
    pub fn new<F, R>(name: impl Into<String>, run: F) -> Task
    where
        F: FnOnce(Stop) -> R + Send + 'static,
        R: Future<Output = Result<(), TaskError>> + Send + 'static,
    {
        Task {
            name: name.into(),
            needs_leader: true,
            run: Box::new(move |stop| run(stop).boxed()),
        }
    }

    /// It runs on every replica, whether that leads or not.
    pub fn on_every_replica(mut self) -> Task {
        self.needs_leader = false;
        self
    }
}

/// Tells a task to stop. Cheap to clone.
///
/// ```
/// use std::time::Duration;
/// use mizzen_sdk::manager::{Stop, Task};
/// use tokio::time::sleep;
///
/// let task = Task::new("collector", async |stop: Stop| {
///     while !stop.is_requested() {
///         tokio::select! {
///             () = sleep(Duration::from_secs(60)) => println!("collecting"),
///             () = stop.requested() => {}
///         }
///     }
///     Ok(())
/// });
/// # drop(task);
/// ```
#[derive(Debug, Clone)]
pub struct Stop(pub(super) watch::Receiver<bool>);

impl Stop {
    /// Waits until the task should stop.
    pub fn requested(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut stop = self.0.clone();
        async move {
            // A manager that is gone has stopped, too.
            let _ = stop.wait_for(|stop| *stop).await;
        }
    }

    /// Whether the task should stop.
    pub fn is_requested(&self) -> bool {
        *self.0.borrow()
    }
}
