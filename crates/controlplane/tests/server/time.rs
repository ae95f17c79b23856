//! What happens when time passes.

use std::time::Duration;

use mizzen_controlplane::Options;
use tokio::time::{Instant, advance};

use crate::rig::{CONFIG_MAPS, Rig};

const EVENTS: &str = "/api/v1/namespaces/default/events";

#[tokio::test(start_paused = true)]
async fn a_watch_ends_after_the_timeout_of_its_client() {
    let rig = Rig::new().await;
    let started = Instant::now();
    let mut events = rig
        .watch(&format!("{CONFIG_MAPS}?watch=1&timeoutSeconds=7"))
        .await;
    assert_eq!(events.next_name().await, "end");
    assert_eq!(started.elapsed().as_secs(), 7);
}

#[tokio::test(start_paused = true)]
async fn a_watch_without_a_timeout_ends_between_half_an_hour_and_an_hour() {
    let rig = Rig::new().await;
    let started = Instant::now();
    let mut events = rig.watch(&format!("{CONFIG_MAPS}?watch=1")).await;
    assert_eq!(events.next_name().await, "end");
    let minutes = started.elapsed().as_secs() / 60;
    assert!((30..60).contains(&minutes), "{minutes} minutes");
}

#[tokio::test(start_paused = true)]
async fn a_watch_with_bookmarks_gets_one_a_minute_after_changes() {
    let rig = Rig::new().await;
    let version = rig.make("first", "").await.version();
    let started = Instant::now();
    let query = "watch=1&allowWatchBookmarks=true&timeoutSeconds=300&labelSelector=none";
    let path = format!("{CONFIG_MAPS}?{query}&resourceVersion={version}");
    let mut events = rig.watch(&path).await;
    let made = rig.make("unseen", "").await;
    let bookmark = events.next().await.expect("a bookmark");
    assert_eq!(bookmark["type"].str(), "BOOKMARK");
    assert_eq!(
        bookmark.at("object.metadata.resourceVersion").str(),
        made.version().to_string()
    );
    assert_eq!(started.elapsed().as_secs(), 60);
}

#[tokio::test(start_paused = true)]
async fn a_watch_without_bookmarks_gets_none() {
    let rig = Rig::new().await;
    let mut events = rig
        .watch(&format!(
            "{CONFIG_MAPS}?watch=1&timeoutSeconds=300&labelSelector=none"
        ))
        .await;
    rig.make("unseen", "").await;
    assert_eq!(events.next_name().await, "end");
}

#[tokio::test(start_paused = true)]
async fn an_event_expires_after_an_hour() {
    let rig = Rig::new().await;
    let object = r#"{"metadata":{"name":"e"},"involvedObject":{"kind":"Pod","namespace":"default","name":"p"}}"#;
    rig.post(EVENTS, object).await.expect(201);
    let mut events = rig
        .watch(&format!("{EVENTS}?watch=1&timeoutSeconds=7200"))
        .await;
    assert_eq!(events.next_name().await, "ADDED e");

    advance(Duration::from_secs(3_590)).await;
    assert_eq!(rig.server.registry().expire().await, 0);
    rig.get(&format!("{EVENTS}/e")).await.expect(200);
    advance(Duration::from_secs(20)).await;
    assert_eq!(rig.server.registry().expire().await, 1);
    rig.get(&format!("{EVENTS}/e")).await.expect(404);
    assert_eq!(events.next_name().await, "DELETED e");
}

#[tokio::test(start_paused = true)]
async fn events_are_retained_for_the_configured_ttl() {
    let object = r#"{"metadata":{"name":"e"},"involvedObject":{"kind":"Pod","namespace":"default","name":"p"}}"#;
    for (event_ttl, n_expired_early, n_expired_late) in [(30, 1, 0), (7_200, 0, 1), (0, 0, 0)] {
        let event_ttl = Duration::from_secs(event_ttl);
        let rig = Rig::with(Options {
            event_ttl,
            ..Options::default()
        })
        .await;
        rig.post(EVENTS, object).await.expect(201);
        advance(Duration::from_secs(31)).await;
        assert_eq!(
            rig.server.registry().expire().await,
            n_expired_early,
            "{event_ttl:?}"
        );
        advance(Duration::from_secs(7_200)).await;
        assert_eq!(
            rig.server.registry().expire().await,
            n_expired_late,
            "{event_ttl:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_update_renews_the_ttl_of_an_event() {
    let rig = Rig::new().await;
    let object = r#"{"metadata":{"name":"e"},"involvedObject":{"kind":"Pod","namespace":"default","name":"p"}}"#;
    rig.post(EVENTS, object).await.expect(201);
    advance(Duration::from_secs(3_000)).await;
    rig.patch(&format!("{EVENTS}/e"), r#"{"count":2}"#)
        .await
        .expect(200);
    advance(Duration::from_secs(3_000)).await;
    assert_eq!(rig.server.registry().expire().await, 0);
}
