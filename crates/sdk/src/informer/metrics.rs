//! How is an informer doing? Under the names that client-go's informers have
//! (component-base/metrics/prometheus/clientgo/fifo), and some of ours.

use mizzen_metrics::{Collector, Families, Histogram};

use crate::cache::Version;
use crate::watch;

/// Upper bounds in seconds.
pub(super) const BOUNDS: [f64; 12] = [
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// What an informer did, and how it stands.
#[derive(Debug, Clone)]
pub struct Metrics {
    /// Its name; the path of what it follows, unless it was given another.
    pub name: String,
    /// The path of what it follows.
    pub path: String,
    /// How each of its reflectors does: one, or one per namespace.
    pub reflectors: Vec<watch::Metrics>,
    /// To how many objects something happened that the cache does not know yet.
    pub queued: usize,
    /// How many seconds it took to take batches into the cache.
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

impl Collector for Metrics {
    fn collect(&self, families: &mut Families) {
        let [group, version, resource] = group_version_resource(&self.path);
        let labels: &[_] = &[
            ("name", &*self.name),
            ("group", group),
            ("version", version),
            ("resource", resource),
        ];
        // Kubernetes: the 15 last digits, since a metric is a float.
        let resource_version = self.version.0 % 1_000_000_000_000_000;
        for (name, help, value) in [
            (
                "informer_queued_items",
                "Objects with changes that the cache does not have yet.",
                self.queued as u64,
            ),
            (
                "informer_store_resource_version",
                "The last 15 digits of the resource version of the cache.",
                resource_version,
            ),
            (
                "informer_objects",
                "Objects in the cache.",
                self.objects as u64,
            ),
            (
                "informer_handlers",
                "Event handlers of the informer.",
                self.waiting.len() as u64,
            ),
            (
                "informer_events_waiting",
                "Events that wait for event handlers.",
                self.waiting.iter().sum::<usize>() as u64,
            ),
        ] {
            families.gauge(name, help).add(labels, value);
        }
        families
            .counter(
                "informer_events_total",
                "Events that event handlers received.",
            )
            .add(labels, self.events);
        families
            .histogram(
                "informer_processing_latency_seconds",
                "How long it took to apply a batch of changes to the cache.",
            )
            .add_histogram(labels, &self.processing);
        self.reflectors
            .iter()
            .for_each(|reflector| reflector.collect(families));
    }
}

/// What is at a path of the API: `/api/v1/pods`, `/apis/apps/v1/namespaces/default/deployments`.
fn group_version_resource(path: &str) -> [&str; 3] {
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let resource = parts.last().copied().unwrap_or_default();
    match parts.as_slice() {
        ["api", version, ..] => ["", version, resource],
        ["apis", group, version, ..] => [group, version, resource],
        _ => ["", "", resource],
    }
}
