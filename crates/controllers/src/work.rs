//! How a loop works: keys from a queue, one reconcile after the other, and again later if it failed.

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

/// Why something could not be done now. It is tried again, later each time.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API refused.
    #[error(transparent)]
    Api(#[from] kube::Error),
    /// An object makes no sense.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

impl Error {
    /// Whether somebody else was faster; then there is nothing to be told.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Error::Api(error) if mizzen_sdk::write::is_conflict(error))
    }
}

/// What comes after a reconcile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    /// Nothing until something happens.
    Done,
    /// Another look, even if nothing happens.
    Again(Duration),
}

/// Lets the world be what an object says.
pub trait Reconcile: Send + Sync + 'static {
    /// Looks at everything that matters for `key`, and does what is missing.
    fn reconcile(&self, key: &Key) -> impl Future<Output = Result<After, Error>> + Send;
}

/// After so many failures in a row, those of a key are logged at warn.
const WARN_AFTER: usize = 5;

/// What runs for a loop once its caches are filled.
#[derive(Default)]
pub struct Work {
    crews: Vec<Crew>,
    tasks: Vec<BoxFuture<'static, ()>>,
    collectors: Vec<Box<dyn Collector>>,
}

/// The workers of one queue.
struct Crew {
    n_workers: usize,
    /// Starts one for the controller of this name.
    worker: Box<dyn Fn(&'static str) -> BoxFuture<'static, ()> + Send>,
}

impl Work {
    /// `n_workers` that take keys from `queue`.
    pub fn new<R: Reconcile>(queue: Queue<Key>, n_workers: usize, reconcile: Arc<R>) -> Work {
        let (failures, measured) = (Arc::new(FailureLog::after(Duration::ZERO)), queue.clone());
        let worker = Box::new(move |controller| {
            let (queue, reconcile) = (queue.clone(), reconcile.clone());
            worker(controller, queue, reconcile, failures.clone()).boxed()
        });
        Work {
            crews: vec![Crew { n_workers, worker }],
            ..Work::default()
        }
        .measured(measured)
    }

    /// Shows the metrics of a queue with those of the loop.
    pub(crate) fn measured(mut self, collector: impl Collector + 'static) -> Work {
        self.collectors.push(Box::new(collector));
        self
    }

    /// The metrics of its queues.
    pub(crate) fn take_collectors(&mut self) -> Vec<Box<dyn Collector>> {
        std::mem::take(&mut self.collectors)
    }

    /// All that runs for the controller of this name, with so many workers for each queue, or as many as the loop has usually.
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

    /// Something that runs beside.
    pub fn and(mut self, task: impl Future<Output = ()> + Send + 'static) -> Work {
        self.tasks.push(task.boxed());
        self
    }

    /// The work of two loops.
    pub fn with(mut self, other: Work) -> Work {
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
        // A loop that stumbles over one object goes on with the others.
        let result = AssertUnwindSafe(reconcile.reconcile(&key).instrument(span.clone()))
            .catch_unwind()
            .await
            .unwrap_or_else(|_| Err(Error::Other("panicked".into())));
        span.record("outcome", outcome_of(&result));
        let duration_us = began.elapsed().as_micros() as u64;
        span.in_scope(|| tracing::debug!(duration_us, "reconciled"));
        match result {
            Ok(after) => {
                queue.forget(&key);
                failures.recovered();
                if let After::Again(delay) = after {
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

/// The outcome of a reconcile, as spans have it.
fn outcome_of(result: &Result<After, Error>) -> &'static str {
    match result {
        Ok(After::Done) => "done",
        Ok(After::Again(_)) => "requeue",
        Err(error) if error.is_conflict() => "conflict",
        Err(_) => "error",
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
        async fn reconcile(&self, _: &Key) -> Result<After, Error> {
            Ok(After::Done)
        }
    }

    /// Fails each time, and counts how often.
    struct Failing(AtomicUsize);

    impl Reconcile for Failing {
        async fn reconcile(&self, _: &Key) -> Result<After, Error> {
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
        let work = Work::new(queue, 1, failing.clone());
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
    fn a_loop_has_as_many_workers_as_it_is_told() {
        let work = || {
            let queue = || Queue::new("test");
            let two = Work::new(queue(), 2, Arc::new(Nothing)).with(Work::new(
                queue(),
                1,
                Arc::new(Nothing),
            ));
            two.and(async {})
        };
        assert_eq!(work().into_tasks("test", None).len(), 4);
        assert_eq!(work().into_tasks("test", Some(5)).len(), 11);
    }
}
