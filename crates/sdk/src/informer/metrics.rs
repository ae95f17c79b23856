//! How is an informer doing? Under the names that client-go's informers use.

use crate::cache::Version;
use crate::metrics::{self, Histogram, Lines};
use crate::watch;

/// What an informer did, and how it stands.
#[derive(Debug, Clone)]
pub struct Metrics {
    /// What it follows.
    pub name: String,
    /// How each of its reflectors does: one, or one per namespace.
    pub reflectors: Vec<watch::Metrics>,
    /// To how many objects something happened that the cache does not know yet.
    pub queued: usize,
    /// How long it took to take batches into the cache.
    pub processing: Histogram,
    /// How many objects the cache has.
    pub objects: usize,
    /// Up to when the cache knows what happened.
    pub version: Version,
    /// How many events handlers have been told of, each counted once per handler.
    pub events: u64,
    /// How many events wait for each handler.
    pub waiting: Vec<usize>,
}

impl Metrics {
    /// In Prometheus' text form.
    pub fn to_text(&self) -> String {
        let mut lines = Lines::new(&self.name);
        lines.gauge("informer_queued_items", self.queued);
        lines.histogram("informer_processing_latency_seconds", &self.processing);
        // Kubernetes: the 15 last digits, since a metric is a float (component-base, clientgo/fifo).
        lines.gauge(
            "informer_store_resource_version",
            self.version.0 % 1_000_000_000_000_000,
        );
        lines.gauge("informer_objects", self.objects);
        lines.gauge("informer_handlers", self.waiting.len());
        lines.gauge(
            "informer_events_waiting",
            self.waiting.iter().sum::<usize>(),
        );
        lines.counter("informer_events_total", self.events);
        let reflectors = self.reflectors.iter().map(watch::Metrics::to_text);
        metrics::join(reflectors.chain([lines.finish()]))
    }
}
