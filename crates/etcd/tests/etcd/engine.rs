//! The engine on etcd: the suite of all engines, and what holds for it alone.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use mizzen_etcd::client::Client;
use mizzen_etcd::messages::LeaseRevokeRequest;
use mizzen_etcd::{ClusterOverride, EngineOptions};
use mizzen_store::conformance::{self, Rig};
use mizzen_store::{
    Codec, Draft, EncodedRecord, EncryptionError, Event, EventKind, Expect, KeyMark, ReadError,
    Revision, Store, Write, WriteError,
};
use mizzen_value::clock::Clock;
use tokio::task::yield_now;
use tokio::time::{Instant, timeout};

use crate::calls::get;
use crate::server::{self, Cluster, Options};

/// How long a test waits for what must happen.
const LIMIT: Duration = Duration::from_secs(30);

/// Writes stamp and terms in a line before the value.
#[derive(Debug)]
pub(crate) struct PlainCodec;

impl Codec for PlainCodec {
    fn prefix(&self, space: &str) -> String {
        format!("/test/{space}/")
    }

    fn encode(
        &self,
        _space: &str,
        _key: &str,
        draft: &Draft,
    ) -> Result<EncodedRecord, EncryptionError> {
        let stamp = draft.stamp.map_or("-".into(), |stamp| stamp.to_string());
        let head = format!("{stamp} {}\n", draft.terms.join(" "));
        Ok(EncodedRecord {
            bytes: [head.as_bytes(), &draft.value].concat().into(),
            mark: KeyMark::PLAIN,
        })
    }

    fn decode(&self, _space: &str, _key: &str, bytes: &Bytes) -> (Draft, KeyMark) {
        let text = std::str::from_utf8(bytes).unwrap();
        let (head, value) = text.split_once('\n').unwrap();
        let (stamp, terms) = head.split_once(' ').unwrap();
        let draft = Draft {
            value: value.to_owned().into(),
            stamp: stamp.parse().ok(),
            terms: terms.split_whitespace().map(Into::into).collect(),
            ..Draft::default()
        };
        (draft, KeyMark::PLAIN)
    }

    fn mark(&self, _space: &str) -> KeyMark {
        KeyMark::PLAIN
    }
}

/// A clock that stands still at second 100.
pub(crate) struct Still;

impl Clock for Still {
    fn now(&self) -> (i64, u32) {
        (100, 0)
    }
}

pub(crate) fn store(client: Client) -> Store {
    let options = EngineOptions {
        window: conformance::options().window,
        ..EngineOptions::new(Arc::new(PlainCodec), Arc::new(Still))
    };
    mizzen_etcd::store(client, options)
}

/// A store on an etcd of its own, for each version of etcd that is installed.
async fn rigs() -> Vec<Rig> {
    let mut rigs = Vec::new();
    for etcd in server::installed() {
        let cluster = etcd.start(Options::default()).await;
        let client = cluster.client();
        let mut rig = Rig::new(store(client.clone())).await;
        rig.now = 100;
        rig.reopen = Some(Box::new(move || {
            Box::pin(std::future::ready(store(client.clone())))
        }));
        rig.keep = Box::new(cluster);
        rigs.push(rig);
    }
    rigs
}

mod conforms {
    mizzen_store::conforms!(super::rigs);
}

/// Two stores on one etcd, as two API servers have them.
struct Pair {
    one: Store,
    other: Store,
    cluster: Cluster,
}

async fn pairs(options: Options) -> Vec<Pair> {
    let mut pairs = Vec::new();
    for etcd in server::installed() {
        let cluster = etcd.start(options.clone()).await;
        let open = || store(cluster.client());
        let (one, other) = (open(), open());
        for store in [&one, &other] {
            store.keyspace("things");
            store.filled().await;
        }
        pairs.push(Pair {
            one,
            other,
            cluster,
        });
    }
    pairs
}

async fn put(store: &Store, key: &str, value: &str) -> Revision {
    let draft = Draft {
        value: value.to_owned().into(),
        ..Draft::default()
    };
    let write = Write::put(&store.keyspace("things"), key, Expect::Any, draft);
    store.commit_one(write).await.unwrap().revision
}

async fn delete(store: &Store, key: &str) -> Revision {
    let space = store.keyspace("things");
    let write = Write::delete(&space, key, Expect::Any, Draft::default());
    store.commit_one(write).await.unwrap().revision
}

fn story(events: &[Event]) -> Vec<String> {
    let tell = |event: &Event| match event.kind {
        EventKind::Put => format!("+{}@{}", event.record.key, event.revision),
        EventKind::Delete => format!("-{}@{}", event.record.key, event.revision),
    };
    events.iter().map(tell).collect()
}

#[tokio::test]
async fn another_store_reads_what_was_acknowledged() {
    for Pair { one, other, .. } in pairs(Options::default()).await {
        let space = other.keyspace("things");
        for n in 0..50 {
            let value = n.to_string();
            let revision = put(&one, "a", &value).await;
            let snapshot = other.latest(&space).await.unwrap();
            let record = snapshot.get("a").unwrap();
            assert_eq!(
                (record.revision, &record.value[..]),
                (revision, value.as_bytes())
            );
            assert!(snapshot.at() >= revision);
            let record = other.get(&space, "a").await.unwrap().unwrap();
            assert_eq!(record.revision, revision);
        }
        let gone = delete(&one, "a").await;
        assert!(other.get(&space, "a").await.unwrap().is_none());
        let snapshot = other.latest(&space).await.unwrap();
        assert!(snapshot.is_empty() && snapshot.at() >= gone);
    }
}

#[tokio::test]
async fn another_store_watches_each_event_once() {
    for Pair { one, other, .. } in pairs(Options::default()).await {
        let mut watch = other.keyspace("things").watch(Revision::FIRST).unwrap();
        put(&one, "a", "1").await;
        put(&other, "b", "1").await;
        delete(&one, "a").await;
        let mut seen = Vec::new();
        while seen.len() < 3 {
            let events = timeout(LIMIT, watch.next()).await.unwrap();
            seen.extend(story(&events.unwrap()));
        }
        assert_eq!(seen, ["+a@2", "+b@3", "-a@4"]);
    }
}

#[tokio::test]
async fn a_stale_expectation_has_the_record_of_another_store() {
    for Pair { one, other, .. } in pairs(Options::default()).await {
        let first = put(&one, "a", "1").await;
        let second = put(&other, "a", "2").await;
        let space = one.keyspace("things");
        let write = Write::put(&space, "a", Expect::At(first), Draft::default());
        let refused = one.commit_one(write).await.unwrap_err();
        assert!(
            matches!(refused, WriteError::Conflict { write: 0, expected, actual }
                if expected == first && actual.revision == second && actual.value == "2")
        );
    }
}

#[tokio::test]
async fn a_revision_from_before_the_start_is_read_from_etcd() {
    for Pair { one, cluster, .. } in pairs(Options::default()).await {
        let first = put(&one, "a", "1").await;
        put(&one, "a", "2").await;
        put(&one, "b", "1").await;
        let late = store(cluster.client());
        let space = late.keyspace("things");
        late.filled().await;
        assert!(space.snapshot_at(first).is_err(), "not in its window");
        let snapshot = late.snapshot_at(&space, first).await.unwrap();
        let record = snapshot.get("a").unwrap();
        assert_eq!(
            (record.revision, &record.value[..], snapshot.len()),
            (first, &b"1"[..], 1)
        );
        assert!(space.snapshot_at(first).is_ok(), "kept for the next page");
    }
}

#[tokio::test]
async fn one_of_two_stores_compacts() {
    for Pair {
        one,
        other,
        cluster,
    } in pairs(Options::default()).await
    {
        let old = put(&one, "a", "1").await;
        put(&one, "a", "2").await;
        // The first round tells when the past began, the second one compacts it.
        for _ in 0..2 {
            one.compact_history(one.revision()).await;
            other.compact_history(other.revision()).await;
        }
        let late = store(cluster.client());
        let space = late.keyspace("things");
        late.filled().await;
        let expired = late.snapshot_at(&space, old).await.unwrap_err();
        assert!(matches!(expired, ReadError::Expired(_)), "{expired}");
        // Stores that were there before go on.
        let mut watch = other.keyspace("things").watch(other.revision()).unwrap();
        let revision = put(&one, "a", "3").await;
        let events = timeout(LIMIT, watch.next()).await.unwrap().unwrap();
        assert_eq!(story(&events), [format!("+a@{revision}")]);
    }
}

/// The version of the key by which stores agree on compaction, its value, and the revision that wrote it.
async fn agreement(client: &Client) -> (i64, String, i64) {
    let read = client.range(get("compact_rev_key")).await.unwrap();
    let kv = &read.kvs[0];
    let value = String::from_utf8(kv.value.to_vec()).unwrap();
    (kv.version, value, kv.mod_revision)
}

/// Kubernetes: the version counts the rounds, and the value is the revision that the round compacts
/// (storage/etcd3/compact.go).
#[tokio::test]
async fn stores_write_the_key_of_the_agreement_once_per_round() {
    for pair in pairs(Options::default()).await {
        let client = pair.cluster.client();
        let mut compacted = "0".to_owned();
        for round in 1..=4 {
            put(&pair.one, "a", &round.to_string()).await;
            pair.one.compact_history(Revision::ZERO).await;
            pair.other.compact_history(Revision::ZERO).await;
            let (version, value, revision) = agreement(&client).await;
            assert_eq!((version, value), (round, compacted));
            compacted = revision.to_string();
        }
        // The other one goes on alone, from what it has seen.
        put(&pair.other, "a", "5").await;
        pair.other.compact_history(Revision::ZERO).await;
        let (version, value, _) = agreement(&client).await;
        assert_eq!((version, value), (5, compacted));
    }
}

/// Waits until etcd has so many watches.
async fn wait_for_watches(cluster: &Cluster, expected: usize) {
    let waiting = async {
        while cluster.n_watches(0) != expected {
            yield_now().await;
        }
    };
    let reached = timeout(LIMIT, waiting).await;
    assert!(reached.is_ok(), "{} watches", cluster.n_watches(0));
}

#[tokio::test]
async fn a_released_keyspace_has_no_watch_once_nothing_uses_it() {
    for etcd in server::installed() {
        let cluster = etcd.start(Options::default()).await;
        let store = store(cluster.client());
        put(&store, "a", "1").await;
        let names: Vec<String> = (0..50).map(|n| format!("custom{n}")).collect();
        let name = names[0].as_str();
        let write = |value: &str| {
            let draft = Draft {
                value: value.to_owned().into(),
                ..Draft::default()
            };
            Write::put(&store.keyspace(name), "a", Expect::Any, draft)
        };
        for name in &names {
            store.keyspace(name);
        }
        store.filled().await;
        wait_for_watches(&cluster, 51).await;
        // A list and a watch that run when the keyspace is released come to their end.
        let first = store.commit_one(write("1")).await.unwrap();
        let space = store.keyspace(name);
        let mut watch = space.watch(first.revision).unwrap();
        for name in &names {
            store.release(name);
        }
        store.expire(100).await.unwrap();
        wait_for_watches(&cluster, 2).await;
        assert_eq!(store.latest(&space).await.unwrap().len(), 1);
        drop(space);
        store.expire(100).await.unwrap();
        let second = store.commit_one(write("2")).await.unwrap();
        let events = timeout(LIMIT, watch.next()).await.unwrap().unwrap();
        assert_eq!(story(&events), [format!("+a@{}", second.revision)]);
        drop((watch, events));
        store.expire(100).await.unwrap();
        wait_for_watches(&cluster, 1).await;
        assert_eq!(store.stats().len(), 1);
        // Used again, it has what etcd has.
        let space = store.keyspace(name);
        store.filled_one(&space).await;
        let record = space.snapshot().get("a").cloned().unwrap();
        assert_eq!(
            (record.revision, &record.value[..]),
            (second.revision, &b"2"[..])
        );
        let mut watch = space.watch(second.revision).unwrap();
        let third = store.commit_one(write("3")).await.unwrap();
        let events = timeout(LIMIT, watch.next()).await.unwrap().unwrap();
        assert_eq!(story(&events), [format!("+a@{}", third.revision)]);
        wait_for_watches(&cluster, 2).await;
    }
}

/// Each cluster counts revisions of its own.
#[tokio::test]
async fn the_past_of_a_cluster_does_not_depend_on_the_revision_of_another() {
    for etcd in server::installed().into_iter().take(1) {
        let (main, other) = tokio::join!(
            etcd.start(Options::default()),
            etcd.start(Options::default())
        );
        let options = EngineOptions {
            window: conformance::options().window,
            overrides: vec![ClusterOverride {
                spaces: vec!["others".into()],
                client: other.client(),
            }],
            ..EngineOptions::new(Arc::new(PlainCodec), Arc::new(Still))
        };
        let store = mizzen_etcd::store(main.client(), options);
        let space = store.keyspace("things");
        let others = store.keyspace("others");
        let ahead = async || {
            for _ in 0..20 {
                let write = Write::put(&others, "a", Expect::Any, Draft::default());
                store.commit_one(write).await.unwrap();
            }
        };
        let first = put(&store, "a", "1").await;
        ahead().await;
        assert!(store.revision() > first);
        // A page is kept until its own cluster is compacted.
        store.compact_history(store.revision()).await;
        put(&store, "a", "2").await;
        let page = space.snapshot();
        space.retain(&page);
        put(&store, "a", "3").await;
        store.compact_history(store.revision()).await;
        assert!(space.retained(page.at(), "").is_some());
        store.compact_history(store.revision()).await;
        assert!(space.retained(page.at(), "").is_none());
        // The window has what was written within its time.
        store.expire(100).await.unwrap();
        let before = space.revision();
        for value in ["4", "5", "6", "7", "8", "9"] {
            put(&store, "a", value).await;
        }
        store.expire(175).await.unwrap();
        assert!(space.watch(before).is_ok());
        assert!(space.watch(first).is_err());
    }
}

#[tokio::test]
async fn a_record_expires_by_its_lease() {
    for Pair { one, other, .. } in pairs(Options::default()).await {
        let space = one.keyspace("things");
        let short = Draft {
            value: "x".into(),
            expires: Some(101),
            ..Draft::default()
        };
        let write = Write::put(&space, "a", Expect::Absent, short);
        let record = one.commit_one(write).await.unwrap();
        let mut watch = other.keyspace("things").watch(record.revision).unwrap();
        let events = timeout(LIMIT, watch.next()).await.unwrap().unwrap();
        assert_eq!(events[0].kind, EventKind::Delete);
        assert_eq!(&events[0].record.value[..], b"x");
    }
}

/// Creates a record of a keyspace that expires after some seconds, and returns the number of its lease.
async fn create_leased(pair: &Pair, space: &str, key: &str, seconds: u64) -> i64 {
    let draft = Draft {
        expires: Some(100 + seconds),
        ..Draft::default()
    };
    let write = Write::put(&pair.one.keyspace(space), key, Expect::Absent, draft);
    pair.one.commit_one(write).await.unwrap();
    let client = pair.cluster.client();
    let read = client.range(get(&format!("/test/{space}/{key}"))).await;
    read.unwrap().kvs[0].lease
}

#[tokio::test]
async fn leases_are_shared_within_a_keyspace_and_renewed_when_etcd_forgets_them() {
    for pair in pairs(Options::default()).await {
        let first = create_leased(&pair, "things", "a", 3_600).await;
        // Records of another keyspace, with a time to live that is too short to be shared.
        let [other, next] = ["a", "b"].map(|key| create_leased(&pair, "others", key, 15));
        let (other, next) = (other.await, next.await);
        assert!(other != first && next != other);
        assert_eq!(create_leased(&pair, "things", "b", 3_600).await, first);
        let client = pair.cluster.client();
        let revoke = LeaseRevokeRequest { id: first };
        client.lease_revoke(revoke).await.unwrap();
        let second = create_leased(&pair, "things", "c", 3_600).await;
        assert!(second != first && second != 0);
        assert_eq!(create_leased(&pair, "things", "d", 3_600).await, second);
    }
}

#[tokio::test]
async fn a_lease_is_shared_within_the_reuse_duration_by_at_most_a_thousand_records() {
    for etcd in server::installed().into_iter().take(1) {
        let cluster = etcd.start(Options::default()).await;
        let client = cluster.client();
        // The leases of records with these times to live, in seconds, in groups that are written together.
        let leases = async |reuse: u64, seconds: &[u64]| {
            let options = EngineOptions {
                lease_reuse: Duration::from_secs(reuse),
                ..EngineOptions::new(Arc::new(PlainCodec), Arc::new(Still))
            };
            let store = mizzen_etcd::store(cluster.client(), options);
            let space = store.keyspace("leased");
            store.filled().await;
            let write = |(index, seconds): (usize, &u64)| {
                let draft = Draft {
                    expires: Some(100 + seconds),
                    ..Draft::default()
                };
                Write::put(&space, format!("{index:04}"), Expect::Any, draft)
            };
            let mut writes = seconds.iter().enumerate().map(write).peekable();
            while writes.peek().is_some() {
                let transaction = writes.by_ref().take(100).collect();
                store.commit(transaction).await.unwrap();
            }
            let mut leases = Vec::new();
            for index in 0..seconds.len() {
                let key = format!("/test/leased/{index:04}");
                leases.push(client.range(get(&key)).await.unwrap().kvs[0].lease);
            }
            leases
        };
        let [one, same] = leases(60, &[3_600, 3_600]).await[..] else {
            panic!("two leases");
        };
        assert_eq!(one, same);
        let [one, other] = leases(0, &[3_600, 3_600]).await[..] else {
            panic!("two leases");
        };
        assert_ne!(one, other, "no time to reuse it");
        let [one, same, later] = leases(20, &[3_600, 3_605, 3_650]).await[..] else {
            panic!("three leases");
        };
        assert!(one == same && later != one, "it would expire too early");
        let many = leases(60, &[3_600; 1_001]).await;
        assert!(many[..1_000].iter().all(|lease| *lease == many[0]));
        assert_ne!(many[1_000], many[0]);
    }
}

#[tokio::test]
async fn waiting_for_a_lease_of_an_etcd_that_hangs_takes_no_longer_than_a_call() {
    for etcd in server::installed().into_iter().take(1) {
        let cluster = etcd.start(Options::default()).await;
        let limit = Duration::from_secs(1);
        let store = store(cluster.client().with_call_timeout(limit));
        let space = store.keyspace("things");
        store.filled().await;
        cluster.pause(0);
        let began = Instant::now();
        let put = |key| {
            let draft = Draft {
                expires: Some(3_700),
                ..Draft::default()
            };
            store.commit_one(Write::put(&space, key, Expect::Absent, draft))
        };
        for refused in join_all(["a", "b", "c", "d"].map(put)).await {
            refused.unwrap_err();
        }
        assert!(began.elapsed() < 2 * limit, "{:?}", began.elapsed());
        cluster.resume(0);
    }
}

#[tokio::test]
async fn the_death_of_a_member_loses_no_event() {
    let three = Options {
        n_members: 3,
        ..Options::default()
    };
    for mut pair in pairs(three).await {
        let mut watch = pair
            .other
            .keyspace("things")
            .watch(Revision::FIRST)
            .unwrap();
        let mut written = Vec::new();
        for index in 0..3 {
            written.push(put(&pair.one, "a", "x").await);
            pair.cluster.kill(index);
            written.push(put_until_known(&pair.one, &index.to_string()).await);
            pair.cluster.restart(index).await;
        }
        let mut seen = Vec::new();
        while seen.last() != written.last() {
            let events = timeout(LIMIT, watch.next()).await.unwrap().unwrap();
            seen.extend(events.iter().map(|event| event.revision));
        }
        assert!(seen.is_sorted_by(|one, next| one < next), "{seen:?}");
        assert!(written.iter().all(|revision| seen.contains(revision)));
    }
}

/// Creates a key. A write whose outcome is unknown is looked up.
async fn put_until_known(store: &Store, key: &str) -> Revision {
    let space = store.keyspace("things");
    for _ in 0..30 {
        let write = Write::put(&space, key, Expect::Absent, Draft::default());
        match store.commit_one(write).await {
            Ok(record) => return record.revision,
            Err(WriteError::Exists { actual, .. }) => return actual.revision,
            Err(WriteError::Remote { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    panic!("no member takes a write");
}
