//! Records Events of events.k8s.io/v1.
//!
//! Repetitions of the same Event of the same object version are counted in a series. The first
//! repetition is written at once, the total when the series ends. Unlike Kubernetes, a different
//! note starts a new series: otherwise a pod that is retried before its new version arrives would
//! keep an outdated message.

use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use mizzen_sdk::clock::Clock;
use mizzen_sdk::dynamic::{DynamicClient, PatchType};
use mizzen_sdk::event::Severity;
use mizzen_sdk::{Key, ResourceType};
use mizzen_value::{Str, Value, value};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::HashMap;
use crate::model::PodInfo;

const EVENTS: ResourceType = ResourceType::namespaced("events.k8s.io", "v1", "events", "Event");
/// A series ends after this time without a repetition.
const SERIES_TIMEOUT: Duration = Duration::from_secs(6 * 60);
/// The most bytes of a note.
const MAX_NOTE_BYTES: usize = 1024;
/// The most concurrent writes.
const MAX_CONCURRENT_WRITES: usize = 64;
/// The most queued writes; further Events are dropped and counted.
const MAX_QUEUED_WRITES: u64 = 10_000;
/// If the clock is behind the last Event by more microseconds than this, it was set back.
const CLOCK_STEP: i64 = 1_000_000;

/// The content of an Event.
pub(crate) struct EventNote {
    pub severity: Severity,
    pub reason: &'static str,
    pub action: &'static str,
    pub text: String,
}

/// Records Events about pods.
#[derive(Clone)]
pub(crate) struct EventRecorder {
    api: DynamicClient,
    clock: Clock,
    host: Str,
    /// The time of the last Event in microseconds. Events are named by their time.
    last: Arc<AtomicI64>,
    permits: Arc<Semaphore>,
    waiting: Arc<AtomicU64>,
    dropped: Arc<AtomicU64>,
}

/// The current series, by pod UID, version and reason.
#[derive(Default)]
pub(crate) struct EventSeriesCache(HashMap<(Str, Str, &'static str), EventSeries>);

struct EventSeries {
    key: Key,
    /// The note of the Event.
    text: String,
    count: i64,
    last: Instant,
}

impl EventRecorder {
    pub(crate) fn new(api: DynamicClient, clock: Clock, host: Str) -> EventRecorder {
        let permits = Arc::new(Semaphore::new(MAX_CONCURRENT_WRITES));
        let (last, waiting, dropped) = (Arc::default(), Arc::default(), Arc::default());
        EventRecorder {
            api,
            clock,
            host,
            last,
            permits,
            waiting,
            dropped,
        }
    }

    /// The number of dropped Events.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Records an Event about a pod, with the scheduler name as reporting controller.
    pub(crate) fn record(
        &self,
        series_cache: &mut EventSeriesCache,
        scheduler: &str,
        pod: &PodInfo,
        note: EventNote,
    ) {
        let version: Str = pod.entry.version().to_string().into();
        match series_cache
            .0
            .entry((pod.uid.clone(), version, note.reason))
        {
            Entry::Occupied(mut series) if series.get().text == note.text => {
                let series = series.get_mut();
                (series.count, series.last) = (series.count + 1, Instant::now());
                if series.count == 2 {
                    self.write_event_series(series);
                }
            }
            place => {
                if let Entry::Occupied(over) = &place {
                    self.end_series(over.get());
                }
                let event = self.build_event(scheduler, pod, &note);
                let key = Key::new(pod.namespace.as_str(), event["metadata"]["name"].str());
                place.insert_entry(EventSeries {
                    key,
                    text: note.text,
                    count: 1,
                    last: Instant::now(),
                });
                self.write(event);
            }
        }
    }

    /// Writes an Event that cannot repeat.
    pub(crate) async fn record_once(&self, scheduler: &str, pod: &PodInfo, note: EventNote) {
        let event = self.build_event(scheduler, pod, &note);
        if let Err(error) = self.api.create(&EVENTS, &event).await {
            tracing::warn!(%error, "cannot write an event");
        }
    }

    fn write(&self, event: Value) {
        let api = self.api.clone();
        self.spawn_write(async move { api.create(&EVENTS, &event).await.map(drop) });
    }

    /// Writes the total of a series that has ended.
    fn end_series(&self, series: &EventSeries) {
        if series.count > 2 {
            self.write_event_series(series);
        }
    }

    fn write_event_series(&self, series: &EventSeries) {
        let (api, key, now) = (
            self.api.clone(),
            series.key.clone(),
            format_micro_time((self.clock)()),
        );
        let count = series.count;
        let change = value!({"series": {"count": count, "lastObservedTime": now}});
        self.spawn_write(async move {
            api.patch(&EVENTS, &key, "", PatchType::Merge, &change)
                .await
                .map(drop)
        });
    }

    fn spawn_write(&self, write: impl Future<Output = Result<(), kube::Error>> + Send + 'static) {
        if self.waiting.load(Ordering::Relaxed) >= MAX_QUEUED_WRITES {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let (permits, waiting) = (self.permits.clone(), self.waiting.clone());
        tokio::spawn(async move {
            let _permit = permits.acquire().await;
            if let Err(error) = write.await {
                tracing::warn!(%error, "cannot write an event");
            }
            waiting.fetch_sub(1, Ordering::Relaxed);
        });
    }

    /// The time, but never the same twice. It follows a clock that is set back.
    fn next_event_time(&self) -> Timestamp {
        let now = (self.clock)().as_microsecond();
        let next = |last: i64| {
            if last - now > CLOCK_STEP {
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

    fn build_event(&self, scheduler: &str, pod: &PodInfo, note: &EventNote) -> Value {
        let uid = &pod.uid;
        let version = pod.entry.version().to_string();
        let now = self.next_event_time();
        let name = format!("{}.{:x}", pod.name, now.as_nanosecond());
        let (namespace, instance) = (&pod.namespace, format!("{scheduler}-{}", self.host));
        value!({
            "kind": "Event",
            "apiVersion": "events.k8s.io/v1",
            "metadata": {"name": name, "namespace": namespace},
            "eventTime": (format_micro_time(now)),
            "reportingController": scheduler,
            "reportingInstance": instance,
            "action": (note.action),
            "reason": (note.reason),
            "regarding": {
                "kind": "Pod", "namespace": namespace, "name": (&pod.name), "uid": uid,
                "apiVersion": "v1", "resourceVersion": version
            },
            "note": (truncate_note(&note.text)),
            "type": (note.severity.as_str())
        })
    }
}

impl EventSeriesCache {
    /// Ends the series without a recent repetition.
    pub(crate) fn prune(&mut self, recorder: &EventRecorder) {
        self.0.retain(|_, series| {
            let lives = series.last.elapsed() < SERIES_TIMEOUT;
            if !lives {
                recorder.end_series(series);
            }
            lives
        });
    }
}

/// A MicroTime.
fn format_micro_time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

/// The note, truncated to what the server accepts.
pub(crate) fn truncate_note(text: &str) -> String {
    if text.len() <= MAX_NOTE_BYTES {
        return text.into();
    }
    let end_series = (0..=MAX_NOTE_BYTES - 4)
        .rev()
        .find(|end_series| text.is_char_boundary(*end_series))
        .unwrap_or_default();
    format!("{} ...", &text[..end_series])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_note_is_truncated_between_characters() {
        assert_eq!(truncate_note("short"), "short");
        assert_eq!(truncate_note(&"x".repeat(1024)), "x".repeat(1024));
        assert_eq!(
            truncate_note(&"x".repeat(1025)),
            format!("{} ...", "x".repeat(1020))
        );
        assert_eq!(
            truncate_note(&"ä".repeat(600)),
            format!("{} ...", "ä".repeat(510))
        );
    }

    #[test]
    fn times_have_six_digits() {
        let at = Timestamp::from_millisecond(1_700_000_000_120).unwrap();
        assert_eq!(format_micro_time(at), "2023-11-14T22:13:20.120000Z");
    }
}
