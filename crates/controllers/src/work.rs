//! How a loop works: keys from a queue, one reconcile after the other, and again later if it failed.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use mizzen_sdk::Key;
use mizzen_sdk::cache::DecodeError;
use mizzen_sdk::queue::Queue;

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

/// What runs for a loop once its caches are filled.
#[derive(Default)]
pub struct Work {
    crews: Vec<Crew>,
    tasks: Vec<BoxFuture<'static, ()>>,
}

/// The workers of one queue.
struct Crew {
    n_workers: usize,
    worker: Box<dyn Fn() -> BoxFuture<'static, ()> + Send>,
}

impl Work {
    /// `n_workers` that take keys from `queue`.
    pub fn new<R: Reconcile>(queue: Queue<Key>, n_workers: usize, reconcile: Arc<R>) -> Work {
        let worker = Box::new(move || worker(queue.clone(), reconcile.clone()).boxed());
        Work {
            crews: vec![Crew { n_workers, worker }],
            tasks: Vec::new(),
        }
    }

    /// All that runs, with so many workers for each queue, or as many as the loop has usually.
    pub(crate) fn into_tasks(self, n_workers: Option<usize>) -> Vec<BoxFuture<'static, ()>> {
        let workers = self.crews.iter().flat_map(|crew| {
            let n_workers = n_workers.unwrap_or(crew.n_workers);
            (0..n_workers).map(|_| (crew.worker)())
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
        self
    }
}

async fn worker<R: Reconcile>(queue: Queue<Key>, reconcile: Arc<R>) {
    while let Some(key) = queue.get().await {
        // A loop that stumbles over one object goes on with the others.
        let outcome = AssertUnwindSafe(reconcile.reconcile(&key))
            .catch_unwind()
            .await;
        match outcome.unwrap_or_else(|_| Err(Error::Other("panicked".into()))) {
            Ok(after) => {
                queue.forget(&key);
                if let After::Again(delay) = after {
                    queue.add_after(key.clone(), delay);
                }
            }
            Err(error) => {
                if !error.is_conflict() {
                    tracing::debug!(queue = queue.metrics().name, %key, %error, "will try again");
                }
                queue.add_rate_limited(key.clone());
            }
        }
        queue.done(&key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nothing;

    impl Reconcile for Nothing {
        async fn reconcile(&self, _: &Key) -> Result<After, Error> {
            Ok(After::Done)
        }
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
        assert_eq!(work().into_tasks(None).len(), 4);
        assert_eq!(work().into_tasks(Some(5)).len(), 11);
    }
}
