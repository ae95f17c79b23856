//! How is a reflector doing? Under the names that client-go's reflectors use.

use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::time::Duration;

use crate::cache::Version;
use mizzen_metrics::{Collector, Families, Summary};

/// What a reflector did.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Metrics {
    /// What it follows.
    pub name: String,
    /// How often it listed, by pages or by a stream; a list that failed counts.
    pub lists: u64,
    /// How many seconds lists took that did not fail.
    pub list_seconds: Summary,
    /// How many objects they had.
    pub items_per_list: Summary,
    /// How often it watched.
    pub watches: u64,
    /// How many watches ended at once and said nothing.
    pub short_watches: u64,
    /// How many seconds watches lasted that are over.
    pub watch_seconds: Summary,
    /// How many changes they told of.
    pub items_per_watch: Summary,
    /// How many changes all watches told of, with the one that lasts.
    pub events: u64,
    /// How often something failed.
    pub errors: u64,
    /// Up to when everything is known.
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

/// Counts what a reflector does. Clones count together.
#[derive(Debug, Clone, Default)]
pub struct Meter(Arc<Mutex<Metrics>>);

impl Meter {
    /// Counts for what is called `name`.
    pub fn new(name: impl Into<String>) -> Meter {
        Meter(Arc::new(Mutex::new(Metrics {
            name: name.into(),
            ..Metrics::default()
        })))
    }

    /// What was counted so far.
    pub fn read(&self) -> Metrics {
        self.lock().clone()
    }

    pub(super) fn begin_list(&self) {
        self.lock().lists += 1;
    }

    pub(super) fn end_list(&self, n_items: usize, version: Version, took: Duration) {
        let mut metrics = self.lock();
        metrics.list_seconds.observe(took.as_secs_f64());
        metrics.items_per_list.observe(n_items as f64);
        metrics.last_version = version;
    }

    pub(super) fn begin_watch(&self) {
        self.lock().watches += 1;
    }

    pub(super) fn event(&self, version: Version, is_change: bool) {
        let mut metrics = self.lock();
        metrics.events += u64::from(is_change);
        metrics.last_version = metrics.last_version.max(version);
    }

    pub(super) fn end_watch(&self, n_events: u64, took: Duration, is_short: bool) {
        let mut metrics = self.lock();
        metrics.watch_seconds.observe(took.as_secs_f64());
        metrics.items_per_watch.observe(n_events as f64);
        metrics.short_watches += u64::from(is_short);
    }

    pub(super) fn error(&self) {
        self.lock().errors += 1;
    }

    fn lock(&self) -> MutexGuard<'_, Metrics> {
        self.0.lock()
    }
}
