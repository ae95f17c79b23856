//! Watches: from an old revision, compacted, with progress, in fragments, of an expiry.

use std::time::Duration;

use mizzen_etcd::client::{Client, Watch};
use mizzen_etcd::messages::{
    CompactionRequest, Event, EventType, LeaseGrantRequest, RequestOp, WatchCreateRequest,
};
use tokio::time::timeout;

use crate::calls::{put, unconditional};
use crate::server::{self, Options};

fn from(revision: i64) -> WatchCreateRequest {
    WatchCreateRequest {
        key: "/pods/".into(),
        range_end: "/pods0".into(),
        start_revision: revision,
        prev_kv: true,
        ..WatchCreateRequest::default()
    }
}

/// The next `n_events` events, in a line each.
async fn events(watch: &mut Watch, n_events: usize) -> Vec<String> {
    let mut lines = Vec::new();
    while lines.len() < n_events {
        let next = timeout(Duration::from_secs(30), watch.next());
        let response = next.await.expect("in time").expect("events");
        lines.extend(response.events.iter().map(line));
    }
    lines
}

fn line(event: &Event) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let kv = event.kv.as_ref().expect("a key");
    let before = event.prev_kv.as_ref().map(|kv| text(&kv.value));
    let before = before.unwrap_or("-".into());
    match EventType::try_from(event.r#type).expect("a type") {
        EventType::Put => format!("put {} {before} {}", text(&kv.key), text(&kv.value)),
        EventType::Delete => format!("delete {} {before}", text(&kv.key)),
    }
}

async fn delete(client: &Client, key: &'static str) {
    let delete = unconditional(RequestOp::delete(key));
    client.txn(delete).await.expect("a delete");
}

#[tokio::test]
async fn a_watch_from_an_old_revision_has_every_change_with_what_was_before() {
    for etcd in server::installed() {
        let cluster = etcd.start(Options::default()).await;
        let client = cluster.client();
        put(&client, "/pods/a", "0").await;
        let first = put(&client, "/pods/a", "1").await;
        put(&client, "/other", "x").await;
        put(&client, "/pods/b", "1").await;
        delete(&client, "/pods/a").await;

        let mut watch = client.watch(from(first)).await.expect("a watch");
        let expected = ["put /pods/a 0 1", "put /pods/b - 1", "delete /pods/a 1"];
        assert_eq!(events(&mut watch, 3).await, expected);
        put(&client, "/pods/b", "2").await;
        assert_eq!(events(&mut watch, 1).await, ["put /pods/b 1 2"]);
    }
}

#[tokio::test]
async fn a_watch_from_a_compacted_revision_ends_as_compacted() {
    for etcd in server::installed() {
        let cluster = etcd.start(Options::default()).await;
        let client = cluster.client();
        let first = put(&client, "/pods/a", "1").await;
        let second = put(&client, "/pods/a", "2").await;
        let compact = CompactionRequest {
            revision: second,
            physical: false,
        };
        client.compact(compact).await.expect("a compaction");
        let error = match client.watch(from(first)).await {
            Ok(mut watch) => watch.next().await.expect_err("compacted"),
            Err(error) => error,
        };
        assert!(error.is_compacted(), "{error:?}");
    }
}

#[tokio::test]
async fn progress_is_told_on_request() {
    for etcd in server::installed() {
        let cluster = etcd.start(Options::default()).await;
        let client = cluster.client();
        let first = put(&client, "/pods/a", "1").await;
        let mut watch = client.watch(from(first)).await.expect("a watch");
        assert_eq!(events(&mut watch, 1).await.len(), 1);
        let last = put(&client, "/other", "x").await;
        // etcd before 3.4.25 and 3.5.8 drops a request now and then (issue 15220).
        let requester = watch.progress_requester();
        let told = timeout(Duration::from_secs(30), async {
            loop {
                requester.request_progress();
                match timeout(Duration::from_millis(200), watch.next()).await {
                    Ok(response) => return response.expect("progress"),
                    Err(_) => continue,
                }
            }
        });
        let told = told.await.expect("in time");
        assert!(told.events.is_empty(), "{told:?}");
        assert_eq!(told.header.expect("a header").revision, last);
    }
}

#[tokio::test]
async fn a_key_expires_with_its_lease() {
    for etcd in server::installed() {
        let cluster = etcd.start(Options::default()).await;
        let client = cluster.client();
        let mut watch = client.watch(from(0)).await.expect("a watch");
        let grant = LeaseGrantRequest { ttl: 1, id: 0 };
        let lease = client.lease_grant(grant).await.expect("a lease");
        let put = RequestOp::put("/pods/a", "1", lease.id);
        client.txn(unconditional(put)).await.expect("a write");
        let expected = ["put /pods/a - 1", "delete /pods/a 1"];
        assert_eq!(events(&mut watch, 2).await, expected);
    }
}

#[tokio::test]
async fn fragments_of_a_large_response_are_joined() {
    for etcd in server::installed() {
        let cluster = etcd.start(Options::default()).await;
        let client = cluster.client();
        let value = |index: u8| vec![b'a' + index; 1_000_000];
        let mut first = 0;
        for index in 0..5 {
            let revision = put(&client, &format!("/pods/{index}"), value(index)).await;
            first = if index == 0 { revision } else { first };
        }
        let request = WatchCreateRequest {
            fragment: true,
            ..from(first)
        };
        let mut watch = client.watch(request).await.expect("a watch");
        let response = watch.next().await.expect("events");
        assert!(!response.fragment);
        let values = response
            .events
            .iter()
            .map(|event| event.kv.as_ref().expect("a key").value.clone());
        let values: Vec<_> = values.collect();
        // All five were there when the watch began, so etcd sends them as one response.
        let expected: Vec<_> = (0..5).map(value).collect();
        assert!(values == expected, "{} events", values.len());
    }
}

#[tokio::test]
async fn more_watches_than_a_connection_takes_hold_up_no_call() {
    for etcd in server::installed() {
        let options = Options {
            tls: true,
            ..Options::default()
        };
        let cluster = etcd.start(options).await;
        let client = cluster.client();
        let mut watches = Vec::new();
        for _ in 0..300 {
            watches.push(client.watch(from(0)).await.expect("a watch"));
        }
        put(&client, "/pods/a", "1").await;
        for watch in &mut watches {
            assert_eq!(events(watch, 1).await, ["put /pods/a - 1"]);
        }
    }
}
