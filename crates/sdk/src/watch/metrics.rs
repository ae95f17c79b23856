//! Metrics of reflectors, under client-go's names.

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

use crate::cache::Version;
use mizzen_metrics::{Collector, Families, Summary};

/// The metrics of a reflector.
///
/// ```
/// use mizzen_sdk::watch::Meter;
///
/// let metrics = Meter::new("pods").read();
/// assert_eq!((&*metrics.name, metrics.lists, metrics.watches), ("pods", 0, 0));
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Metrics {
    /// The name of its source.
    pub name: String,
    /// The number of lists, paged or streamed, including failed ones.
    pub lists: u64,
    /// The seconds that successful lists took.
    pub list_seconds: Summary,
    /// The number of objects in lists.
    pub items_per_list: Summary,
    /// The number of watches.
    pub watches: u64,
    /// The number of watches that ended at once without an event.
    pub short_watches: u64,
    /// The seconds that ended watches lasted.
    pub watch_seconds: Summary,
    /// The number of changes in ended watches.
    pub items_per_watch: Summary,
    /// The number of changes in all watches, including the current one.
    pub events: u64,
    /// The number of failures.
    pub errors: u64,
    /// The version up to which everything is known.
    pub last_version: Version,
}

impl Collector for Metrics {
    fn collect(&self, families: &mut Families) {
        let labels: &[_] = &[("name", &*self.name)];
        for (name, help, count) in [
            (
                "reflector_lists_total",
                "Lists that were begun.",
                self.lists,
            ),
            (
                "reflector_watches_total",
                "Watches that were begun.",
                self.watches,
            ),
            (
                "reflector_short_watches_total",
                "Watches that ended at once without an event.",
                self.short_watches,
            ),
            (
                "reflector_events_total",
                "Changes that watches reported.",
                self.events,
            ),
            (
                "reflector_errors_total",
                "Lists and watches that failed.",
                self.errors,
            ),
        ] {
            families.counter(name, help).add(labels, count);
        }
        for (name, help, summary) in [
            (
                "reflector_list_duration_seconds",
                "How long lists took.",
                self.list_seconds,
            ),
            (
                "reflector_items_per_list",
                "Objects in a list.",
                self.items_per_list,
            ),
            (
                "reflector_watch_duration_seconds",
                "How long watches lasted.",
                self.watch_seconds,
            ),
            (
                "reflector_items_per_watch",
                "Changes in a watch.",
                self.items_per_watch,
            ),
        ] {
            families.summary(name, help).add_summary(labels, summary);
        }
        families
            .gauge(
                "reflector_last_resource_version",
                "The latest resource version seen.",
            )
            .add(labels, self.last_version.0);
    }
}

/// Counts what a reflector does. Clones share the counters.
///
/// ```
/// use mizzen_sdk::metrics::Families;
/// use mizzen_sdk::watch::Meter;
///
/// let text = Families::of(&[&Meter::new("pods").read()]).to_string();
/// assert!(text.contains(r#"reflector_lists_total{name="pods"} 0"#));
/// ```
#[derive(Debug, Clone, Default)]
pub struct Meter(Arc<Mutex<Metrics>>);

impl Meter {
    /// Counters for the source `name`.
    pub fn new(name: impl Into<String>) -> Meter {
        Meter(Arc::new(Mutex::new(Metrics {
            name: name.into(),
            ..Metrics::default()
        })))
    }

    /// The current metrics.
    pub fn read(&self) -> Metrics {
        self.0.lock().clone()
    }

    pub(super) fn begin_list(&self) {
        self.0.lock().lists += 1;
    }

    pub(super) fn end_list(&self, n_items: usize, version: Version, took: Duration) {
        let mut metrics = self.0.lock();
        metrics.list_seconds.observe(took.as_secs_f64());
        metrics.items_per_list.observe(n_items as f64);
        metrics.last_version = version;
    }

    pub(super) fn begin_watch(&self) {
        self.0.lock().watches += 1;
    }

    pub(super) fn event(&self, version: Version, is_change: bool) {
        let mut metrics = self.0.lock();
        metrics.events += u64::from(is_change);
        metrics.last_version = metrics.last_version.max(version);
    }

    pub(super) fn end_watch(&self, n_events: u64, took: Duration, is_short: bool) {
        let mut metrics = self.0.lock();
        metrics.watch_seconds.observe(took.as_secs_f64());
        metrics.items_per_watch.observe(n_events as f64);
        metrics.short_watches += u64::from(is_short);
    }

    pub(super) fn error(&self) {
        self.0.lock().errors += 1;
    }
}
