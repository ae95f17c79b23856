//! Metrics of controllers, under controller-runtime's names (pkg/internal/controller/metrics).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mizzen_metrics::{Collector, Families, Timings};

use super::{Action, Error};
use crate::key::Key;
use crate::queue::Queue;

/// Upper bounds in seconds.
const BOUNDS: [f64; 40] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9,
    1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0,
    25.0, 30.0, 40.0, 50.0, 60.0,
];

/// The counters of the workers of one queue.
pub(super) struct ReconcileCounters {
    success: AtomicU64,
    requeue_after: AtomicU64,
    error: AtomicU64,
    terminal: AtomicU64,
    pub panics: AtomicU64,
    pub active: AtomicU64,
    pub max_concurrent: AtomicU64,
    times: Timings,
}

impl Default for ReconcileCounters {
    fn default() -> ReconcileCounters {
        ReconcileCounters {
            success: AtomicU64::new(0),
            requeue_after: AtomicU64::new(0),
            error: AtomicU64::new(0),
            terminal: AtomicU64::new(0),
            panics: AtomicU64::new(0),
            active: AtomicU64::new(0),
            max_concurrent: AtomicU64::new(0),
            times: Timings::new(&BOUNDS),
        }
    }
}

impl ReconcileCounters {
    /// Counts a reconcile.
    pub(super) fn observe(&self, outcome: &Result<Action, Error>, took: Duration) {
        let counter = match outcome {
            Ok(action) if action.delay().is_some() => &self.requeue_after,
            Ok(_) => &self.success,
            Err(error) => {
                if error.is_terminal() {
                    self.terminal.fetch_add(1, Ordering::Relaxed);
                }
                &self.error
            }
        };
        counter.fetch_add(1, Ordering::Relaxed);
        self.times.observe(took);
    }
}

/// The metrics of a controller and its work queues. It may outlive the controller.
///
/// ```
/// # use mizzen_apiserver::User;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use mizzen_sdk::Key;
/// use mizzen_sdk::controller::{Action, Context, Controller, typed};
/// use mizzen_sdk::metrics::Families;
///
/// let context = Context::new(client).named("config");
/// let controller = Controller::for_kind(&context, typed::<ConfigMap>())
///     .reconcile(|_: Key, _: Context| async { Ok(Action::done()) });
/// let text = Families::of(&[&controller.metrics()]).to_string();
/// assert!(text.contains(r#"controller_runtime_max_concurrent_reconciles{controller="config"} 1"#));
/// assert!(text.contains(r#"workqueue_depth{name="config"} 0"#));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct ControllerMetrics {
    pub(super) controller: Arc<str>,
    pub(super) pools: Vec<(Queue<Key>, Arc<ReconcileCounters>)>,
    pub(super) others: Vec<Arc<dyn Collector>>,
}

impl Collector for ControllerMetrics {
    fn collect(&self, families: &mut Families) {
        let labels: &[_] = &[("controller", &*self.controller)];
        for (queue, counters) in &self.pools {
            queue.collect(families);
            let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            let total = families.counter(
                "controller_runtime_reconcile_total",
                "Reconciles, by controller and result.",
            );
            for (result, counter) in [
                ("success", &counters.success),
                ("requeue_after", &counters.requeue_after),
                ("error", &counters.error),
            ] {
                let labels = [("controller", &*self.controller), ("result", result)];
                total.add(&labels, read(counter));
            }
            families
                .counter(
                    "controller_runtime_reconcile_errors_total",
                    "Reconciles that failed.",
                )
                .add(labels, read(&counters.error));
            families
                .counter(
                    "controller_runtime_terminal_reconcile_errors_total",
                    "Reconciles that failed and are not retried.",
                )
                .add(labels, read(&counters.terminal));
            families
                .counter(
                    "controller_runtime_reconcile_panics_total",
                    "Reconciles that panicked.",
                )
                .add(labels, read(&counters.panics));
            families
                .histogram(
                    "controller_runtime_reconcile_time_seconds",
                    "How long reconciles took.",
                )
                .add_histogram(labels, &counters.times.histogram());
            families
                .gauge(
                    "controller_runtime_max_concurrent_reconciles",
                    "The number of workers.",
                )
                .add(labels, read(&counters.max_concurrent));
            families
                .gauge(
                    "controller_runtime_active_workers",
                    "The number of workers that reconcile now.",
                )
                .add(labels, read(&counters.active));
        }
        for other in &self.others {
            other.collect(families);
        }
    }
}
