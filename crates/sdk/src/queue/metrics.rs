//! Metrics of work queues, under client-go's names (component-base/metrics/prometheus/workqueue).

use std::time::Duration;

use mizzen_metrics::{Collector, Families, Histogram, exponential};

/// Upper bounds in seconds.
const BOUNDS: [f64; 10] = exponential(10e-9, 10.0);

/// The metrics of a work queue.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?.block_on(async {
/// use mizzen_sdk::queue::Queue;
///
/// let queue = Queue::new("pods");
/// queue.add("default/web");
/// queue.add("default/web");
/// let metrics = queue.metrics();
/// assert_eq!((metrics.depth, metrics.adds), (1, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Metrics {
    /// The queue's name.
    pub name: String,
    /// The number of queued keys.
    pub depth: usize,
    /// The number of adds; a key that is queued already does not count.
    pub adds: u64,
    /// The number of adds with a delay or through the rate limiter.
    pub retries: u64,
    /// The seconds that keys were queued.
    pub queued: Histogram,
    /// The seconds that workers took.
    pub worked: Histogram,
    /// The total time of the work in progress.
    pub unfinished: Duration,
    /// The longest time of the work in progress.
    pub longest_running: Duration,
}

impl Metrics {
    pub(super) fn new(name: String) -> Metrics {
        Metrics {
            name,
            depth: 0,
            adds: 0,
            retries: 0,
            queued: Histogram::new(&BOUNDS),
            worked: Histogram::new(&BOUNDS),
            unfinished: Duration::ZERO,
            longest_running: Duration::ZERO,
        }
    }
}

impl Collector for Metrics {
    fn collect(&self, families: &mut Families) {
        let labels: &[_] = &[("name", &*self.name)];
        families
            .gauge("workqueue_depth", "Keys that wait in the queue.")
            .add(labels, self.depth);
        families
            .counter("workqueue_adds_total", "Keys that were added to the queue.")
            .add(labels, self.adds);
        families
            .counter(
                "workqueue_retries_total",
                "Keys that were added with a delay or after a failure.",
            )
            .add(labels, self.retries);
        families
            .gauge(
                "workqueue_unfinished_work_seconds",
                "How long the work in progress has taken, all workers together; it grows when workers hang.",
            )
            .add(labels, self.unfinished.as_secs_f64());
        families
            .gauge(
                "workqueue_longest_running_processor_seconds",
                "How long the longest work in progress has taken.",
            )
            .add(labels, self.longest_running.as_secs_f64());
        families
            .histogram(
                "workqueue_queue_duration_seconds",
                "How long keys waited in the queue.",
            )
            .add_histogram(labels, &self.queued);
        families
            .histogram(
                "workqueue_work_duration_seconds",
                "How long the work on a key took.",
            )
            .add_histogram(labels, &self.worked);
    }
}
