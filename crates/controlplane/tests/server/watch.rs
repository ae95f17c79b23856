//! What a watcher is told, and in which order.

use std::time::Duration;

use tokio::time::Instant;

use crate::rig::{CONFIG_MAPS, Rig};

#[tokio::test(start_paused = true)]
async fn a_watch_from_a_resource_version_sends_later_events() {
    let rig = Rig::new().await;
    rig.make("before", "").await;
    let version = rig.get(CONFIG_MAPS).await.version();
    rig.make("a", "").await;
    rig.patch(&format!("{CONFIG_MAPS}/a"), r#"{"data":{"x":"y"}}"#)
        .await
        .expect(200);
    rig.delete(&format!("{CONFIG_MAPS}/a"), "")
        .await
        .expect(200);
    let mut events = rig
        .watch(&format!(
            "{CONFIG_MAPS}?watch=1&resourceVersion={version}&timeoutSeconds=1"
        ))
        .await;
    for expected in ["ADDED a", "MODIFIED a", "DELETED a", "end"] {
        assert_eq!(events.next_name().await, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn resource_versions_of_a_watch_increase() {
    let rig = Rig::new().await;
    let mut events = rig.watch(&format!("{CONFIG_MAPS}?watch=1")).await;
    let mut last = 0;
    for number in 0..50 {
        rig.make(&format!("n{number}"), "").await;
        if number % 3 == 0 {
            rig.delete(&format!("{CONFIG_MAPS}/n{number}"), "")
                .await
                .expect(200);
        }
    }
    for _ in 0..50 + 17 {
        let event = events.next().await.expect("an event");
        let version: u64 = event
            .at("object.metadata.resourceVersion")
            .str()
            .parse()
            .unwrap();
        assert!(version > last, "{version} after {last}");
        last = version;
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_that_enters_or_leaves_a_selector_is_added_or_deleted() {
    let rig = Rig::new().await;
    let path = format!("{CONFIG_MAPS}/a");
    let mut events = rig
        .watch(&format!(
            "{CONFIG_MAPS}?watch=1&labelSelector=on&timeoutSeconds=1"
        ))
        .await;
    rig.make("a", "").await;
    rig.patch(&path, r#"{"metadata":{"labels":{"on":""}}}"#)
        .await
        .expect(200);
    rig.patch(&path, r#"{"data":{"x":"y"}}"#).await.expect(200);
    let left = rig
        .patch(&path, r#"{"metadata":{"labels":{"on":null}}}"#)
        .await
        .expect(200);
    for expected in ["ADDED a", "MODIFIED a"] {
        assert_eq!(events.next_name().await, expected);
    }
    // Kubernetes: what leaves is shown as it was, at the version at which it left.
    let event = events.next().await.expect("an event");
    assert_eq!(event["type"].str(), "DELETED");
    assert_eq!(
        event.at("object.metadata.resourceVersion").str(),
        left.version().to_string()
    );
    assert_eq!(event.at("object.metadata.labels").entries().count(), 1);
    assert_eq!(events.next_name().await, "end");
}

#[tokio::test(start_paused = true)]
async fn a_pod_deleted_without_grace_is_modified_and_then_deleted() {
    const PODS: &str = "/api/v1/namespaces/default/pods";
    let rig = Rig::new().await;
    let pod = r#"{"metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i"}]}}"#;
    rig.post(PODS, pod).await.expect(201);
    let mut events = rig.watch(&format!("{PODS}?watch=1&timeoutSeconds=1")).await;
    rig.delete(&format!("{PODS}/a"), r#"{"gracePeriodSeconds":0}"#)
        .await
        .expect(200);
    assert_eq!(events.next_name().await, "ADDED a");
    for expected in ["MODIFIED", "DELETED"] {
        let event = events.next().await.expect("an event");
        assert_eq!(event["type"].str(), expected);
        assert!(!event.at("object.metadata.deletionTimestamp").is_null());
    }
    assert_eq!(events.next_name().await, "end");
}

#[tokio::test(start_paused = true)]
async fn an_object_deleted_by_its_last_finalizer_is_sent_as_it_was_stored() {
    let rig = Rig::new().await;
    let path = format!("{CONFIG_MAPS}/a");
    let held = r#"{"metadata":{"name":"a","finalizers":["example.com/hold"]}}"#;
    rig.post(CONFIG_MAPS, held).await.expect(201);
    rig.delete(&path, "").await.expect(200);
    let mut events = rig
        .watch(&format!("{CONFIG_MAPS}?watch=1&timeoutSeconds=1"))
        .await;
    rig.patch(
        &path,
        r#"{"metadata":{"finalizers":null},"data":{"x":"y"}}"#,
    )
    .await
    .expect(200);
    assert_eq!(events.next_name().await, "ADDED a");
    let event = events.next().await.expect("an event");
    assert_eq!(event["type"].str(), "DELETED");
    assert_eq!(event.at("object.metadata.finalizers").list().len(), 1);
    assert!(event.at("object.data").is_null());
}

#[tokio::test(start_paused = true)]
async fn a_watch_with_bookmarks_and_no_resource_version_gets_initial_events() {
    let rig = Rig::new().await;
    let before = rig.make("a", "").await.version();
    rig.make("b", "").await;
    let watch = "watch=1&timeoutSeconds=1&allowWatchBookmarks=true";
    for version in ["", "&resourceVersion=", "&resourceVersion=0"] {
        let path = format!("{CONFIG_MAPS}?{watch}{version}");
        let mut events = rig.watch(&path).await;
        assert_eq!(events.next_name().await, "ADDED a");
        assert_eq!(events.next_name().await, "ADDED b");
        let bookmark = events.next().await.expect("a bookmark");
        let annotations = &bookmark["object"]["metadata"]["annotations"];
        assert_eq!(annotations["k8s.io/initial-events-end"].str(), "true");
    }
    let path = format!("{CONFIG_MAPS}?{watch}&resourceVersion={before}");
    let mut events = rig.watch(&path).await;
    assert_eq!(events.next_name().await, "ADDED b");
    if let Some(event) = events.next().await {
        assert!(event["object"]["metadata"]["annotations"].is_null());
    }
}

#[tokio::test(start_paused = true)]
async fn initial_events_end_with_a_bookmark() {
    let rig = Rig::new().await;
    rig.make("a", "").await;
    rig.make("b", "").await;
    let query = "watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=1";
    let mut events = rig.watch(&format!("{CONFIG_MAPS}?{query}")).await;
    assert_eq!(events.next_name().await, "ADDED a");
    assert_eq!(events.next_name().await, "ADDED b");
    let bookmark = events.next().await.expect("a bookmark");
    assert_eq!(bookmark["type"].str(), "BOOKMARK");
    assert_eq!(
        bookmark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"].str(),
        "true"
    );
    rig.make("c", "").await;
    assert_eq!(events.next_name().await, "ADDED c");
}

#[tokio::test(start_paused = true)]
async fn a_stopping_server_ends_its_watches() {
    let rig = Rig::new().await;
    let mut events = rig.watch(&format!("{CONFIG_MAPS}?watch=1")).await;
    rig.server.stop();
    assert_eq!(events.next_name().await, "end");
    rig.get("/readyz").await.expect(500);
    rig.get("/livez").await.expect(200);
}

const WATCH_LIST: &str =
    "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";

#[tokio::test(start_paused = true)]
async fn initial_events_of_a_future_resource_version_time_out() {
    let rig = Rig::new().await;
    let current = rig.make("a", "").await.version();
    let began = Instant::now();
    let mut events = rig
        .watch(&format!(
            "{CONFIG_MAPS}?{WATCH_LIST}&resourceVersion={}",
            current + 9
        ))
        .await;
    assert_eq!(began.elapsed(), Duration::from_secs(3));
    let event = events.next().await.expect("an event");
    assert_eq!(
        (event["type"].str(), event.at("object.code").int()),
        ("ERROR", 504)
    );
    assert_eq!(
        event.at("object.message").str(),
        format!(
            "Timeout: Too large resource version: {}, current: {current}",
            current + 9
        )
    );
    assert_eq!(events.next_name().await, "end");
}

#[tokio::test(start_paused = true)]
async fn initial_events_of_a_reached_resource_version_are_sent_at_once() {
    let rig = Rig::new().await;
    let current = rig.make("a", "").await.version();
    let path = format!("{CONFIG_MAPS}?{WATCH_LIST}&resourceVersion={}", current + 1);
    let began = Instant::now();
    let (mut events, _) = tokio::join!(rig.watch(&path), rig.make("b", ""));
    assert!(began.elapsed() < Duration::from_secs(1));
    for expected in ["ADDED a", "ADDED b", "BOOKMARK "] {
        assert_eq!(events.next_name().await, expected);
    }
}

/// Kubernetes: only initial events wait; other watches begin, and tell what comes after the version.
#[tokio::test(start_paused = true)]
async fn a_watch_from_a_future_resource_version_starts_at_once_and_sends_later_events() {
    let rig = Rig::new().await;
    let current = rig.make("a", "").await.version();
    let began = Instant::now();
    let mut events = rig
        .watch(&format!(
            "{CONFIG_MAPS}?watch=1&resourceVersion={}",
            current + 1
        ))
        .await;
    assert_eq!(began.elapsed(), Duration::ZERO);
    rig.make("b", "").await;
    rig.make("c", "").await;
    assert_eq!(events.next_name().await, "ADDED c");
}
