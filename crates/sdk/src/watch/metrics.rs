//! How is a reflector doing? Under the names that client-go's reflectors use.

use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::time::Duration;

use crate::cache::Version;
use crate::metrics::{Lines, Summary};

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

impl Metrics {
    /// In Prometheus' text form.
    pub fn to_text(&self) -> String {
        let mut lines = Lines::new(&self.name);
        lines.counter("reflector_lists_total", self.lists);
        lines.summary("reflector_list_duration_seconds", self.list_seconds);
        lines.summary("reflector_items_per_list", self.items_per_list);
        lines.counter("reflector_watches_total", self.watches);
        lines.counter("reflector_short_watches_total", self.short_watches);
        lines.summary("reflector_watch_duration_seconds", self.watch_seconds);
        lines.summary("reflector_items_per_watch", self.items_per_watch);
        lines.counter("reflector_events_total", self.events);
        lines.counter("reflector_errors_total", self.errors);
        lines.gauge("reflector_last_resource_version", self.last_version);
        lines.finish()
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
