//! What do people hear of a pod? Events in the form of events.k8s.io.
//!
//! That the same happened again to the same version of an object is counted in a series; the server hears of the first
//! repetition, and of the sum when the series ends. Kubernetes does not compare what is said: a pod that is tried again
//! before its version is known to have changed would go on to say what is no longer so.

use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use mizzen_sdk::api::{Api, Patch};
use mizzen_sdk::event::Severity;
use mizzen_sdk::seam::Clock;
use mizzen_sdk::{Key, Resource};
use mizzen_value::{Str, Value, value};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::HashMap;
use crate::model::Pod;

const EVENTS: Resource = Resource::namespaced("events.k8s.io", "v1", "events", "Event");
/// A series ends when nothing happened for so long.
const SERIES: Duration = Duration::from_secs(6 * 60);
/// How many bytes of a note the server takes.
const LONGEST_NOTE: usize = 1024;
/// How many events are written at a time.
const AT_ONCE: usize = 64;
/// How many may wait to be written; more are dropped and counted.
const WAITING: u64 = 10_000;
/// From how many microseconds on a clock that is behind the last event was set back.
const STEP: i64 = 1_000_000;

/// What is told.
pub(crate) struct Note {
    pub severity: Severity,
    pub reason: &'static str,
    pub action: &'static str,
    pub text: String,
}

/// Tells what happens to pods.
#[derive(Clone)]
pub(crate) struct Herald {
    api: Api,
    clock: Clock,
    host: Str,
    /// In microseconds, the time of the last event: events are named by their time.
    last: Arc<AtomicI64>,
    permits: Arc<Semaphore>,
    waiting: Arc<AtomicU64>,
    dropped: Arc<AtomicU64>,
}

/// What was told of late.
#[derive(Default)]
pub(crate) struct Told(HashMap<(Str, Str, &'static str), Series>);

struct Series {
    key: Key,
    /// What was said.
    text: String,
    count: i64,
    last: Instant,
}

impl Herald {
    pub(crate) fn new(api: Api, clock: Clock, host: Str) -> Herald {
        let permits = Arc::new(Semaphore::new(AT_ONCE));
        let (last, waiting, dropped) = (Arc::default(), Arc::default(), Arc::default());
        Herald {
            api,
            clock,
            host,
            last,
            permits,
            waiting,
            dropped,
        }
    }

    /// How many events were dropped because too many waited.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Tells something about a pod, under the name of a scheduler.
    pub(crate) fn tell(&self, told: &mut Told, scheduler: &str, pod: &Pod, note: Note) {
        let version: Str = pod.entry.version().to_string().into();
        match told.0.entry((pod.uid.clone(), version, note.reason)) {
            Entry::Occupied(mut series) if series.get().text == note.text => {
                let series = series.get_mut();
                (series.count, series.last) = (series.count + 1, Instant::now());
                if series.count == 2 {
                    self.write_series(series);
                }
            }
            place => {
                if let Entry::Occupied(over) = &place {
                    self.end(over.get());
                }
                let event = self.event(scheduler, pod, &note);
                let key = Key::new(pod.namespace.as_str(), event["metadata"]["name"].str());
                place.insert_entry(Series {
                    key,
                    text: note.text,
                    count: 1,
                    last: Instant::now(),
                });
                self.write(event);
            }
        }
    }

    /// Writes an event that can happen only once.
    pub(crate) async fn tell_once(&self, scheduler: &str, pod: &Pod, note: Note) {
        let event = self.event(scheduler, pod, &note);
        if let Err(error) = self.api.create(&EVENTS, &event).await {
            tracing::debug!(%error, "an event could not be written");
        }
    }

    fn write(&self, event: Value) {
        let api = self.api.clone();
        self.spawn(async move { api.create(&EVENTS, &event).await.map(drop) });
    }

    /// Writes how often something happened that does not happen any more.
    fn end(&self, series: &Series) {
        if series.count > 2 {
            self.write_series(series);
        }
    }

    fn write_series(&self, series: &Series) {
        let (api, key, now) = (self.api.clone(), series.key.clone(), micro((self.clock)()));
        let count = series.count;
        let change = value!({"series": {"count": count, "lastObservedTime": now}});
        self.spawn(async move {
            api.patch(&EVENTS, &key, "", Patch::Merge, &change)
                .await
                .map(drop)
        });
    }

    fn spawn(&self, write: impl Future<Output = Result<(), kube::Error>> + Send + 'static) {
        if self.waiting.load(Ordering::Relaxed) >= WAITING {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let (permits, waiting) = (self.permits.clone(), self.waiting.clone());
        tokio::spawn(async move {
            let _permit = permits.acquire().await;
            if let Err(error) = write.await {
                tracing::debug!(%error, "an event could not be written");
            }
            waiting.fetch_sub(1, Ordering::Relaxed);
        });
    }

    /// The time of day, but never the same twice in a row. It follows a wall clock that is set back.
    fn moment(&self) -> Timestamp {
        let now = (self.clock)().as_microsecond();
        let next = |last: i64| {
            if last - now > STEP {
                now
            } else {
                now.max(last + 1)
            }
        };
        let update = |last: i64| Some(next(last));
        let last = self
            .last
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, update)
            .unwrap_or_default();
        Timestamp::from_microsecond(next(last)).unwrap_or_default()
    }

    fn event(&self, scheduler: &str, pod: &Pod, note: &Note) -> Value {
        let now = self.moment();
        let name = format!("{}.{:x}", pod.name, now.as_nanosecond());
        let (namespace, instance) = (&pod.namespace, format!("{scheduler}-{}", self.host));
        value!({
            "kind": "Event",
            "apiVersion": "events.k8s.io/v1",
            "metadata": {"name": name, "namespace": namespace},
            "eventTime": (micro(now)),
            "reportingController": scheduler,
            "reportingInstance": instance,
            "action": (note.action),
            "reason": (note.reason),
            "regarding": (reference(pod)),
            "note": (truncate(&note.text)),
            "type": (note.severity.as_str())
        })
    }
}

impl Told {
    /// Ends series in which nothing happened for a while.
    pub(crate) fn prune(&mut self, herald: &Herald) {
        self.0.retain(|_, series| {
            let lives = series.last.elapsed() < SERIES;
            if !lives {
                herald.end(series);
            }
            lives
        });
    }
}

fn reference(pod: &Pod) -> Value {
    let (namespace, name, uid) = (&pod.namespace, &pod.name, &pod.uid);
    let version = pod.entry.version().to_string();
    value!({
        "kind": "Pod", "namespace": namespace, "name": name, "uid": uid, "apiVersion": "v1", "resourceVersion": version
    })
}

/// A time as events have it, with microseconds.
fn micro(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

/// As much of a text as the server takes.
pub(crate) fn truncate(text: &str) -> String {
    if text.len() <= LONGEST_NOTE {
        return text.into();
    }
    let end = (0..=LONGEST_NOTE - 4)
        .rev()
        .find(|end| text.is_char_boundary(*end))
        .unwrap_or_default();
    format!("{} ...", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_note_is_cut_between_letters() {
        assert_eq!(truncate("short"), "short");
        assert_eq!(truncate(&"x".repeat(1024)), "x".repeat(1024));
        assert_eq!(
            truncate(&"x".repeat(1025)),
            format!("{} ...", "x".repeat(1020))
        );
        assert_eq!(
            truncate(&"ä".repeat(600)),
            format!("{} ...", "ä".repeat(510))
        );
    }

    #[test]
    fn times_have_six_digits() {
        let at = Timestamp::from_millisecond(1_700_000_000_120).unwrap();
        assert_eq!(micro(at), "2023-11-14T22:13:20.120000Z");
    }
}
