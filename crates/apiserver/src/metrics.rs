//! What is counted, under upstream's names where the meaning is the same.

mod health_checks;
mod histogram;
mod reloads;
mod results;

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use mizzen_object::{KindData, Str};
use mizzen_registry::Health;

use crate::answer::Answer;
use crate::request::{Request, ResourcePath, Target};
use crate::server::Inner;
use health_checks::HealthChecks;
pub use histogram::{Histogram, Timings};
pub use reloads::{Reloads, hash};
pub(crate) use results::{Authenticated, Authorized, DOUBLING, Results};

/// The upper bounds of the duration buckets, in seconds, as upstream has them.
const BUCKETS: [f64; 23] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0,
    10.0, 15.0, 20.0, 30.0, 45.0, 60.0,
];

/// What a request is counted as.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Observed {
    verb: &'static str,
    group: Str,
    version: Str,
    resource: Str,
    subresource: Str,
    scope: &'static str,
}

impl Observed {
    /// Invariant: strangers cannot make us count more things than there are; what we do not know has no name.
    pub(crate) fn new(server: &Inner, request: &Request) -> Observed {
        match request.info.target() {
            Target::Page(_) => Observed::unnamed("GET"),
            Target::Resource(path) if !is_known(server, path) => {
                Observed::unnamed(spoken(request.info.verb()))
            }
            Target::Resource(path) => Observed {
                verb: spoken(request.info.verb()),
                group: path.group.clone(),
                version: path.version.clone(),
                resource: path.resource.clone(),
                subresource: path.subresource.clone(),
                scope: match (path.name.is_empty(), path.namespace.is_empty()) {
                    (false, _) => "resource",
                    (true, false) => "namespace",
                    (true, true) => "cluster",
                },
            },
        }
    }

    fn unnamed(verb: &'static str) -> Observed {
        let none = Str::default;
        Observed {
            verb,
            group: none(),
            version: none(),
            resource: none(),
            subresource: none(),
            scope: "",
        }
    }

    fn is_write(&self) -> bool {
        !matches!(self.verb, "GET" | "LIST" | "WATCH")
    }
}

/// Whether this server has what a path is about.
fn is_known(server: &Inner, path: &ResourcePath) -> bool {
    let Ok(resource) = server.catalog.find(path) else {
        return false;
    };
    path.subresource.is_empty() || resource.kind().subresource(&path.subresource).is_some()
}

/// A verb as metrics spell it.
fn spoken(verb: &str) -> &'static str {
    match verb {
        "get" => "GET",
        "list" => "LIST",
        "watch" => "WATCH",
        "create" => "POST",
        "update" => "PUT",
        "patch" => "PATCH",
        "delete" => "DELETE",
        "deletecollection" => "DELETECOLLECTION",
        _ => "OTHER",
    }
}

/// Something outside that has figures to show.
pub trait Measured: fmt::Debug + Send + Sync {
    /// Adds them in Prometheus' text form.
    fn write_metrics(&self, out: &mut String);
}

/// Everything that is counted.
#[derive(Default)]
pub(crate) struct Metrics {
    /// When the server started, in Unix seconds.
    pub started: i64,
    pub results: Results,
    pub health_checks: HealthChecks,
    requests: Mutex<BTreeMap<(Observed, u16), u64>>,
    durations: Mutex<BTreeMap<Observed, Histogram>>,
    inflight: [AtomicI64; 2],
    watches: Mutex<BTreeMap<Str, Arc<AtomicI64>>>,
    events: Mutex<BTreeMap<Str, Arc<AtomicI64>>>,
}

/// A request that is under way.
pub(crate) struct Inflight<'a>(&'a AtomicI64);

impl Drop for Inflight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counts a watch for as long as it lives, and its events.
pub(crate) struct Gauge {
    count: Arc<AtomicI64>,
    events: Arc<AtomicI64>,
}

impl Gauge {
    /// Events go to the watcher.
    pub(crate) fn sent(&self, events: usize) {
        self.events
            .fetch_add(i64::try_from(events).unwrap_or(i64::MAX), Ordering::Relaxed);
    }
}

impl Drop for Gauge {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Metrics {
    /// Metrics of a server that starts now.
    pub(crate) fn new(started: i64) -> Metrics {
        Metrics {
            started,
            health_checks: HealthChecks::new(started),
            ..Metrics::default()
        }
    }

    /// A request begins. It is under way until what is returned is dropped, which happens too when it is given up.
    pub(crate) fn begin(&self, observed: &Observed) -> Inflight<'_> {
        let count = &self.inflight[usize::from(observed.is_write())];
        count.fetch_add(1, Ordering::Relaxed);
        Inflight(count)
    }

    /// A request has been answered.
    pub(crate) fn end(&self, observed: &Observed, code: u16, took: Duration, _answer: &Answer) {
        *lock(&self.requests)
            .entry((observed.clone(), code))
            .or_default() += 1;
        let mut durations = lock(&self.durations);
        let histogram = durations
            .entry(observed.clone())
            .or_insert_with(|| Histogram::new(&BUCKETS));
        histogram.observe(took.as_secs_f64());
    }

    /// A watch begins; it ends when the gauge is dropped.
    pub(crate) fn watching(&self, kind: &KindData) -> Gauge {
        let count = lock(&self.watches)
            .entry(kind.resource().to_string().into())
            .or_default()
            .clone();
        count.fetch_add(1, Ordering::Relaxed);
        let events = lock(&self.events)
            .entry(kind.gvk.kind.clone())
            .or_default()
            .clone();
        Gauge { count, events }
    }

    /// Forgets what has been counted of requests and watches. What is under way goes on being counted.
    pub(crate) fn reset(&self) {
        lock(&self.requests).clear();
        lock(&self.durations).clear();
        lock(&self.events)
            .values()
            .for_each(|count| count.store(0, Ordering::Relaxed));
    }

    /// The whole in Prometheus' text form.
    pub(crate) fn text(&self, server: &Inner) -> String {
        let mut out = String::new();
        self.write_requests(&mut out);
        self.write_durations(&mut out);
        self.write_gauges(&mut out);
        server.audit.counters.write(&mut out);
        server.fairness.write_metrics(&mut out);
        server.unsent.write_metrics(&mut out);
        write_store(server, &mut out);
        self.results.write(&mut out);
        server.access.counts.write(&mut out);
        server.access.impersonations.write(&mut out);
        server
            .options
            .authentication
            .others
            .iter()
            .for_each(|other| other.write_metrics(&mut out));
        server
            .options
            .metrics
            .iter()
            .for_each(|measured| measured.write_metrics(&mut out));
        out
    }

    fn write_requests(&self, out: &mut String) {
        head(
            out,
            "apiserver_request_total",
            "counter",
            "Requests by verb, resource and answer.",
        );
        for ((observed, code), count) in lock(&self.requests).iter() {
            let labels = labels(observed);
            let _ = writeln!(
                out,
                "apiserver_request_total{{code=\"{code}\",{labels}}} {count}"
            );
        }
    }

    fn write_durations(&self, out: &mut String) {
        const NAME: &str = "apiserver_request_duration_seconds";
        head(out, NAME, "histogram", "How long requests took.");
        for (observed, histogram) in lock(&self.durations).iter() {
            histogram.write(out, NAME, &labels(observed));
        }
    }

    fn write_gauges(&self, out: &mut String) {
        head(
            out,
            "process_start_time_seconds",
            "gauge",
            "When the server started, in Unix seconds.",
        );
        let _ = writeln!(out, "process_start_time_seconds {}", self.started);
        const INFLIGHT: &str = "apiserver_current_inflight_requests";
        head(out, INFLIGHT, "gauge", "Requests that are being answered.");
        for (kind, count) in ["readOnly", "mutating"].iter().zip(&self.inflight) {
            let _ = writeln!(
                out,
                "{INFLIGHT}{{request_kind=\"{kind}\"}} {}",
                count.load(Ordering::Relaxed)
            );
        }
        head(
            out,
            "apiserver_longrunning_requests",
            "gauge",
            "Watches under way.",
        );
        for (resource, count) in lock(&self.watches).iter() {
            let count = count.load(Ordering::Relaxed);
            let _ = writeln!(
                out,
                "apiserver_longrunning_requests{{resource=\"{resource}\",verb=\"WATCH\"}} {count}"
            );
        }
        head(
            out,
            "apiserver_watch_events_total",
            "counter",
            "Events that were sent to watchers.",
        );
        for (kind, count) in lock(&self.events).iter() {
            let count = count.load(Ordering::Relaxed);
            let _ = writeln!(
                out,
                "apiserver_watch_events_total{{kind=\"{kind}\"}} {count}"
            );
        }
    }
}

fn write_store(server: &Inner, out: &mut String) {
    let stats = server.registry.store().stats();
    head(
        out,
        "apiserver_storage_objects",
        "gauge",
        "Objects that are stored.",
    );
    for space in &stats {
        let _ = writeln!(
            out,
            "apiserver_storage_objects{{resource=\"{}\"}} {}",
            space.name, space.records
        );
    }
    head(
        out,
        "apiserver_storage_decode_errors_total",
        "counter",
        "Number of stored object decode errors split by object type",
    );
    for space in stats.iter().filter(|space| space.decode_errors > 0) {
        let (group, resource) = space.name.split_once('/').unwrap_or(("", &space.name));
        let errors = space.decode_errors;
        let _ = writeln!(
            out,
            "apiserver_storage_decode_errors_total{{group=\"{group}\",resource=\"{resource}\"}} {errors}"
        );
    }
    head(
        out,
        "mizzen_store_bytes",
        "gauge",
        "Bytes of stored objects.",
    );
    for space in &stats {
        let _ = writeln!(
            out,
            "mizzen_store_bytes{{resource=\"{}\"}} {}",
            space.name, space.bytes
        );
    }
    head(
        out,
        "mizzen_store_window_bytes",
        "gauge",
        "Bytes that only the window of watch events keeps in memory.",
    );
    for space in &stats {
        let _ = writeln!(
            out,
            "mizzen_store_window_bytes{{resource=\"{}\"}} {}",
            space.name, space.superseded
        );
    }
    let store = server.registry.store();
    let failures = store.failures();
    head(
        out,
        "mizzen_store_writable",
        "gauge",
        "Whether all writes are taken: 0 while the disk is full.",
    );
    let _ = writeln!(
        out,
        "mizzen_store_writable {}",
        u8::from(matches!(store.health(), Health::Writable))
    );
    head(
        out,
        "mizzen_store_refused_writes_total",
        "counter",
        "Writes that the disk did not take.",
    );
    let _ = writeln!(
        out,
        "mizzen_store_refused_writes_total {}",
        failures.refused_writes
    );
    head(
        out,
        "mizzen_store_failed_compactions_total",
        "counter",
        "Compactions of the log that failed.",
    );
    let _ = writeln!(
        out,
        "mizzen_store_failed_compactions_total {}",
        failures.compactions
    );
    head(
        out,
        "mizzen_store_revision",
        "gauge",
        "The latest revision.",
    );
    let _ = writeln!(out, "mizzen_store_revision {}", store.revision());
}

/// What a metric is, before its values.
pub fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn labels(observed: &Observed) -> String {
    let Observed {
        verb,
        group,
        version,
        resource,
        subresource,
        scope,
    } = observed;
    format!(
        "group=\"{group}\",resource=\"{resource}\",scope=\"{scope}\",subresource=\"{subresource}\",verb=\"{verb}\",\
         version=\"{version}\""
    )
}

/// What is counted stays good even if somebody who counted fell over.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> parking_lot::MutexGuard<'_, T> {
    mutex.lock()
}
