//! Events about what a repair of allocations finds. The server writes them as itself.
//!
//! Repetitions of an Event about the same version of an object are counted in a series. Kubernetes: client-go/tools/events.
//! Unlike there, another note begins another series, and each repetition is written.

use std::collections::HashMap;

use mizzen_apiserver::Server;
use mizzen_value::time::Moment;
use mizzen_value::{Value, value};
use tokio::sync::Mutex;

/// A series ends after so many seconds without a repetition. Kubernetes: finishTime in event_broadcaster.go.
const SERIES_SECONDS: i64 = 6 * 60;

/// What a repair has found about an object.
pub(super) struct Finding {
    pub controller: &'static str,
    /// The version and the kind of the object.
    pub api_version: &'static str,
    pub kind: &'static str,
    pub reason: &'static str,
    pub action: &'static str,
    pub note: String,
}

/// The Events that may be repeated.
#[derive(Default)]
pub(crate) struct RepairEvents(Mutex<RecordedEvents>);

#[derive(Default)]
struct RecordedEvents {
    series: HashMap<SeriesKey, EventSeries>,
    /// The nanoseconds by which the last Event is named.
    last: i64,
}

/// What is the same in all repetitions.
#[derive(PartialEq, Eq, Hash)]
struct SeriesKey {
    uid: String,
    version: String,
    reason: &'static str,
    note: String,
}

struct EventSeries {
    /// The path of the Event.
    path: String,
    count: i64,
    /// The second of the last one.
    last: i64,
}

impl RepairEvents {
    /// Records an Event about an object. One that cannot be written is logged.
    pub(super) async fn record(&self, server: &Server, regarding: &Value, finding: Finding) {
        let now = server.registry().moment();
        let metadata = &regarding["metadata"];
        let key = SeriesKey {
            uid: metadata["uid"].str().into(),
            version: metadata["resourceVersion"].str().into(),
            reason: finding.reason,
            note: finding.note.clone(),
        };
        let mut recorded = self.0.lock().await;
        recorded
            .series
            .retain(|_, series| now.seconds - series.last < SERIES_SECONDS);
        if let Some(series) = recorded.series.get_mut(&key) {
            (series.count, series.last) = (series.count + 1, now.seconds);
            if repeat(server, series, now).await {
                return;
            }
        }
        let nanos = now.seconds * 1_000_000_000 + i64::from(now.nanos);
        recorded.last = nanos.max(recorded.last + 1);
        let (path, event) = event_of(regarding, finding, now, recorded.last);
        let (code, answer) = server.ask("POST", &path, Some(&event)).await;
        if code != 201 {
            log(&answer);
            return;
        }
        let series = EventSeries {
            path: format!("{path}/{}", event["metadata"]["name"].str()),
            count: 1,
            last: now.seconds,
        };
        recorded.series.insert(key, series);
    }
}

/// Counts a repetition. Returns false if the Event does not exist any more.
async fn repeat(server: &Server, series: &EventSeries, now: Moment) -> bool {
    let (code, mut event) = server.ask("GET", &series.path, None).await;
    if code != 200 {
        return false;
    }
    let (count, time) = (series.count, now.to_micro_string());
    event.set(
        "series",
        value!({"count": count, "lastObservedTime": (time.as_str())}),
    );
    let (code, answer) = server.ask("PUT", &series.path, Some(&event)).await;
    if code != 200 {
        log(&answer);
    }
    true
}

/// The path of the collection, and the Event.
fn event_of(regarding: &Value, finding: Finding, now: Moment, nanos: i64) -> (String, Value) {
    let Finding {
        controller,
        api_version,
        kind,
        reason,
        action,
        note,
    } = finding;
    let metadata = &regarding["metadata"];
    let [namespace, name, uid, version] =
        ["namespace", "name", "uid", "resourceVersion"].map(|field| metadata[field].str());
    // Kubernetes: that of an object without one is in `default`.
    let own_namespace = match namespace {
        "" => "default",
        namespace => namespace,
    };
    // An IPAddress of IPv6 has a name that no Event can have.
    let stem = if name.contains(':') { uid } else { name };
    let own_name = format!("{stem}.{nanos:x}");
    let instance = format!("{controller}-{}", host_name());
    let time = now.to_micro_string();
    let mut reference = value!({"kind": kind, "name": name, "uid": uid, "apiVersion": api_version});
    for (field, text) in [("namespace", namespace), ("resourceVersion", version)] {
        if !text.is_empty() {
            reference.set(field, text);
        }
    }
    let event = value!({
        "kind": "Event",
        "apiVersion": "events.k8s.io/v1",
        "metadata": {"name": (own_name.as_str()), "namespace": own_namespace},
        "eventTime": (time.as_str()),
        "reportingController": controller,
        "reportingInstance": (instance.as_str()),
        "action": action,
        "reason": reason,
        "regarding": reference,
        "note": (note.as_str()),
        "type": "Warning"
    });
    let path = format!("/apis/events.k8s.io/v1/namespaces/{own_namespace}/events");
    (path, event)
}

fn host_name() -> String {
    let name = nix::unistd::gethostname().ok();
    name.and_then(|name| name.into_string().ok())
        .unwrap_or_default()
}

fn log(answer: &Value) {
    let error = answer["message"].str();
    tracing::warn!(%error, "an event about an allocation could not be written");
}
