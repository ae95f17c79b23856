//! Workers: take keys from a queue, reconcile, and requeue with back-off after failures.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use mizzen_sdk::Key;
use mizzen_sdk::cache::DecodeError;
use mizzen_sdk::failure_log::FailureLog;
use mizzen_sdk::metrics::Collector;
use mizzen_sdk::queue::Queue;
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::common::api_errors::message;

/// Why a reconcile failed. The key is requeued with back-off.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API request failed.
    #[error(transparent)]
    Api(#[from] kube::Error),
    /// An object could not be decoded.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    #[error("{0}")]
    /// Any other reason.
    Other(String),
}

impl Error {
    /// The server's message if the API request failed, otherwise the error itself.
    pub(crate) fn message(&self) -> String {
        match self {
            Error::Api(error) => message(error),
            error => error.to_string(),
        }
    }

    /// Whether the write conflicted; then nothing needs to be reported.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Error::Api(error) if mizzen_sdk::write::is_conflict(error))
    }
}

/// What follows a reconcile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Nothing until an event enqueues the key.
    AwaitChange,
    /// The key is requeued after this time.
    Requeue(Duration),
}

/// Reconciles objects.
pub trait Reconcile: Send + Sync + 'static {
    /// Brings the cluster closer to what the object of `key` says.
    fn reconcile(&self, key: &Key) -> impl Future<Output = Result<Action, Error>> + Send;
}

/// After so many consecutive failures of a key, they are logged at warn.
const WARN_AFTER: usize = 5;

/// The workers and tasks of a controller, which run once its informers have synced.
#[derive(Default)]
pub struct Controller {
    crews: Vec<WorkerPool>,
    tasks: Vec<BoxFuture<'static, ()>>,
    collectors: Vec<Box<dyn Collector>>,
}

/// The workers of one queue.
struct WorkerPool {
    n_workers: usize,
    /// Starts a worker of the controller with this name.
    worker: Box<dyn Fn(&'static str) -> BoxFuture<'static, ()> + Send>,
}

impl Controller {
    /// A controller with `n_workers` workers for `queue`.
    pub fn new<R: Reconcile>(queue: Queue<Key>, n_workers: usize, reconcile: Arc<R>) -> Controller {
        let (failures, measured) = (Arc::new(FailureLog::after(Duration::ZERO)), queue.clone());
        let worker = Box::new(move |controller| {
            let (queue, reconcile) = (queue.clone(), reconcile.clone());
            worker(controller, queue, reconcile, failures.clone()).boxed()
        });
        Controller {
            crews: vec![WorkerPool { n_workers, worker }],
            ..Controller::default()
        }
        .with_metrics(measured)
    }

    /// Adds the metrics of a queue.
    pub(crate) fn with_metrics(mut self, collector: impl Collector + 'static) -> Controller {
        self.collectors.push(Box::new(collector));
        self
    }

    pub(crate) fn take_collectors(&mut self) -> Vec<Box<dyn Collector>> {
        std::mem::take(&mut self.collectors)
    }

    /// All tasks of the controller with this name. `n_workers` overrides the number of workers of
    /// each queue.
    pub(crate) fn into_tasks(
        self,
        controller: &'static str,
        n_workers: Option<usize>,
    ) -> Vec<BoxFuture<'static, ()>> {
        let workers = self.crews.iter().flat_map(|crew| {
            let n_workers = n_workers.unwrap_or(crew.n_workers);
            (0..n_workers).map(|_| (crew.worker)(controller))
        });
        workers.chain(self.tasks).collect()
    }

    /// Adds a background task.
    pub fn with_task(mut self, task: impl Future<Output = ()> + Send + 'static) -> Controller {
        self.tasks.push(task.boxed());
        self
    }

    /// Adds the workers and tasks of another controller.
    pub fn merge(mut self, other: Controller) -> Controller {
        self.crews.extend(other.crews);
        self.tasks.extend(other.tasks);
        self.collectors.extend(other.collectors);
        self
    }
}

async fn worker<R: Reconcile>(
    controller: &'static str,
    queue: Queue<Key>,
    reconcile: Arc<R>,
    failures: Arc<FailureLog>,
) {
    while let Some(key) = queue.get().await {
        let began = Instant::now();
        let outcome = tracing::field::Empty;
        let span = tracing::debug_span!("reconcile", controller, %key, outcome);
        // A panic in one reconcile must not stop the worker.
        let result = AssertUnwindSafe(reconcile.reconcile(&key).instrument(span.clone()))
            .catch_unwind()
            .await
            .unwrap_or_else(|_| Err(Error::Other("panicked".into())));
        let outcome = match &result {
            Ok(Action::AwaitChange) => "done",
            Ok(Action::Requeue(_)) => "requeue",
            Err(error) if error.is_conflict() => "conflict",
            Err(_) => "error",
        };
        span.record("outcome", outcome);
        let duration_us = began.elapsed().as_micros() as u64;
        span.in_scope(|| tracing::debug!(duration_us, "reconciled"));
        match result {
            Ok(after) => {
                queue.forget(&key);
                failures.recovered();
                if let Action::Requeue(delay) = after {
                    queue.add_after(key.clone(), delay);
                }
            }
            Err(error) => {
                let n_failures = queue.num_requeues(&key) + 1;
                let is_lasting = n_failures >= WARN_AFTER && !error.is_conflict();
                let unlogged = if is_lasting { failures.failed() } else { None };
                match unlogged {
                    Some(unlogged) => {
                        tracing::warn!(controller, %key, %error, n_failures, unlogged, "reconcile keeps failing");
                    }
                    None => {
                        tracing::debug!(controller, %key, %error, n_failures, "reconcile failed")
                    }
                }
                queue.add_rate_limited(key.clone());
            }
        }
        queue.done(&key);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Level, Metadata, Subscriber};

    use super::*;

    struct Nothing;

    impl Reconcile for Nothing {
        async fn reconcile(&self, _: &Key) -> Result<Action, Error> {
            Ok(Action::AwaitChange)
        }
    }

    /// Fails each time, and counts how often.
    struct Failing(AtomicUsize);

    impl Reconcile for Failing {
        async fn reconcile(&self, _: &Key) -> Result<Action, Error> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Err(Error::Other("no".into()))
        }
    }

    /// Counts warnings.
    struct Warnings(Arc<AtomicUsize>);

    impl Subscriber for Warnings {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            *metadata.level() <= Level::WARN
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn event(&self, _: &Event<'_>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }

        fn enter(&self, _: &Id) {}

        fn exit(&self, _: &Id) {}
    }

    #[tokio::test(start_paused = true)]
    async fn reconciles_that_keep_failing_are_logged_at_warn_with_growing_pauses() {
        let (failing, warnings) = (Arc::new(Failing(AtomicUsize::new(0))), Arc::default());
        let _guard = tracing::subscriber::set_default(Warnings(Arc::clone(&warnings)));
        let queue = Queue::new("test");
        (0..10).for_each(|n| queue.add(Key::new("default", format!("n{n}"))));
        let work = Controller::new(queue, 1, failing.clone());
        for task in work.into_tasks("test", None) {
            tokio::spawn(task);
        }
        let count = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
        tokio::time::sleep(Duration::from_secs(9)).await;
        assert!(count(&failing.0) > 50, "{}", count(&failing.0));
        assert_eq!(count(&warnings), 1, "one line for all keys");
        tokio::time::sleep(Duration::from_secs(600)).await;
        let n = count(&warnings);
        assert!((4..=8).contains(&n), "{n} lines in ten minutes");
    }

    #[test]
    fn the_number_of_workers_can_be_overridden() {
        let work = || {
            let queue = || Queue::new("test");
            let two = Controller::new(queue(), 2, Arc::new(Nothing)).merge(Controller::new(
                queue(),
                1,
                Arc::new(Nothing),
            ));
            two.with_task(async {})
        };
        assert_eq!(work().into_tasks("test", None).len(), 4);
        assert_eq!(work().into_tasks("test", Some(5)).len(), 11);
    }
}
