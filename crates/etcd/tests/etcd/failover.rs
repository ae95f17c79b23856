//! Members that are killed or paused.

use std::time::Duration;

use mizzen_etcd::client::{Client, Outcome};
use mizzen_etcd::messages::{RangeRequest, RequestOp, WatchCreateRequest};
use mizzen_store::{Draft, Expect, Write};
use tokio::time::{Instant, sleep, timeout};

use crate::calls::{get, put, unconditional};
use crate::engine::store;
use crate::server::{self, Options};

fn three() -> Options {
    Options {
        n_members: 3,
        ..Options::default()
    }
}

#[tokio::test]
async fn calls_go_on_when_a_follower_is_killed() {
    for etcd in server::installed() {
        let mut cluster = etcd.start(three()).await;
        let client = cluster.client();
        for index in 0..3 {
            put(&client, "/a", format!("{index}")).await;
        }
        let follower = (cluster.leader().await + 1) % 3;
        cluster.kill(follower);
        // A write on a connection of which the end is not known yet may have been executed, so it is not repeated. A read
        // is, and meanwhile the end becomes known.
        for _ in 0..3 {
            client.range(get("/a")).await.expect("a read");
        }
        for index in 0..12 {
            put(&client, "/a", format!("{index}")).await;
            let read = client.range(get("/a")).await.expect("a read");
            assert_eq!(read.kvs[0].value, format!("{index}"));
        }
        cluster.restart(follower).await;
    }
}

#[tokio::test]
async fn reads_go_on_when_the_leader_is_killed() {
    for etcd in server::installed() {
        let mut cluster = etcd.start(three()).await;
        let client = cluster.client();
        put(&client, "/a", "1").await;
        let leader = cluster.leader().await;
        cluster.kill(leader);
        let read = client.range(get("/a")).await.expect("a read");
        assert_eq!(read.kvs[0].value, "1");
        put(&client, "/a", "2").await;
    }
}

#[tokio::test]
async fn a_watch_of_a_killed_member_ends_and_another_goes_on_from_there() {
    for etcd in server::installed() {
        let mut cluster = etcd.start(three()).await;
        let client = cluster.client();
        let first = put(&client, "/a", "1").await;
        let request = WatchCreateRequest {
            key: "/a".into(),
            start_revision: first,
            ..WatchCreateRequest::default()
        };
        let mut watch = client.watch(request.clone()).await.expect("a watch");
        assert_eq!(watch.next().await.expect("an event").events.len(), 1);
        let watched = (0..3).find(|index| cluster.endpoint(*index) == watch.endpoint());
        cluster.kill(watched.expect("one of three"));
        let error = watch.next().await.expect_err("the member is gone");
        assert!(error.is_unavailable(), "{error:?}");

        // A read waits for a leader if the member was that.
        client.range(get("/a")).await.expect("a read");
        let next = put(&client, "/a", "2").await;
        let request = WatchCreateRequest {
            start_revision: first + 1,
            ..request
        };
        let mut watch = client.watch(request).await.expect("a watch");
        let response = watch.next().await.expect("an event");
        let kv = response.events[0].kv.as_ref().expect("a key");
        assert_eq!(kv.mod_revision, next);
    }
}

#[tokio::test]
async fn the_deadline_ends_a_call_to_a_paused_member_and_others_are_used() {
    for etcd in server::installed() {
        let cluster = etcd.start(three()).await;
        let client = cluster.client();
        // A connection to each.
        for index in 0..3 {
            put(&client, "/a", format!("{index}")).await;
        }
        let follower = (cluster.leader().await + 1) % 3;
        cluster.pause(follower);
        let limit = Duration::from_secs(2);
        let hasty = client.with_call_timeout(limit);
        let mut n_failed = 0;
        for index in 0..9 {
            let began = Instant::now();
            let put = unconditional(RequestOp::put("/a", format!("{index}"), 0));
            if let Err(error) = hasty.txn(put).await {
                assert!(error.is_deadline_exceeded(), "{error:?}");
                assert_eq!(error.outcome, Outcome::Unknown);
                assert!(
                    error.message.contains(&cluster.endpoint(follower)),
                    "{error}"
                );
                assert!(began.elapsed() < 2 * limit, "{:?}", began.elapsed());
                n_failed += 1;
            }
        }
        assert_eq!(n_failed, 1, "only the first call to it");

        // It is used again once it answers.
        cluster.resume(follower);
        let endpoint = cluster.endpoint(follower);
        let used = timeout(Duration::from_secs(30), async {
            let request = WatchCreateRequest {
                key: "/a".into(),
                ..WatchCreateRequest::default()
            };
            while client
                .watch(request.clone())
                .await
                .expect("a watch")
                .endpoint()
                != endpoint
            {
                sleep(Duration::from_millis(20)).await;
            }
        });
        used.await.expect("the member is used again");
    }
}

#[tokio::test]
async fn without_a_quorum_calls_end_by_their_deadline() {
    for etcd in server::installed() {
        let mut cluster = etcd.start(three()).await;
        let client = cluster.client().with_call_timeout(Duration::from_secs(3));
        put(&client, "/a", "1").await;
        cluster.kill(0);
        cluster.kill(1);
        let began = Instant::now();
        let error = client.range(get("/a")).await.expect_err("no quorum");
        assert!(
            error.is_unavailable() || error.is_deadline_exceeded(),
            "{error:?}"
        );
        assert!(began.elapsed() < Duration::from_secs(6));
        let limit = Duration::from_secs(1);
        client
            .health("/registry", limit)
            .await
            .expect_err("no quorum");
        cluster.restart(0).await;
    }
}

#[tokio::test]
async fn a_watch_of_a_paused_member_ends_when_it_answers_no_ping() {
    for etcd in server::installed() {
        let cluster = etcd.start(three()).await;
        let mut config = cluster.config();
        config.keepalive_time = Duration::from_secs(1);
        config.keepalive_timeout = Duration::from_secs(1);
        let client = Client::connect(config).expect("a good configuration");
        let request = WatchCreateRequest {
            key: "/a".into(),
            ..WatchCreateRequest::default()
        };
        let mut watch = client.watch(request).await.expect("a watch");
        let watched = (0..3).find(|index| cluster.endpoint(*index) == watch.endpoint());
        cluster.pause(watched.expect("one of three"));
        let ended = timeout(Duration::from_secs(30), watch.next()).await;
        let error = ended.expect("in time").expect_err("no answer");
        assert!(error.is_unavailable(), "{error:?}");
    }
}

#[tokio::test]
async fn the_watches_of_a_paused_member_go_on_at_others_and_delay_no_writes() {
    for etcd in server::installed() {
        let cluster = etcd.start(three()).await;
        let client = cluster.client();
        let store = store(client.clone());
        let spaces: Vec<_> = (0..6)
            .map(|n| store.keyspace(&format!("space{n}")))
            .collect();
        let write_each = async || {
            let began = Instant::now();
            for space in &spaces {
                let write = Write::put(space, "a", Expect::Any, Draft::default());
                store.commit_one(write).await.expect("a write");
            }
            began.elapsed()
        };
        // Each is watched once it has shown a write, and a third of them at each member.
        write_each().await;
        let follower = (cluster.leader().await + 1) % 3;
        cluster.pause(follower);
        let hasty = client.with_call_timeout(Duration::from_millis(500));
        while hasty.range(get("/a")).await.is_ok() {}
        let took = write_each().await;
        // A write waits up to 5 s for its event.
        assert!(took < Duration::from_secs(4), "{took:?}");
        cluster.resume(follower);
    }
}

#[tokio::test]
async fn a_member_without_quorum_tells_its_status_and_what_it_has() {
    for etcd in server::installed() {
        let mut cluster = etcd.start(three()).await;
        let client = cluster.client();
        put(&client, "/a", "1").await;
        // A linearizable read from each, so that each has the write.
        for _ in 0..3 {
            client.range(get("/a")).await.expect("a read");
        }
        cluster.kill(0);
        cluster.kill(1);
        let serializable = RangeRequest {
            serializable: true,
            ..get("/a")
        };
        let read = client
            .range(serializable)
            .await
            .expect("what the member has");
        assert_eq!(read.kvs[0].value, "1");
        let answers = client.status().await;
        assert!(answers[0].status.is_err() && answers[1].status.is_err());
        answers[2].status.as_ref().expect("the member runs");
    }
}

#[tokio::test]
async fn a_write_that_is_said_not_to_be_executed_never_is() {
    for etcd in server::installed() {
        let mut cluster = etcd.start(three()).await;
        let client = cluster.client().with_call_timeout(Duration::from_secs(2));
        cluster.kill(0);
        cluster.kill(1);
        // Until the last member notices that it has no leader, it accepts a write, and the deadline passes.
        let mut not_executed = None;
        for index in 0..10 {
            let key = format!("/a/{index}");
            let put = unconditional(RequestOp::put(key.clone(), "1", 0));
            let error = client.txn(put).await.expect_err("no quorum");
            if error.outcome == Outcome::NotExecuted {
                assert!(error.is_unavailable(), "{error:?}");
                not_executed = Some(key);
                break;
            }
        }
        let key = not_executed.expect("a member without leader rejects writes");
        cluster.restart(0).await;
        cluster.restart(1).await;
        let read = cluster.client().range(get(&key)).await.expect("a read");
        assert_eq!(read.count, 0);
    }
}
