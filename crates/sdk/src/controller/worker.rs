//! Workers: take keys from a queue, reconcile, and requeue with back-off after failures.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::FutureExt as _;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::Instrument as _;

use super::metrics::ReconcileCounters;
use super::{Action, Context, Error, Reconcile};
use crate::failure_log::FailureLog;
use crate::key::Key;
use crate::queue::Queue;

/// After so many consecutive failures of a key, they are logged at warn.
const WARN_AFTER: usize = 5;

/// Records an event about a failure.
pub(super) type RecordFailure = Arc<dyn Fn(&Key, &Error) + Send + Sync>;

/// What the workers of one queue share.
pub(super) struct Worker<R> {
    pub context: Context,
    pub queue: Queue<Key>,
    pub reconciler: R,
    pub counters: Arc<ReconcileCounters>,
    pub failures: FailureLog,
    pub record_failure: Option<RecordFailure>,
}

impl<R: Reconcile> Worker<R> {
    /// Works until the queue is shut down and empty, or the controller stops: then the key at hand
    /// is finished, and no other is started.
    pub(super) async fn run(&self, controller: &str, mut stopping: watch::Receiver<bool>) {
        loop {
            let key = tokio::select! {
                biased;
                _ = stopping.wait_for(|is_stopping| *is_stopping) => return,
                key = self.queue.get() => key,
            };
            let Some(key) = key else { return };
            let result = self.reconcile(controller, &key).await;
            match result {
                Ok(action) => {
                    self.queue.forget(&key);
                    self.failures.recovered();
                    if let Some(delay) = action.delay() {
                        self.queue.add_after(key.clone(), delay);
                    }
                }
                Err(error) => self.handle_failure(controller, &key, &error),
            }
            self.queue.done(&key);
        }
    }

    async fn reconcile(&self, controller: &str, key: &Key) -> Result<Action, Error> {
        let began = Instant::now();
        let outcome = tracing::field::Empty;
        let span = tracing::debug_span!("reconcile", controller, %key, outcome);
        let reconcile = self.reconciler.reconcile(key, &self.context);
        self.counters.active.fetch_add(1, Ordering::Relaxed);
        // A panic in one reconcile must not stop the worker.
        let result = AssertUnwindSafe(reconcile.instrument(span.clone()))
            .catch_unwind()
            .await
            .unwrap_or_else(|panic| {
                self.counters.panics.fetch_add(1, Ordering::Relaxed);
                let text = panic.downcast_ref::<&str>().map(|text| text.to_string());
                let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
                let text = text.unwrap_or_default();
                tracing::error!(controller, %key, panic = text, "reconcile panicked");
                Err(Error::other(format!("panicked: {text}")))
            });
        self.counters.active.fetch_sub(1, Ordering::Relaxed);
        self.counters.observe(&result, began.elapsed());
        let outcome = match &result {
            Ok(action) if action.delay().is_some() => "requeue",
            Ok(_) => "done",
            Err(error) if error.is_conflict() => "conflict",
            Err(_) => "error",
        };
        span.record("outcome", outcome);
        let duration_us = began.elapsed().as_micros() as u64;
        span.in_scope(|| tracing::debug!(duration_us, "reconciled"));
        result
    }

    fn handle_failure(&self, controller: &str, key: &Key, error: &Error) {
        if let Some(record_failure) = &self.record_failure
            && !error.is_conflict()
        {
            record_failure(key, error);
        }
        let n_failures = self.queue.num_requeues(key) + 1;
        let is_lasting = (n_failures >= WARN_AFTER || error.is_terminal()) && !error.is_conflict();
        let unlogged = if is_lasting {
            self.failures.failed()
        } else {
            None
        };
        match unlogged {
            Some(unlogged) => {
                tracing::warn!(controller, %key, %error, n_failures, unlogged, "reconcile keeps failing");
            }
            None => tracing::debug!(controller, %key, %error, n_failures, "reconcile failed"),
        }
        if error.is_terminal() {
            self.queue.forget(key);
        } else {
            self.queue.add_rate_limited(key.clone());
        }
    }
}
