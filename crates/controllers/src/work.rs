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
    pub(crate) tasks: Vec<BoxFuture<'static, ()>>,
}

impl Work {
    /// `n_workers` that take keys from `queue`.
    pub fn new<R: Reconcile>(queue: Queue<Key>, n_workers: usize, reconcile: Arc<R>) -> Work {
        let worker = || worker(queue.clone(), reconcile.clone()).boxed();
        Work { tasks: (0..n_workers).map(|_| worker()).collect() }
    }

    /// Something that runs beside.
    pub fn and(mut self, task: impl Future<Output = ()> + Send + 'static) -> Work {
        self.tasks.push(task.boxed());
        self
    }

    /// The work of two loops.
    pub fn with(mut self, other: Work) -> Work {
        self.tasks.extend(other.tasks);
        self
    }
}

async fn worker<R: Reconcile>(queue: Queue<Key>, reconcile: Arc<R>) {
    while let Some(key) = queue.get().await {
        // A loop that stumbles over one object goes on with the others.
        let outcome = AssertUnwindSafe(reconcile.reconcile(&key)).catch_unwind().await;
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
