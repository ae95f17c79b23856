//! Event recording: deduplication, counting, aggregation, rate limits, and no blocking of the caller.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::jiff::Timestamp;
use mizzen_sdk::clock::Clock;
use mizzen_sdk::event::{ApiSink, Broadcaster, CorrelatedEvent, Limits, Note, Sink};
use serde_json::{Value, json};

use crate::{send, start};

/// A clock that only a test moves.
#[derive(Clone, Default)]
struct Hands(Arc<AtomicI64>);

impl Hands {
    fn clock(&self) -> Clock {
        let seconds = self.0.clone();
        Arc::new(move || {
            Timestamp::from_second(1_700_000_000 + seconds.fetch_add(1, Ordering::Relaxed)).unwrap()
        })
    }
}

/// The sent events, as `message xcount`.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<String>>>);

impl Sink for Heard {
    fn send<'a>(
        &'a mut self,
        event: &'a CorrelatedEvent,
    ) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        self.0.lock().push(format!(
            "{} x{}",
            event.occurrence.note.message, event.count
        ));
        Box::pin(std::future::ready(()))
    }
}

fn object(name: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("ConfigMap".into()),
        name: Some(name.into()),
        namespace: Some("default".into()),
        ..ObjectReference::default()
    }
}

/// The events sent for records of one object with these messages.
async fn hear(limits: Limits, messages: impl IntoIterator<Item = String>) -> Vec<String> {
    let heard = Heard::default();
    let broadcaster = Broadcaster::with(
        vec![Box::new(heard.clone())],
        limits,
        Hands::default().clock(),
    );
    let recorder = broadcaster.recorder("tester", "tester-0");
    for message in messages {
        recorder.record(&object("a"), Note::normal("Tested", "Testing", message));
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    broadcaster.stop().await;
    heard.0.lock().clone()
}

#[tokio::test(start_paused = true)]
async fn equal_events_are_counted() {
    let messages = ["one", "one", "two", "one"].map(String::from);
    assert_eq!(
        hear(Limits::default(), messages).await,
        ["one x1", "one x2", "two x1", "one x3"]
    );
}

#[tokio::test(start_paused = true)]
async fn similar_events_are_aggregated() {
    let limits = Limits {
        similar: 3,
        ..Limits::default()
    };
    let heard = hear(
        limits,
        ["m1", "m2", "m3", "m4", "m1", "m5"].map(String::from),
    )
    .await;
    let combined = "(combined from similar events): ";
    let expected = [
        "m1 x1".into(),
        "m2 x1".into(),
        format!("{combined}m3 x1"),
        format!("{combined}m4 x2"),
        "m1 x2".into(),
        format!("{combined}m5 x3"),
    ];
    assert_eq!(heard, expected);
}

#[tokio::test(start_paused = true)]
async fn aggregated_events_name_the_reporter_in_the_source_only() {
    let cluster = start().await;
    let limits = Limits {
        similar: 2,
        ..Limits::default()
    };
    let sink = Box::new(ApiSink::core(cluster.client()));
    let broadcaster = Broadcaster::with(vec![sink], limits, Hands::default().clock());
    let recorder = broadcaster.recorder("tester", "");
    for message in ["one", "two"] {
        recorder.record(
            &object("a"),
            Note::normal("Tested", "Testing", message).related(object("b")),
        );
    }
    broadcaster.stop().await;
    let list = send(&cluster, "GET", "/api/v1/events", Value::Null).await;
    let mut events: Vec<_> = list["items"].as_array().unwrap().iter().collect();
    events.sort_by_key(|event| event["message"].to_string());
    let reporters: Vec<_> = events
        .iter()
        .map(|event| &event["reportingComponent"])
        .collect();
    assert_eq!(reporters, ["", "tester"]);
    assert!(
        events
            .iter()
            .all(|event| event["source"]["component"] == "tester")
    );
    assert!(events[0]["related"].is_null() && events[1]["related"].is_object());
}

#[tokio::test(start_paused = true)]
async fn spam_filter_limits_events_per_object() {
    let limits = Limits {
        burst: 3,
        refill_seconds: 5,
        ..Limits::default()
    };
    let heard = hear(limits, (0..12).map(|_| "again".into())).await;
    // A burst of three, then one per five seconds; the events are a second apart.
    assert_eq!(
        heard,
        ["again x1", "again x2", "again x3", "again x4", "again x5"]
    );
}

#[tokio::test(start_paused = true)]
async fn limits_use_the_monotonic_clock() {
    for step in [-3600, 3600] {
        let (heard, hands) = (Heard::default(), Hands::default());
        let limits = Limits {
            burst: 2,
            refill_seconds: 5,
            ..Limits::default()
        };
        let broadcaster = Broadcaster::with(vec![Box::new(heard.clone())], limits, hands.clock());
        let recorder = broadcaster.recorder("tester", "tester-0");
        for n in 0..12 {
            recorder.record(&object("a"), Note::normal("Tested", "Testing", "again"));
            tokio::time::advance(Duration::from_secs(1)).await;
            if n == 3 {
                hands.0.fetch_add(step, Ordering::Relaxed);
            }
        }
        broadcaster.stop().await;
        assert_eq!(
            *heard.0.lock(),
            ["again x1", "again x2", "again x3", "again x4"],
            "{step}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn correlator_cache_evicts_the_least_recently_used() {
    let limits = Limits {
        remembered: 2,
        ..Limits::default()
    };
    let messages = ["a", "b", "c", "a"].map(String::from);
    assert_eq!(
        hear(limits, messages).await,
        ["a x1", "b x1", "c x1", "a x1"]
    );
}

#[tokio::test(start_paused = true)]
async fn recording_never_blocks_and_dropped_events_are_counted() {
    struct Stuck;
    impl Sink for Stuck {
        fn send<'a>(
            &'a mut self,
            _told: &'a CorrelatedEvent,
        ) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
            Box::pin(tokio::time::sleep(Duration::from_secs(1)))
        }
    }
    let broadcaster = Broadcaster::new(vec![Box::new(Stuck)]);
    let recorder = broadcaster.recorder("tester", "tester-0");
    for number in 0..1500 {
        recorder.record(
            &object(&format!("o{number}")),
            Note::warning("Tested", "Testing", "x"),
        );
    }
    assert_eq!(broadcaster.dropped(), 500);
    broadcaster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn events_are_written_to_both_apis_with_counts() {
    for core in [true, false] {
        let cluster = start().await;
        let sink = if core {
            ApiSink::core(cluster.client())
        } else {
            ApiSink::new(cluster.client())
        };
        let broadcaster = Broadcaster::with(
            vec![Box::new(sink)],
            Limits::default(),
            Hands::default().clock(),
        );
        let recorder = broadcaster.recorder("example.com/tester", "tester-0");
        for _ in 0..3 {
            recorder.record(
                &object("a"),
                Note::warning("Failed", "Testing", "it failed").related(object("b")),
            );
        }
        broadcaster.stop().await;
        let path = if core {
            "/api/v1/events"
        } else {
            "/apis/events.k8s.io/v1/events"
        };
        let list = send(&cluster, "GET", path, Value::Null).await;
        let items = list["items"].as_array().unwrap();
        assert_eq!(items.len(), 1, "{items:?}");
        let event = &items[0];
        assert_eq!(event["type"], "Warning");
        if core {
            assert_eq!(
                (&event["count"], &event["message"]),
                (&json!(3), &json!("it failed"))
            );
            assert_eq!(event["source"]["component"], "example.com/tester");
            assert_eq!(event["lastTimestamp"], "2023-11-14T22:13:22Z");
        } else {
            assert_eq!(
                (&event["series"]["count"], &event["note"]),
                (&json!(3), &json!("it failed"))
            );
            assert_eq!(event["reportingController"], "example.com/tester");
        }
        assert_eq!(event["related"]["name"], "b");
    }
}

/// The stored events after one record.
async fn recorded(regarding: ObjectReference, note: Note) -> Value {
    let cluster = start().await;
    let sink = ApiSink::new(cluster.client());
    let broadcaster = Broadcaster::with(
        vec![Box::new(sink)],
        Limits::default(),
        Hands::default().clock(),
    );
    broadcaster
        .recorder("example.com/tester", "tester-0")
        .record(&regarding, note);
    broadcaster.stop().await;
    send(
        &cluster,
        "GET",
        "/apis/events.k8s.io/v1/events",
        Value::Null,
    )
    .await["items"]
        .clone()
}

#[tokio::test(start_paused = true)]
async fn event_has_annotations_and_a_truncated_message() {
    let note =
        Note::normal("Tested", "Testing", "\u{fc}".repeat(600)).annotated("example.com/a", "b");
    let events = recorded(object("a"), note).await;
    assert_eq!(events[0]["metadata"]["annotations"]["example.com/a"], "b");
    let expected = format!("{}...", "\u{fc}".repeat(510));
    assert_eq!(events[0]["note"], expected);
}

#[tokio::test(start_paused = true)]
async fn event_names_are_valid_for_any_object_name() {
    for name in ["system:node", "Upper", "-", "a..b", &"long".repeat(63)] {
        let events = recorded(object(name), Note::normal("Tested", "Testing", "x")).await;
        assert_eq!(events.as_array().unwrap().len(), 1, "{name}");
        assert_eq!(events[0]["regarding"]["name"], *name);
    }
    let events = recorded(object("a.b-1"), Note::normal("Tested", "Testing", "x")).await;
    assert!(
        events[0]["metadata"]["name"]
            .as_str()
            .unwrap()
            .starts_with("a.b-1."),
        "{events}"
    );
}

#[tokio::test(start_paused = true)]
async fn expired_event_is_created_again() {
    let cluster = start().await;
    let sink = ApiSink::core(cluster.client());
    let broadcaster = Broadcaster::with(
        vec![Box::new(sink)],
        Limits::default(),
        Hands::default().clock(),
    );
    let recorder = broadcaster.recorder("tester", "tester-0");
    let path = "/api/v1/namespaces/default/events";
    recorder.record(&object("a"), Note::normal("Tested", "Testing", "x"));
    let name = loop {
        let list = send(&cluster, "GET", path, Value::Null).await;
        if let Some(name) = list["items"][0]["metadata"]["name"].as_str() {
            break name.to_string();
        }
        tokio::task::yield_now().await;
    };
    send(&cluster, "DELETE", &format!("{path}/{name}"), Value::Null).await;
    recorder.record(&object("a"), Note::normal("Tested", "Testing", "x"));
    broadcaster.stop().await;
    let list = send(&cluster, "GET", path, Value::Null).await;
    assert_eq!(list["items"][0]["count"], 2);
}

/// A sink that records the names of events.
#[derive(Clone, Default)]
struct Names(Arc<Mutex<Vec<String>>>);

impl Sink for Names {
    fn send<'a>(
        &'a mut self,
        event: &'a CorrelatedEvent,
    ) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        self.0.lock().push(event.name.clone());
        Box::pin(std::future::ready(()))
    }
}

#[tokio::test(start_paused = true)]
async fn simultaneous_events_have_distinct_names() {
    let names = Names::default();
    let still: Clock = Arc::new(|| Timestamp::from_second(1_700_000_000).unwrap());
    let broadcaster = Broadcaster::with(vec![Box::new(names.clone())], Limits::default(), still);
    let recorder = broadcaster.recorder("tester", "tester-0");
    for message in ["one", "two", "one"] {
        recorder.record(&object("a"), Note::normal("Tested", "Testing", message));
    }
    broadcaster.stop().await;
    let names = names.0.lock().clone();
    assert_ne!(names[0], names[1]);
    assert_eq!(names[0], names[2], "the same again is the same event");
}
