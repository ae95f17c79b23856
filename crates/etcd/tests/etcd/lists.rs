//! Lists from an etcd that does not tell how far a watch has come: what is read for them, and that they show one
//! revision.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use mizzen_etcd::client::{Client, Config};
use mizzen_etcd::{EngineOptions, EtcdMetrics};
use mizzen_metrics::Families;
use mizzen_store::{
    Codec, Draft, EncodedRecord, EncryptionError, Expect, KeyMark, Revision, Snapshot, Store, Write,
};
use tokio::task::yield_now;
use tokio::time::timeout;

use crate::engine::{PlainCodec, Still};
use crate::progress_proxy::ProgressProxy;
use crate::server::{self, Cluster, Options};

/// More than are read by their keys at once, twice.
const N_KEYS: usize = 250;
/// What etcd takes in one transaction.
const MAX_WRITES: usize = 100;
const N_ROUNDS: usize = 100;

fn store(client: Client) -> (Store, Arc<EtcdMetrics>) {
    let metrics = Arc::<EtcdMetrics>::default();
    let options = EngineOptions {
        metrics: metrics.clone(),
        ..EngineOptions::new(Arc::new(PlainCodec), Arc::new(Still))
    };
    (mizzen_etcd::store(client, options), metrics)
}

/// An etcd of each version that needs the fall-back.
async fn clusters() -> Vec<Cluster> {
    let mut clusters = Vec::new();
    for etcd in server::installed() {
        let cluster = etcd.start(Options::default()).await;
        if !cluster.client().features().await.request_watch_progress {
            clusters.push(cluster);
        }
    }
    clusters
}

/// Writes one value to all keys, in as few transactions as possible.
async fn put_all(store: &Store, keys: &[String], value: &str) -> Revision {
    put_all_in("things", store, keys, value).await
}

async fn put_all_in(space: &str, store: &Store, keys: &[String], value: &str) -> Revision {
    let space = store.keyspace(space);
    let mut last = Revision::ZERO;
    for keys in keys.chunks(MAX_WRITES) {
        let put = |key: &String| {
            let draft = Draft {
                value: value.to_owned().into(),
                ..Draft::default()
            };
            Write::put(&space, key.as_str(), Expect::Any, draft)
        };
        let records = store.commit(keys.iter().map(put).collect()).await;
        last = records.unwrap()[0].revision;
    }
    last
}

fn values(snapshot: &Snapshot, prefix: &str) -> Vec<String> {
    let records = snapshot.range(prefix, None);
    let text = |value: &[u8]| String::from_utf8(value.to_vec()).unwrap();
    records.map(|record| text(&record.value)).collect()
}

/// How many objects or keys lists have read, and how many reads of values by their keys there were.
fn counts(metrics: &EtcdMetrics) -> [usize; 2] {
    let text = Families::of(&[metrics]).to_string();
    let series: BTreeMap<&str, &str> = text
        .lines()
        .filter_map(|line| line.rsplit_once(' '))
        .collect();
    [
        r#"apiserver_storage_list_fetched_objects_total{group="",resource="things"}"#,
        r#"etcd_requests_total{group="",operation="get",resource="things"}"#,
    ]
    .map(|name| series.get(name).map_or(0, |count| count.parse().unwrap()))
}

#[tokio::test]
async fn a_list_reads_the_keys_of_its_part_and_the_values_that_are_missing() {
    for cluster in clusters().await {
        let (writer, _) = store(cluster.client());
        let many: Vec<String> = (0..N_KEYS).map(|n| format!("a/{n:03}")).collect();
        let few = ["b/0", "b/1"].map(str::to_owned);
        put_all(&writer, &few, "few").await;
        let first = put_all(&writer, &many, "first").await;
        let second = put_all(&writer, &many, "second").await;
        put_all(&writer, &many[7..8], "third").await;

        let (late, metrics) = store(cluster.client());
        let space = late.keyspace("things");
        late.filled().await;
        let mut before = counts(&metrics);
        let mut read = || {
            let now = counts(&metrics);
            let read = [now[0] - before[0], now[1] - before[1]];
            before = now;
            read
        };
        // The cache has all values: keys are read, those of the part alone.
        for (prefix, n_keys) in [("b/", 2), ("b/1", 1), ("a/", N_KEYS), ("", N_KEYS + 2)] {
            let snapshot = late.latest_below(&space, prefix).await.unwrap();
            assert_eq!(values(&snapshot, prefix).len(), n_keys, "{prefix:?}");
            assert_eq!(read(), [n_keys, 0], "{prefix:?}");
        }
        // Of the past it lacks what was written since.
        for (revision, value, n_missing, n_reads) in
            [(second, "second", 1, 1), (first, "first", N_KEYS, 3)]
        {
            let snapshot = late.snapshot_at(&space, revision).await.unwrap();
            assert_eq!(snapshot.at(), revision);
            assert_eq!(values(&snapshot, "a/"), vec![value; N_KEYS]);
            assert_eq!(values(&snapshot, "b/"), ["few", "few"]);
            assert_eq!(read(), [N_KEYS + 2 + n_missing, n_reads], "{value}");
        }
    }
}

#[tokio::test]
async fn a_keyspace_is_filled_in_pages_that_come_in_time() {
    for etcd in server::installed().into_iter().take(1) {
        let cluster = etcd.start(Options::default()).await;
        let (writer, _) = store(cluster.client());
        let keys: Vec<String> = (0..40).map(|n| format!("a/{n:02}")).collect();
        put_all(&writer, &keys, "value").await;
        let proxy = ProgressProxy::start(&cluster.endpoint(0), "3.5.13").await;
        proxy.limit_pages(30);
        let config = Config {
            endpoints: vec![proxy.endpoint.clone()],
            ..cluster.config()
        };
        let client = Client::connect(config).expect("a good configuration");
        let (slow, _) = store(client.with_call_timeout(Duration::from_millis(200)));
        let space = slow.keyspace("things");
        let filled = timeout(Duration::from_secs(30), slow.filled()).await;
        filled.expect("it is filled in small pages");
        assert_eq!(values(&space.snapshot(), ""), vec!["value"; 40]);
    }
}

/// Counts what it decodes.
#[derive(Debug, Default)]
struct CountingCodec(AtomicUsize);

impl Codec for CountingCodec {
    fn prefix(&self, space: &str) -> String {
        PlainCodec.prefix(space)
    }

    fn encode(
        &self,
        space: &str,
        key: &str,
        draft: &Draft,
    ) -> Result<EncodedRecord, EncryptionError> {
        PlainCodec.encode(space, key, draft)
    }

    fn decode(&self, space: &str, key: &str, bytes: &Bytes) -> (Draft, KeyMark) {
        self.0.fetch_add(1, Ordering::SeqCst);
        PlainCodec.decode(space, key, bytes)
    }

    fn mark(&self, space: &str) -> KeyMark {
        PlainCodec.mark(space)
    }
}

#[tokio::test]
async fn filling_a_keyspace_does_not_hold_up_other_tasks() {
    for etcd in server::installed().into_iter().take(1) {
        let cluster = etcd.start(Options::default()).await;
        let (writer, _) = store(cluster.client());
        let keys: Vec<String> = (0..1_000).map(|n| format!("a/{n:03}")).collect();
        put_all(&writer, &keys, "value").await;
        let codec = Arc::new(CountingCodec::default());
        let options = EngineOptions::new(codec.clone(), Arc::new(Still));
        let store = mizzen_etcd::store(cluster.client(), options);
        let space = store.keyspace("things");
        // This task runs on the same thread.
        let (mut decoded, mut most) = (0, 0);
        while space.revision() == Revision::ZERO {
            yield_now().await;
            let now = codec.0.load(Ordering::SeqCst);
            most = most.max(now - decoded);
            decoded = now;
        }
        assert!(
            decoded == 1_000 && most <= 200,
            "{most} of {decoded} at once"
        );
    }
}

#[tokio::test]
async fn a_list_is_read_once_for_all_its_pages() {
    for cluster in clusters().await {
        let (writer, _) = store(cluster.client());
        let keys: Vec<String> = (0..9).map(|n| format!("a/{n}")).collect();
        put_all(&writer, &keys, "first").await;
        let (late, metrics) = store(cluster.client());
        let space = late.keyspace("things");
        late.filled().await;
        // The cache of a resource does not see that etcd goes on with others.
        put_all_in("others", &writer, &keys, "other").await;
        for prefix in ["a/", ""] {
            let first = late.latest_below(&space, prefix).await.unwrap();
            assert!(first.at() > space.revision());
            space.retain(&first);
            let before = counts(&metrics);
            for _ in 0..3 {
                let next = late.snapshot_below(&space, prefix, first.at());
                assert_eq!(values(&next.await.unwrap(), prefix), vec!["first"; 9]);
            }
            assert_eq!(counts(&metrics), before, "{prefix:?}");
        }
        // Another part is read, and nothing but that.
        let revision = put_all_in("others", &writer, &keys, "again").await;
        let before = counts(&metrics);
        let one = late.snapshot_below(&space, "a/1", revision).await.unwrap();
        assert_eq!(values(&one, "a/1"), ["first"]);
        assert_eq!(counts(&metrics)[0], before[0] + 1);
    }
}

#[tokio::test]
async fn a_list_shows_one_revision_while_its_keys_are_written() {
    for cluster in clusters().await {
        let (writer, _) = store(cluster.client());
        let (reader, _) = store(cluster.client());
        let pair = ["a/x", "a/y"].map(str::to_owned);
        put_all(&writer, &pair, "0").await;
        let space = reader.keyspace("things");
        let written = tokio::spawn(async move {
            for n in 1..=N_ROUNDS {
                put_all(&writer, &pair, &n.to_string()).await;
            }
        });
        let (mut last, mut n_lists) = ((Revision::ZERO, 0), 0);
        while last.1 < N_ROUNDS {
            let snapshot = reader.latest_below(&space, "a/").await.unwrap();
            let values = values(&snapshot, "a/");
            assert_eq!(values.len(), 2);
            assert_eq!(values[0], values[1], "at {}", snapshot.at());
            let now = (snapshot.at(), values[0].parse().unwrap());
            assert!(now >= last, "{now:?} after {last:?}");
            (last, n_lists) = (now, n_lists + 1);
        }
        written.await.unwrap();
        assert!(n_lists > 1);
    }
}
