//! Metrics of informers, under client-go's names (component-base/metrics/prometheus/clientgo/fifo),
//! and some of ours.

use mizzen_metrics::{Collector, Families, Histogram};

use crate::cache::Version;
use crate::watch;

/// Upper bounds in seconds.
pub(super) const BOUNDS: [f64; 12] = [
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// The metrics of an informer.
///
/// ```
/// # use mizzen_apiserver::User;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
/// use mizzen_sdk::Object;
/// use mizzen_sdk::informer::Informer;
/// use mizzen_sdk::resource::NAMESPACES;
/// use mizzen_sdk::watch::ListWatch;
///
/// let namespaces: Informer<Object> = Informer::new(ListWatch::at(client, NAMESPACES.path("")));
/// namespaces.start();
/// namespaces.wait_for_sync().await;
/// let metrics = namespaces.metrics();
/// assert_eq!((&*metrics.name, metrics.objects), ("/api/v1/namespaces", namespaces.store().len()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Metrics {
    /// Its name; by default that of its resource.
    pub name: String,
    /// The path of its resource.
    pub path: String,
    /// The metrics of its reflectors: one, or one per namespace.
    pub reflectors: Vec<watch::Metrics>,
    /// The number of objects with changes that the cache does not have yet.
    pub queued: usize,
    /// The seconds that batches took to process.
    pub processing: Histogram,
    /// The number of objects in the cache.
    pub objects: usize,
    /// The version up to which the cache is complete.
    pub version: Version,
    /// The number of events, counted once per handler.
    pub events: u64,
    /// The number of queued events of each handler.
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
        // Kubernetes: the last 15 digits, since a metric is a float.
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

/// The group, version and resource of a path: `/api/v1/pods`,
/// `/apis/apps/v1/namespaces/default/deployments`.
fn group_version_resource(path: &str) -> [&str; 3] {
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let resource = parts.last().copied().unwrap_or_default();
    match parts.as_slice() {
        ["api", version, ..] => ["", version, resource],
        ["apis", group, version, ..] => [group, version, resource],
        _ => ["", "", resource],
    }
}
