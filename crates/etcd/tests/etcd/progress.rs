//! Consistent reads with an etcd whose watches tell their progress, as 3.4.31, 3.5.13 and later do.
//!
//! The etcds of these tests are older. [`ProgressProxy`] stands for a newer one.

use std::time::Duration;

use mizzen_etcd::client::{Client, Config};
use mizzen_store::{Draft, Expect, Keyspace, Revision, Store, Write};
use tokio::time::{Instant, sleep, timeout};

use crate::engine::store;
use crate::progress_proxy::{Progress, ProgressProxy};
use crate::server::{self, Cluster, Options};

/// How long a test waits for what must happen.
const LIMIT: Duration = Duration::from_secs(30);
/// Between two looks of a test that waits.
const PAUSE: Duration = Duration::from_millis(10);
/// The deadline of a read that falls back: the time for the watch, and for two reads of etcd.
const DEADLINE: Duration = Duration::from_secs(6);
/// How long a write that is committed waits for the watch.
const SHOW_TIMEOUT: Duration = Duration::from_secs(5);
/// The first version of 3.5 with working progress requests, and the last without.
const FIXED: &str = "3.5.13";
const BROKEN: &str = "3.5.12";

/// A store on etcd that writes, and one behind a proxy that reads.
struct Pair {
    writer: Store,
    reader: Store,
    proxy: ProgressProxy,
    _etcd: Cluster,
}

impl Pair {
    /// On each etcd that is installed, which the proxy calls `version`.
    async fn start_all(version: &'static str) -> Vec<Pair> {
        let mut pairs = Vec::new();
        for etcd in server::installed() {
            let etcd = etcd.start(Options::default()).await;
            let proxy = ProgressProxy::start(&etcd.endpoint(0), version).await;
            let config = Config {
                endpoints: vec![proxy.endpoint.clone()],
                ..etcd.config()
            };
            let reader = Client::connect(config).expect("a good configuration");
            let pair = Pair {
                writer: store(etcd.client()),
                reader: store(reader),
                proxy,
                _etcd: etcd,
            };
            pair.writer.keyspace("things");
            pair.writer.keyspace("others");
            pair.reader.keyspace("things");
            pair.writer.filled().await;
            pair.reader.filled().await;
            if version == FIXED {
                pair.wait_until_progress_is_used().await;
            }
            pairs.push(pair);
        }
        pairs
    }

    /// The engine asks for the version in the background.
    async fn wait_until_progress_is_used(&self) {
        self.put("things", "first").await;
        let used = async {
            loop {
                let n_lists = self.proxy.n_lists();
                self.read().await;
                if self.proxy.n_lists() == n_lists {
                    return;
                }
                sleep(PAUSE).await;
            }
        };
        timeout(LIMIT, used).await.expect("the version is known");
    }

    /// Writes the key `a` of a keyspace, past the proxy.
    async fn put(&self, space: &str, value: &str) -> Revision {
        let draft = Draft {
            value: value.to_owned().into(),
            ..Draft::default()
        };
        let write = Write::put(&self.writer.keyspace(space), "a", Expect::Any, draft);
        self.writer.commit_one(write).await.unwrap().revision
    }

    fn space(&self) -> Keyspace {
        self.reader.keyspace("things")
    }

    /// The key `a`, by a consistent read of all keys.
    async fn read(&self) -> String {
        let snapshot = self.reader.latest(&self.space()).await.unwrap();
        let value = &snapshot.get("a").expect("it was written").value;
        String::from_utf8(value.to_vec()).unwrap()
    }

    /// Waits until progress was requested so many times more.
    async fn wait_for_progress_requests(&self, n_more: usize) {
        let expected = self.proxy.n_progress() + n_more;
        let asked = async {
            while self.proxy.n_progress() < expected {
                sleep(PAUSE).await;
            }
        };
        timeout(LIMIT, asked).await.expect("progress is asked for");
    }
}

#[tokio::test]
async fn a_consistent_read_is_answered_from_the_cache() {
    for pair in Pair::start_all(FIXED).await {
        let n_lists = pair.proxy.n_lists();
        for n in 0..50 {
            let revision = pair.put("things", &n.to_string()).await;
            assert_eq!(pair.read().await, n.to_string());
            assert!(pair.space().revision() >= revision);
        }
        assert_eq!(pair.proxy.n_lists(), n_lists, "nothing was listed");
    }
}

#[tokio::test]
async fn a_read_after_writes_of_other_keys_waits_for_progress_alone() {
    for pair in Pair::start_all(FIXED).await {
        pair.put("things", "here").await;
        let (n_lists, n_progress) = (pair.proxy.n_lists(), pair.proxy.n_progress());
        for n in 0..5 {
            let revision = pair.put("others", &n.to_string()).await;
            assert_eq!(pair.read().await, "here");
            assert!(pair.space().revision() >= revision);
        }
        assert!(pair.proxy.n_progress() >= n_progress + 5);
        assert_eq!(pair.proxy.n_lists(), n_lists, "nothing was listed");
    }
}

#[tokio::test]
async fn a_consistent_read_waits_for_events_that_are_late() {
    for pair in Pair::start_all(FIXED).await {
        let n_lists = pair.proxy.n_lists();
        pair.proxy.hold(true);
        pair.put("things", "late").await;
        let mut read = Box::pin(pair.read());
        tokio::select! {
            value = &mut read => panic!("{value} was read before its event came"),
            () = pair.wait_for_progress_requests(3) => {}
        }
        pair.proxy.hold(false);
        assert_eq!(timeout(LIMIT, read).await.expect("in time"), "late");
        assert_eq!(pair.proxy.n_lists(), n_lists, "nothing was listed");
    }
}

#[tokio::test]
async fn progress_is_asked_for_again_if_an_answer_is_dropped() {
    for pair in Pair::start_all(FIXED).await {
        let (n_lists, n_progress) = (pair.proxy.n_lists(), pair.proxy.n_progress());
        pair.put("things", "here").await;
        pair.proxy.answer(Progress::Dropped(3));
        // No event will come for it.
        pair.put("others", "x").await;
        assert_eq!(pair.read().await, "here");
        assert!(pair.proxy.n_progress() >= n_progress + 4);
        assert_eq!(pair.proxy.n_lists(), n_lists, "nothing was listed");
    }
}

#[tokio::test]
async fn without_progress_and_events_a_read_falls_back_within_its_deadline() {
    for pair in Pair::start_all(FIXED).await {
        pair.proxy.answer(Progress::Dropped(usize::MAX));
        pair.proxy.hold(true);
        let n_lists = pair.proxy.n_lists();
        pair.put("things", "new").await;
        let began = Instant::now();
        assert_eq!(pair.read().await, "new");
        assert!(began.elapsed() < DEADLINE, "{:?}", began.elapsed());
        assert!(pair.proxy.n_lists() > n_lists, "it was read from etcd");
        // The cache catches up, and reads are answered from it again.
        pair.proxy.answer(Progress::Correct);
        pair.proxy.hold(false);
        pair.put("things", "newer").await;
        let n_lists = pair.proxy.n_lists();
        assert_eq!(pair.read().await, "newer");
        assert_eq!(pair.proxy.n_lists(), n_lists, "nothing was listed");
    }
}

#[tokio::test]
async fn a_quiet_keyspace_moves_on_by_what_etcd_tells_unasked() {
    for etcd in server::installed() {
        let options = Options {
            flags: vec!["--experimental-watch-progress-notify-interval=200ms"],
            ..Options::default()
        };
        let cluster = etcd.start(options).await;
        let store = store(cluster.client());
        let quiet = store.keyspace("quiet");
        store.filled().await;
        let mut watch = quiet.watch(quiet.revision()).expect("it is the present");
        let mut last = Revision::ZERO;
        for n in 0..3 {
            let draft = Draft {
                value: n.to_string().into(),
                ..Draft::default()
            };
            let write = Write::put(&store.keyspace("busy"), "a", Expect::Any, draft);
            last = store.commit_one(write).await.unwrap().revision;
        }
        timeout(LIMIT, quiet.reached(last))
            .await
            .expect("it is told");
        // Nothing that comes after it is lost.
        let write = Write::put(&quiet, "a", Expect::Absent, Draft::default());
        let written = store.commit_one(write).await.unwrap().revision;
        let events = timeout(LIMIT, watch.next()).await.expect("an event");
        assert_eq!(events.unwrap()[0].revision, written);
    }
}

#[tokio::test]
async fn a_watch_that_shows_no_write_is_begun_again_and_delays_one_transaction() {
    for pair in Pair::start_all(FIXED).await.into_iter().take(1) {
        let spaces = ["things", "others", "more"].map(|name| pair.reader.keyspace(name));
        let write_all = async || {
            let put = |space| Write::put(space, "a", Expect::Any, Draft::default());
            let began = Instant::now();
            pair.reader
                .commit(spaces.iter().map(put).collect())
                .await
                .unwrap();
            began.elapsed()
        };
        // All of them are watched once they have shown a write.
        write_all().await;
        pair.proxy.silence();
        let first = write_all().await;
        assert!(first < 2 * SHOW_TIMEOUT, "{first:?} for all keyspaces");
        let second = write_all().await;
        assert!(second < SHOW_TIMEOUT / 2, "{second:?}");
    }
}

/// Progress that is ahead of the events makes reads stale, so it is only asked of versions that tell it truthfully.
#[tokio::test]
async fn progress_that_is_ahead_of_events_is_ignored_of_versions_that_are_known_for_it() {
    for (version, expected) in [(BROKEN, "new"), (FIXED, "old")] {
        for pair in Pair::start_all(version).await {
            pair.put("things", "old").await;
            let caught_up = async {
                while pair
                    .space()
                    .snapshot()
                    .get("a")
                    .is_none_or(|a| a.value != "old")
                {
                    sleep(PAUSE).await;
                }
            };
            timeout(LIMIT, caught_up).await.expect("the event comes");
            pair.proxy.answer(Progress::Ahead);
            pair.proxy.hold(true);
            pair.put("things", "new").await;
            // This is what the list of versions is for: the proxy that claims a fixed one is believed.
            assert_eq!(pair.read().await, expected, "etcd {version}");
        }
    }
}

#[tokio::test]
async fn a_watch_whose_history_was_compacted_is_replaced_by_a_list() {
    for pair in Pair::start_all(FIXED).await {
        let first = pair.put("things", "1").await;
        let space = pair.space();
        timeout(LIMIT, space.reached(first)).await.unwrap();
        let mut watch = space.watch(first).unwrap();
        // What the watch of etcd misses is compacted.
        pair.proxy.silence();
        for value in ["2", "3", "4"] {
            pair.put("things", value).await;
            pair.writer.compact_history(Revision::ZERO).await;
        }
        // A read notices that the watch is silent. The next one begins too late.
        assert_eq!(pair.read().await, "4");
        let expired = timeout(LIMIT, watch.next()).await.unwrap().unwrap_err();
        assert_eq!(expired.requested, first);
        assert!(expired.oldest > first, "{expired}");
        let snapshot = space.snapshot();
        assert_eq!(&snapshot.get("a").unwrap().value[..], b"4");
        assert!(space.watch(first).is_err());
        let mut watch = space.watch(snapshot.at()).unwrap();
        let next = pair.put("things", "5").await;
        let events = timeout(LIMIT, watch.next()).await.unwrap().unwrap();
        assert_eq!(events[0].revision, next);
    }
}
