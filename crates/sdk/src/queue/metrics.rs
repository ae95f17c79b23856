//! How is a queue doing? Under the names that client-go's queues use.

use std::time::Duration;

use crate::metrics::{Histogram, Lines};

/// What happened in a queue, and how it stands.
#[derive(Debug, Clone)]
pub struct Metrics {
    /// The queue's name.
    pub name: String,
    /// How many keys wait.
    pub depth: usize,
    /// How many were added; a key that waits already does not count.
    pub adds: u64,
    /// How many were added with a delay or through the rate limiter.
    pub retries: u64,
    /// How long keys waited.
    pub queued: Histogram,
    /// How long workers took.
    pub worked: Histogram,
    /// How long the work that is not done yet has taken, all together.
    pub unfinished: Duration,
    /// How long the longest of it has.
    pub longest_running: Duration,
}

impl Metrics {
    pub(super) fn new(name: String) -> Metrics {
        Metrics {
            name,
            depth: 0,
            adds: 0,
            retries: 0,
            queued: Histogram::default(),
            worked: Histogram::default(),
            unfinished: Duration::ZERO,
            longest_running: Duration::ZERO,
        }
    }

    /// In Prometheus' text form.
    pub fn to_text(&self) -> String {
        let mut lines = Lines::new(&self.name);
        lines.gauge("workqueue_depth", self.depth);
        lines.counter("workqueue_adds_total", self.adds);
        lines.counter("workqueue_retries_total", self.retries);
        lines.gauge(
            "workqueue_unfinished_work_seconds",
            self.unfinished.as_secs_f64(),
        );
        lines.gauge(
            "workqueue_longest_running_processor_seconds",
            self.longest_running.as_secs_f64(),
        );
        lines.histogram("workqueue_queue_duration_seconds", &self.queued);
        lines.histogram("workqueue_work_duration_seconds", &self.worked);
        lines.finish()
    }
}
