//! The suite that every engine passes: a test per case, on each store that an engine gives it.
//!
//! ```ignore
//! async fn rigs() -> Vec<Rig> { vec![Rig::new(Store::in_memory(conformance::options())).await] }
//! mizzen_store::conforms!(rigs);
//! ```
//!
//! Records of an engine may expire when it gets the time, or by themselves; and one that shares its data compacts in
//! rounds, of which each compacts the present of the one before. [`Rig`] hides both, so that every engine runs every case.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};

use crate::{
    BoxFuture, Draft, Event, EventKind, Expect, Expired, Keyspace, Options, ReadError, Record,
    Revision, Snapshot, Store, WatchScope, WindowLimits, Write, WriteError,
};

/// What a record takes in a window beside its value, if its key is one letter.
const OVERHEAD: u64 = 513;

/// A test per case, on every rig that `$rigs` returns: an async function without arguments.
#[macro_export]
macro_rules! conforms {
    ($rigs:path) => {
        $crate::conforms! { $rigs:
            an_empty_store_is_at_revision_one,
            each_transaction_takes_the_next_revision,
            a_transaction_commits_whole_or_not_at_all,
            an_expectation_is_held_against_what_is_stored,
            a_check_guards_a_transaction_and_takes_no_revision_itself,
            what_makes_no_sense_is_refused,
            a_value_carries_its_own_revision,
            what_the_writer_attaches_readers_find,
            a_range_is_read_in_pages_in_byte_order,
            a_term_finds_the_records_that_carry_it_now,
            a_prefix_is_counted,
            a_snapshot_does_not_change,
            an_older_state_is_rebuilt_from_the_window,
            a_retained_snapshot_outlives_the_window,
            a_snapshot_of_a_part_is_retained_for_that_part,
            a_compacted_revision_is_gone_however_often_it_was_read,
            a_revision_to_come_is_waited_for,
            a_watch_tells_each_event_once_and_in_order,
            a_watch_of_a_transaction_is_not_split,
            a_watch_waits_for_the_next_event,
            a_watch_from_the_future_starts_there,
            a_slow_watcher_expires_and_a_quiet_space_does_not,
            a_watch_is_not_woken_by_events_outside_its_scope_and_outlives_them,
            a_watch_of_a_scope_begins_with_what_it_missed,
            a_watch_of_a_scope_expires_when_its_own_events_are_forgotten,
            what_is_old_is_forgotten_but_for_a_few,
            a_small_past_with_large_values_is_cut_at_the_byte_budget,
            what_expires_is_deleted_and_told,
            more_than_one_round_expires,
            progress_moves_with_other_spaces_but_not_past_unseen_events,
            a_fork_goes_its_own_way,
            a_closed_store_takes_no_writes_and_still_reads,
            spaces_are_told_in_figures,
            concurrent_writers_lose_no_update,
            writers_and_watchers_agree_under_load,
        }
    };
    ($rigs:path: $($case:ident),* $(,)?) => { $(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $case() {
            for rig in $rigs().await {
                $crate::conformance::$case(rig).await;
            }
        }
    )* };
}

/// A store under test.
pub struct Rig {
    /// The store.
    pub store: Store,
    /// Closes the store and opens it again; without it the store goes on.
    pub reopen: Option<Box<dyn Fn() -> BoxFuture<'static, Store> + Send + Sync>>,
    /// The Unix second at which the clock of the engine stands.
    pub now: u64,
    /// What lives as long as the store: its directory, its server.
    pub keep: Box<dyn std::any::Any + Send + Sync>,
}

impl Rig {
    /// A rig that is not reopened.
    pub async fn new(store: Store) -> Rig {
        for name in ["things", "others", "quiet"] {
            store.keyspace(name);
        }
        store.filled().await;
        Rig {
            store,
            reopen: None,
            now: 0,
            keep: Box::new(()),
        }
    }

    async fn reopen(&mut self) {
        if let Some(reopen) = &self.reopen {
            self.store.close().await;
            self.store = Rig::new(reopen().await).await.store;
        }
    }

    fn space(&self) -> Keyspace {
        self.store.keyspace("things")
    }

    async fn put(&self, key: &str, value: &str) -> Arc<Record> {
        self.put_draft(key, draft(value)).await
    }

    async fn put_draft(&self, key: &str, draft: Draft) -> Arc<Record> {
        let write = Write::put(&self.space(), key, Expect::Any, draft);
        self.store.commit_one(write).await.unwrap()
    }

    async fn delete(&self, key: &str) -> Arc<Record> {
        let write = Write::delete(&self.space(), key, Expect::Any, draft("gone"));
        self.store.commit_one(write).await.unwrap()
    }

    /// Has what expires until `second` deleted, and returns how many records there were; none where they expire by
    /// themselves, which may take a while longer.
    async fn expire(&self, second: u64) -> Option<usize> {
        let n_expired = self.store.expire(second).await.unwrap();
        (!self.store.is_shared()).then_some(n_expired)
    }

    /// The present, which the next compaction compacts.
    async fn begin_compaction(&self) -> Revision {
        if self.store.is_shared() {
            self.store.compact_history(self.store.revision()).await;
        }
        self.store.latest(&self.space()).await.unwrap().at()
    }

    /// What watchers get of a deleted record: its draft, or the record as it was stored last where others may delete it.
    fn final_state<'a>(&self, draft: &'a str, last: &'a str) -> &'a str {
        if self.store.is_shared() { last } else { draft }
    }
}

/// Limits of a past that is short enough to fall out of.
pub fn options() -> Options {
    let window = WindowLimits {
        min_events: 4,
        max_events: 8,
        bytes: 1 << 20,
        seconds: 75,
        ..WindowLimits::default()
    };
    Options {
        window,
        ..Options::default()
    }
}

fn draft(value: &str) -> Draft {
    Draft {
        value: value.to_owned().into(),
        ..Draft::default()
    }
}

fn tagged(value: &str, terms: &[&str]) -> Draft {
    Draft {
        terms: terms.iter().map(|&term| term.into()).collect(),
        ..draft(value)
    }
}

/// `key=value` of every record, in order.
fn dump(snapshot: &Snapshot) -> Vec<String> {
    let records = snapshot.range("", None);
    records.map(|record| show(record)).collect()
}

fn show(record: &Record) -> String {
    let value = std::str::from_utf8(&record.value).unwrap();
    format!("{}={value}", record.key)
}

/// `+key@revision` or `-key@revision` of every event.
fn story(events: &[Event]) -> Vec<String> {
    let tell = |event: &Event| {
        let sign = match event.kind {
            EventKind::Put => '+',
            EventKind::Delete => '-',
        };
        format!("{sign}{}@{}", event.record.key, event.revision)
    };
    events.iter().map(tell).collect()
}

fn keys<'a>(records: impl Iterator<Item = &'a Arc<Record>>) -> Vec<&'a str> {
    records.map(|record| &*record.key).collect()
}

fn at(revision: u64) -> Revision {
    Revision(revision)
}

/// An empty store is at revision one.
pub async fn an_empty_store_is_at_revision_one(rig: Rig) {
    assert_eq!(rig.store.revision(), at(1));
    let snapshot = rig.space().snapshot();
    assert_eq!(
        (snapshot.at(), snapshot.len(), snapshot.is_empty()),
        (at(1), 0, true)
    );
    assert!(rig.space().watch(at(1)).is_ok());
}

/// Each transaction takes the next revision.
pub async fn each_transaction_takes_the_next_revision(rig: Rig) {
    assert_eq!(rig.put("a", "1").await.revision, at(2));
    let (things, others) = (rig.space(), rig.store.keyspace("others"));
    let two = vec![
        Write::put(&things, "b", Expect::Any, draft("1")),
        Write::put(&others, "b", Expect::Any, draft("2")),
    ];
    let records = rig.store.commit(two).await.unwrap();
    assert_eq!(
        records
            .iter()
            .map(|record| record.revision)
            .collect::<Vec<_>>(),
        [at(3), at(3)]
    );
    assert_eq!(rig.delete("a").await.revision, at(4));
    assert_eq!(rig.store.revision(), at(4));
    let others = rig.store.latest(&others).await.unwrap();
    assert_eq!((others.at(), others.revision()), (at(4), at(3)));
}

/// A transaction commits whole or not at all.
pub async fn a_transaction_commits_whole_or_not_at_all(rig: Rig) {
    rig.put("b", "old").await;
    let space = rig.space();
    let writes = vec![
        Write::put(&space, "a", Expect::Absent, draft("new")),
        Write::put(&space, "b", Expect::Absent, draft("new")),
    ];
    let refused = rig.store.commit(writes).await.unwrap_err();
    assert!(matches!(refused, WriteError::Exists { write: 1, .. }));
    assert_eq!(dump(&space.snapshot()), ["b=old"]);
    assert_eq!(rig.store.revision(), at(2));
}

/// An expectation is held against what is stored.
pub async fn an_expectation_is_held_against_what_is_stored(rig: Rig) {
    rig.put("there", "x").await;
    let cases = [
        ("there", Expect::Absent, "already exists"),
        (
            "there",
            Expect::At(at(9)),
            "stored at revision 2, expected 9",
        ),
        ("there", Expect::At(at(2)), "ok"),
        ("there", Expect::Present, "ok"),
        ("there", Expect::Any, "ok"),
        ("not", Expect::Absent, "ok"),
        ("not", Expect::At(at(2)), "not found"),
        ("not", Expect::Present, "not found"),
        ("not", Expect::Any, "ok"),
    ];
    for (key, expect, answer) in cases {
        let outcome = rig
            .store
            .commit(vec![Write::check(&rig.space(), key, expect)])
            .await;
        let told = outcome.map_or_else(|error| error.to_string(), |_| "ok".into());
        assert_eq!(told, answer, "{key} {expect:?}");
    }
    let delete = Write::delete(&rig.space(), "not", Expect::Any, Draft::default());
    assert!(matches!(
        rig.store.commit_one(delete).await,
        Err(WriteError::Missing { write: 0 })
    ));
}

/// A check guards a transaction and takes no revision itself.
pub async fn a_check_guards_a_transaction_and_takes_no_revision_itself(rig: Rig) {
    let guard = rig.put("guard", "x").await;
    let space = rig.space();
    let guarded = |key: &str| {
        let check = Write::check(&space, "guard", Expect::At(guard.revision));
        vec![check, Write::put(&space, key, Expect::Absent, draft("y"))]
    };
    assert_eq!(rig.store.commit(guarded("a")).await.unwrap().len(), 1);
    rig.put("guard", "z").await;
    let refused = rig.store.commit(guarded("b")).await.unwrap_err();
    assert!(
        matches!(refused, WriteError::Conflict { write: 0, expected, actual }
        if expected == at(2) && actual.revision == at(4))
    );
    assert!(
        rig.store
            .commit(vec![Write::check(&space, "a", Expect::Present)])
            .await
            .unwrap()
            .is_empty()
    );
    assert_eq!(rig.store.revision(), at(4));
}

/// What makes no sense is refused.
pub async fn what_makes_no_sense_is_refused(rig: Rig) {
    let (space, other) = (
        rig.space(),
        Store::in_memory(Options::default()).keyspace("things"),
    );
    let put = |space, draft| Write::put(space, "k", Expect::Any, draft);
    let outside = Draft {
        stamp: Some(2),
        ..draft("x")
    };
    let cases = [
        (
            vec![put(&space, draft("1")), put(&space, draft("2"))],
            "a key occurs twice",
        ),
        (
            vec![put(&space, outside)],
            "the stamp lies outside the value",
        ),
        (
            vec![put(&other, draft("1"))],
            "the space is another store's",
        ),
    ];
    for (writes, reason) in cases {
        let refused = rig.store.commit(writes).await.unwrap_err();
        assert!(
            matches!(refused, WriteError::Malformed { why, .. } if why == reason),
            "{reason}: {refused}"
        );
    }
    assert_eq!(rig.store.revision(), at(1));
}

/// A value carries its own revision.
pub async fn a_value_carries_its_own_revision(mut rig: Rig) {
    let stamped = |value| Draft {
        stamp: Some(1),
        ..draft(value)
    };
    let (a, b) = (
        rig.put_draft("a", stamped("<>")).await,
        rig.put_draft("b", stamped("()")).await,
    );
    let delete = Write::delete(&rig.space(), "b", Expect::Any, stamped("[]"));
    let gone = rig.store.commit_one(delete).await.unwrap();
    assert_eq!(
        [a, b, gone].map(|record| show(&record)),
        ["a=<2>", "b=(3)", rig.final_state("b=[4]", "b=(4)")]
    );
    rig.reopen().await;
    assert_eq!(dump(&rig.space().snapshot()), ["a=<2>"]);
    assert_eq!(
        rig.space().snapshot().get("a").unwrap().digits(),
        Some(1..2)
    );
}

/// What the writer attaches readers find.
pub async fn what_the_writer_attaches_readers_find(rig: Rig) {
    let attached = Draft {
        attachment: Some(Box::new("header")),
        ..draft("x")
    };
    rig.put_draft("a", attached).await;
    let snapshot = rig.space().snapshot();
    let record = snapshot.get("a").unwrap();
    assert_eq!(record.attached::<&str>(), Some(&"header"));
    assert_eq!(record.attach(|_| "another"), &"header");
}

/// A range is read in pages in byte order.
pub async fn a_range_is_read_in_pages_in_byte_order(rig: Rig) {
    for key in ["b/2", "a", "b/10", "b", "b/1", "b/é", "c/1", "b0"] {
        rig.put(key, "x").await;
    }
    let snapshot = rig.space().snapshot();
    assert_eq!(
        keys(snapshot.range("", None)),
        ["a", "b", "b/1", "b/10", "b/2", "b/é", "b0", "c/1"]
    );
    assert_eq!(
        keys(snapshot.range("b/", None)),
        ["b/1", "b/10", "b/2", "b/é"]
    );
    assert_eq!(keys(snapshot.range("b/", Some("b/10"))), ["b/2", "b/é"]);
    assert_eq!(keys(snapshot.range("b/", Some("b/11"))), ["b/2", "b/é"]);
    assert_eq!(
        keys(snapshot.range("b/", Some("a"))),
        ["b/1", "b/10", "b/2", "b/é"]
    );
    assert_eq!(keys(snapshot.range("b/", Some("c"))), [""; 0]);
    assert_eq!(keys(snapshot.range("x", None)), [""; 0]);
}

/// A term finds the records that carry it now.
pub async fn a_term_finds_the_records_that_carry_it_now(mut rig: Rig) {
    rig.put_draft("n/a", tagged("1", &["app=web", "tier=1"]))
        .await;
    rig.put_draft("n/b", tagged("1", &["tier=1", "app=web", "app=web"]))
        .await;
    rig.put_draft("m/c", tagged("1", &["app=web"])).await;
    rig.put_draft("n/d", tagged("1", &["app=we", "app=web2"]))
        .await;
    let before = rig.space().snapshot();
    rig.put_draft("n/a", tagged("2", &["app=db"])).await;
    rig.put_draft("n/b", tagged("2", &["app=web", "tier=1"]))
        .await;
    rig.delete("m/c").await;
    assert_eq!(
        keys(before.with_term("app=web", "", None)),
        ["m/c", "n/a", "n/b"]
    );
    assert_eq!(
        keys(before.with_term("app=web", "n/", None)),
        ["n/a", "n/b"]
    );
    assert_eq!(
        keys(before.with_term("app=web", "n/", Some("n/a"))),
        ["n/b"]
    );
    rig.reopen().await;
    let after = rig.space().snapshot();
    assert_eq!(keys(after.with_term("app=web", "", None)), ["n/b"]);
    assert_eq!(keys(after.with_term("app=db", "", None)), ["n/a"]);
    assert_eq!(
        show(after.with_term("tier=1", "", None).next().unwrap()),
        "n/b=2"
    );
    assert_eq!(keys(after.with_term("tier=2", "", None)), [""; 0]);
}

/// A prefix is counted.
pub async fn a_prefix_is_counted(mut rig: Rig) {
    for key in ["a/1", "a/2", "a/b/1", "b/1", "c"] {
        rig.put(key, "x").await;
    }
    rig.put("a/1", "y").await;
    rig.delete("b/1").await;
    for _ in 0..2 {
        let snapshot = rig.space().snapshot();
        let counts =
            ["", "a/", "a/b/", "b/", "a", "a/b", "x/"].map(|prefix| snapshot.count(prefix));
        assert_eq!(counts, [4, 3, 1, 0, 3, 1, 0]);
        rig.reopen().await;
    }
}

/// A snapshot does not change.
pub async fn a_snapshot_does_not_change(rig: Rig) {
    rig.put("a", "1").await;
    let snapshot = rig.space().snapshot();
    rig.put("a", "2").await;
    rig.put("b", "1").await;
    assert_eq!(
        (dump(&snapshot), snapshot.at()),
        (vec!["a=1".to_string()], at(2))
    );
    assert_eq!(dump(&rig.space().snapshot()), ["a=2", "b=1"]);
}

/// An older state is rebuilt from the window.
pub async fn an_older_state_is_rebuilt_from_the_window(rig: Rig) {
    rig.put_draft("a", tagged("1", &["t"])).await;
    rig.put("b/1", "1").await;
    rig.delete("a").await;
    rig.put("a", "2").await;
    let space = rig.space();
    let then = |revision| dump(&space.snapshot_at(at(revision)).unwrap());
    assert_eq!(then(1), [""; 0]);
    assert_eq!(then(2), ["a=1"]);
    assert_eq!(then(3), ["a=1", "b/1=1"]);
    assert_eq!(then(4), ["b/1=1"]);
    assert_eq!(then(5), ["a=2", "b/1=1"]);
    let old = space.snapshot_at(at(2)).unwrap();
    assert_eq!(
        (old.at(), old.revision(), old.count("b/")),
        (at(2), at(2), 0)
    );
    assert_eq!(keys(old.with_term("t", "", None)), ["a"]);
    for n in 0..9 {
        rig.put("c", &n.to_string()).await;
    }
    assert_eq!(
        space.snapshot_at(at(4)).map(|_| ()),
        Ok(()),
        "rebuilt before, and so retained"
    );
    let expired = |revision| space.snapshot_at(at(revision)).unwrap_err();
    assert_eq!(
        expired(5),
        Expired {
            requested: at(5),
            oldest: at(6)
        }
    );
}

/// A retained snapshot outlives the window.
pub async fn a_retained_snapshot_outlives_the_window(rig: Rig) {
    rig.put("a", "1").await;
    let space = rig.space();
    let first_page = space.snapshot();
    space.retain(&first_page);
    for n in 0..20 {
        rig.put("b", &n.to_string()).await;
    }
    assert_eq!(dump(&space.snapshot_at(first_page.at()).unwrap()), ["a=1"]);
    assert!(space.snapshot_at(at(3)).is_err());
    for revision in 0..64 {
        rig.put("b", &revision.to_string()).await;
        space.retain(&space.snapshot());
    }
    assert!(
        space.snapshot_at(first_page.at()).is_err(),
        "64 others were taken since"
    );
}

/// A snapshot of a part is retained for that part alone: others are missing in it.
pub async fn a_snapshot_of_a_part_is_retained_for_that_part(rig: Rig) {
    rig.put("a/1", "1").await;
    rig.put("b/1", "1").await;
    rig.put("b/2", "1").await;
    let space = rig.space();
    let read = rig.store.latest_below(&space, "b/").await.unwrap();
    let records: Vec<_> = read.range("b/", None).cloned().collect();
    let part = Snapshot::of_records(records, read.at()).partial("b/");
    assert_eq!(dump(&part), ["b/1=1", "b/2=1"]);
    space.retain(&part);
    rig.put("b/1", "2").await;
    for prefix in ["b/", "b/1"] {
        let kept = space.retained(part.at(), prefix).unwrap();
        assert_eq!(dump(&kept), ["b/1=1", "b/2=1"], "{prefix:?}");
    }
    for prefix in ["", "a/", "b"] {
        assert!(space.retained(part.at(), prefix).is_none(), "{prefix:?}");
    }
    assert!(space.retained(at(part.at().0 + 1), "b/").is_none());
    let whole = space.snapshot_at(part.at()).unwrap();
    assert_eq!(dump(&whole), ["a/1=1", "b/1=1", "b/2=1"]);
}

/// A compacted revision is gone however often it was read.
pub async fn a_compacted_revision_is_gone_however_often_it_was_read(rig: Rig) {
    rig.put("a", "1").await;
    let (space, other) = (rig.space(), rig.store.keyspace("others"));
    let first = space.snapshot();
    space.retain(&first);
    rig.put("a", "2").await;
    let second = rig.begin_compaction().await;
    rig.put("a", "3").await;
    for _ in 0..3 {
        assert_eq!(dump(&space.snapshot_at(first.at()).unwrap()), ["a=1"]);
    }
    rig.store.compact_history(second).await;
    let expired = Expired {
        requested: first.at(),
        oldest: second,
    };
    assert_eq!(space.snapshot_at(first.at()).unwrap_err(), expired);
    for space in [&space, &other] {
        // One of them was never written to.
        let read = rig.store.snapshot_at(space, first.at()).await;
        let Err(ReadError::Expired(expired)) = read else {
            panic!("{space:?} can be read");
        };
        assert_eq!(expired.requested, first.at());
    }
    assert_eq!(
        dump(&space.snapshot_at(second).unwrap()),
        ["a=2"],
        "the compacted revision itself can be read"
    );
    assert_eq!(space.stats().snapshots, 1);
    // What was compacted stays so.
    rig.store.compact_history(at(1)).await;
    for space in [space.clone(), rig.store.fork().keyspace("things")] {
        let expired = space.snapshot_at(first.at()).unwrap_err();
        assert_eq!(expired.requested, first.at());
        assert!(expired.oldest >= second, "{expired}");
    }
    assert!(space.watch(first.at()).is_ok(), "watches go by the window");
}

/// A revision to come is waited for.
pub async fn a_revision_to_come_is_waited_for(rig: Rig) {
    let next = rig.store.revision().next();
    rig.store.reached(rig.store.revision()).await;
    let ((), record) = tokio::join!(rig.store.reached(next), rig.put("a", "1"));
    assert_eq!(record.revision, next);
}

/// A watch tells each event once and in order.
pub async fn a_watch_tells_each_event_once_and_in_order(rig: Rig) {
    rig.put("a", "1").await;
    let mut from_start = rig.space().watch(at(1)).unwrap();
    let mut from_here = rig.space().watch(at(2)).unwrap();
    rig.put("a", "2").await;
    rig.delete("a").await;
    rig.store
        .commit(vec![Write::check(&rig.space(), "a", Expect::Absent)])
        .await
        .unwrap();
    let events = from_start.next().await.unwrap();
    assert_eq!(story(&events), ["+a@2", "+a@3", "-a@4"]);
    assert_eq!(
        events[0].previous.as_ref().map(|record| record.revision),
        None
    );
    assert_eq!(
        events[1].previous.as_ref().map(|record| record.revision),
        Some(at(2))
    );
    assert_eq!(
        events[2].previous.as_ref().map(|record| record.revision),
        Some(at(3))
    );
    assert_eq!(show(&events[2].record), rig.final_state("a=gone", "a=2"));
    assert_eq!(story(&from_here.next().await.unwrap()), ["+a@3", "-a@4"]);
    assert!(from_start.ready().unwrap().is_empty());
}

/// A watch of a transaction is not split.
pub async fn a_watch_of_a_transaction_is_not_split(rig: Rig) {
    let space = rig.space();
    let mut watch = space.watch(at(1)).unwrap();
    let key = |n: usize| Arc::<str>::from(format!("{n}"));
    let writes = (0..6)
        .map(|n| Write::put(&space, key(n), Expect::Absent, draft("x")))
        .collect();
    rig.store.commit(writes).await.unwrap();
    assert_eq!(watch.next().await.unwrap().len(), 6);
    rig.put("a", "1").await;
    assert_eq!(story(&watch.next().await.unwrap()), ["+a@3"]);
}

/// A watch waits for the next event.
pub async fn a_watch_waits_for_the_next_event(rig: Rig) {
    let mut watch = rig.space().watch(at(1)).unwrap();
    let waiting = tokio::spawn(async move { watch.next().await.unwrap() });
    tokio::task::yield_now().await;
    rig.store
        .commit_one(Write::put(
            &rig.store.keyspace("others"),
            "x",
            Expect::Any,
            draft("1"),
        ))
        .await
        .unwrap();
    rig.put("a", "1").await;
    assert_eq!(story(&waiting.await.unwrap()), ["+a@3"]);
}

/// A watch from the future starts there.
pub async fn a_watch_from_the_future_starts_there(rig: Rig) {
    let mut watch = rig.space().watch(at(3)).unwrap();
    rig.put("a", "1").await;
    rig.put("a", "2").await;
    assert!(watch.ready().unwrap().is_empty());
    rig.put("a", "3").await;
    assert_eq!(story(&watch.next().await.unwrap()), ["+a@4"]);
}

/// A slow watcher expires and a quiet space does not.
pub async fn a_slow_watcher_expires_and_a_quiet_space_does_not(rig: Rig) {
    let quiet = rig.store.keyspace("quiet");
    let mut slow = rig.space().watch(at(1)).unwrap();
    for n in 0..9 {
        rig.put("a", &n.to_string()).await;
    }
    let expired = Expired {
        requested: at(1),
        oldest: at(2),
    };
    assert_eq!(slow.next().await.unwrap_err(), expired);
    assert_eq!(rig.space().watch(at(1)).unwrap_err(), expired);
    let mut later = rig.space().watch(at(2)).unwrap();
    assert_eq!(later.next().await.unwrap().len(), 8);
    assert!(quiet.watch(at(1)).unwrap().ready().unwrap().is_empty());
}

/// A watch is not woken by events outside its scope and outlives them.
pub async fn a_watch_is_not_woken_by_events_outside_its_scope_and_outlives_them(rig: Rig) {
    let tagged = |term: &str| Draft {
        terms: vec![term.into()],
        ..draft("1")
    };
    rig.put_draft("n/a", tagged("t=1")).await;
    let scopes = [
        WatchScope::Key("n/a".into()),
        WatchScope::Prefix("n/".into()),
        WatchScope::Term("t=1".into()),
    ];
    for scope in scopes {
        let wakes = Arc::new(Wakes::default());
        let mut watch = rig
            .space()
            .watch_scope(rig.store.revision(), scope)
            .unwrap();
        {
            let mut next = pin!(watch.next());
            let waker = Waker::from(wakes.clone());
            let mut context = Context::from_waker(&waker);
            assert!(next.as_mut().poll(&mut context).is_pending());
            // More than the window holds.
            for n in 0..20 {
                rig.put_draft(&format!("m/{n}"), tagged("t=2")).await;
            }
            assert_eq!(wakes.0.load(Ordering::Relaxed), 0);
            assert!(next.as_mut().poll(&mut context).is_pending());
        }
        let revision = rig.space().revision();
        assert!(watch.progress() >= revision, "bookmarks go on");
        let changed = rig.put_draft("n/a", tagged("t=1")).await;
        let events = watch.next().await.unwrap();
        assert_eq!(story(&events), [format!("+n/a@{}", changed.revision)]);
    }
    // A record that loses the term is still the business of its watches.
    let term = WatchScope::Term("t=1".into());
    let mut watch = rig.space().watch_scope(rig.store.revision(), term).unwrap();
    let changed = rig.put_draft("n/a", tagged("t=2")).await;
    rig.put_draft("n/a", tagged("t=3")).await;
    let events = watch.next().await.unwrap();
    assert_eq!(story(&events), [format!("+n/a@{}", changed.revision)]);
    assert!(watch.ready().unwrap().is_empty());
}

/// Counts how often a task would have been polled.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A watch of a scope begins with what it missed.
pub async fn a_watch_of_a_scope_begins_with_what_it_missed(rig: Rig) {
    for key in ["n/a", "m/a", "n/b", "n/a"] {
        rig.put(key, "1").await;
    }
    let key = WatchScope::Key("n/a".into());
    let mut watch = rig.space().watch_scope(at(1), key).unwrap();
    assert_eq!(watch.progress(), at(1));
    rig.put("n/a", "2").await;
    let mut events = watch.next().await.unwrap();
    while events.len() < 3 {
        events.extend(watch.next().await.unwrap());
    }
    assert_eq!(story(&events), ["+n/a@2", "+n/a@5", "+n/a@6"]);
    assert!(watch.progress() >= at(6));
}

/// A watch of a scope expires when its own events are forgotten.
pub async fn a_watch_of_a_scope_expires_when_its_own_events_are_forgotten(rig: Rig) {
    let key = WatchScope::Key("n/a".into());
    let mut watch = rig.space().watch_scope(at(1), key).unwrap();
    rig.put("n/a", "1").await;
    for n in 0..20 {
        rig.put(&format!("m/{n}"), "1").await;
    }
    assert_eq!(watch.progress(), at(1));
    assert_eq!(watch.ready().unwrap_err().requested, at(1));
    rig.put("n/a", "2").await;
    assert_eq!(watch.next().await.unwrap_err().requested, at(1));
}

/// What is old is forgotten but for a few.
pub async fn what_is_old_is_forgotten_but_for_a_few(rig: Rig) {
    for value in ["2", "3", "4", "5", "6", "7"] {
        rig.put("a", value).await;
    }
    let oldest = |rig: &Rig| rig.space().watch(at(1)).err().map(|expired| expired.oldest);
    rig.store.expire(100).await.unwrap();
    rig.put("a", "8").await;
    rig.store.expire(174).await.unwrap();
    assert_eq!(oldest(&rig), None);
    rig.store.expire(175).await.unwrap();
    assert_eq!((oldest(&rig), rig.space().stats().events), (Some(at(4)), 4));
    rig.store.expire(1000).await.unwrap();
    assert_eq!(
        oldest(&rig),
        Some(at(4)),
        "a few are kept however old they are"
    );
}

/// A small past with large values is cut at the byte budget.
pub async fn a_small_past_with_large_values_is_cut_at_the_byte_budget(rig: Rig) {
    let large = "x".repeat(600 << 10);
    for _ in 0..9 {
        rig.put("a", &large).await;
    }
    // The first put superseded nothing; of the others two would fit, but four are kept at least.
    let stats = rig.space().stats();
    assert_eq!(
        (stats.events, stats.superseded),
        (4, 4 * ((600 << 10) + OVERHEAD))
    );
    // Nearly as large as etcd takes.
    let huge = "x".repeat(1400 << 10);
    for _ in 0..5 {
        rig.put("a", &huge).await;
    }
    assert_eq!(
        rig.space().stats().events,
        2,
        "at most four times the budget"
    );
}

/// Progress moves with other spaces but not past unseen events.
pub async fn progress_moves_with_other_spaces_but_not_past_unseen_events(rig: Rig) {
    let others = rig.store.keyspace("others");
    let other = || Write::put(&others, "x", Expect::Any, draft("1"));
    let mut watch = rig.space().watch(at(1)).unwrap();
    rig.store.commit_one(other()).await.unwrap();
    match rig.store.is_shared() {
        true => assert!(watch.progress() <= at(2)),
        false => assert_eq!(watch.progress(), at(2)),
    }
    rig.put("a", "1").await;
    rig.store.commit_one(other()).await.unwrap();
    assert_eq!(watch.progress(), at(1), "the event at 3 is not told yet");
    watch.next().await.unwrap();
    let least = if rig.store.is_shared() { 3 } else { 4 };
    assert!((at(least)..=at(4)).contains(&watch.progress()));
}

/// What expires is deleted and told.
pub async fn what_expires_is_deleted_and_told(mut rig: Rig) {
    let now = rig.now;
    let lasting = |seconds| Draft {
        stamp: Some(1),
        expires: Some(now + seconds),
        ..draft("<>")
    };
    rig.put_draft("a", lasting(5)).await;
    rig.put_draft("b", lasting(6)).await;
    rig.put_draft("c", lasting(5)).await;
    rig.put_draft("c", lasting(3600)).await;
    rig.put("d", "forever").await;
    assert_eq!(rig.expire(now + 4).await.unwrap_or_default(), 0);
    rig.reopen().await;
    let before = rig.space().snapshot();
    let mut watch = rig.space().watch(before.at()).unwrap();
    if let Some(n_expired) = rig.expire(now + 6).await {
        assert_eq!(n_expired, 2);
        assert_eq!(story(&watch.ready().unwrap()), ["-a@7", "-b@8"]);
        watch = rig.space().watch(before.at()).unwrap();
    }
    // What expires by itself may have done so while the store was opened.
    let mut due = vec!["a", "b"];
    due.retain(|key| before.get(key).is_some());
    let mut events = Vec::new();
    while events.len() < due.len() {
        events.extend(watch.next().await.unwrap());
    }
    events.sort_by(|one, other| one.record.key.cmp(&other.record.key));
    assert_eq!(keys(events.iter().map(|event| &event.record)), due);
    for event in events {
        assert_eq!(event.kind, EventKind::Delete);
        let stamped = format!("{}=<{}>", event.record.key, event.revision);
        assert_eq!(show(&event.record), stamped);
    }
    assert_eq!(dump(&rig.space().snapshot()), ["c=<5>", "d=forever"]);
}

/// More than one round expires.
pub async fn more_than_one_round_expires(rig: Rig) {
    let (one, two) = (rig.store.keyspace("one"), rig.store.keyspace("two"));
    let short = || Draft {
        expires: Some(rig.now + 5),
        ..draft("x")
    };
    let put = |n: usize| {
        Write::put(
            if n < 600 { &one } else { &two },
            format!("{n}"),
            Expect::Absent,
            short(),
        )
    };
    // No more at once than etcd takes.
    for first in (0..1300).step_by(100) {
        let writes = (first..first + 100).map(&put).collect();
        rig.store.commit(writes).await.unwrap();
    }
    if let Some(n_expired) = rig.expire(rig.now + 5).await {
        assert_eq!(n_expired, 1300);
        assert!(one.snapshot().is_empty() && two.snapshot().is_empty());
    }
    for space in [one, two] {
        loop {
            let snapshot = space.snapshot();
            if snapshot.is_empty() {
                break;
            }
            space.reached(snapshot.at().next()).await;
        }
    }
}

/// A fork goes its own way.
pub async fn a_fork_goes_its_own_way(rig: Rig) {
    rig.put("a", "1").await;
    let fork = Rig::new(rig.store.fork()).await;
    rig.put("a", "here").await;
    assert_eq!(fork.put("a", "there").await.revision, at(3));
    assert_eq!(dump(&rig.space().snapshot()), ["a=here"]);
    assert_eq!(dump(&fork.space().snapshot()), ["a=there"]);
    let mut watch = fork.space().watch(at(1)).unwrap();
    assert_eq!(story(&watch.next().await.unwrap()), ["+a@2", "+a@3"]);
}

/// A closed store takes no writes and still reads.
pub async fn a_closed_store_takes_no_writes_and_still_reads(rig: Rig) {
    rig.put("a", "1").await;
    let fork = rig.store.fork();
    rig.store.close().await;
    rig.store.close().await;
    let late = Write::put(&rig.space(), "b", Expect::Any, draft("1"));
    assert!(matches!(
        rig.store.commit_one(late).await,
        Err(WriteError::Closed)
    ));
    assert!(matches!(rig.store.expire(1).await, Err(WriteError::Closed)));
    assert_eq!(dump(&rig.space().snapshot()), ["a=1"]);
    let elsewhere = Write::put(&fork.keyspace("things"), "b", Expect::Any, draft("1"));
    assert!(fork.commit_one(elsewhere).await.is_ok());
}

/// Spaces are told in figures.
pub async fn spaces_are_told_in_figures(rig: Rig) {
    rig.put("a", "12345").await;
    rig.put("a", "1234").await;
    rig.put("b", "123").await;
    let _watch = rig.space().watch(at(1)).unwrap();
    rig.space().retain(&rig.space().snapshot());
    let stats = rig.store.stats();
    let mut named = stats.iter().filter(|stats| &*stats.name == "things");
    let things = named.next().unwrap();
    assert_eq!(
        (
            things.records,
            things.bytes,
            things.events,
            things.superseded
        ),
        (2, 7, 3, 5 + OVERHEAD)
    );
    assert_eq!((things.snapshots, things.watches), (1, 1));
}

/// Concurrent writers lose no update.
pub async fn concurrent_writers_lose_no_update(rig: Rig) {
    rig.put("counter", "0").await;
    let writers: Vec<_> = (0..8)
        .map(|_| tokio::spawn(count_up(rig.store.clone(), 25)))
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    assert_eq!(dump(&rig.space().snapshot()), ["counter=200"]);
    assert_eq!(rig.store.revision(), at(202));
}

async fn count_up(store: Store, n_times: usize) {
    let space = store.keyspace("things");
    for _ in 0..n_times {
        loop {
            let record = space.snapshot().get("counter").unwrap().clone();
            let count: u64 = std::str::from_utf8(&record.value).unwrap().parse().unwrap();
            let next = draft(&(count + 1).to_string());
            match store
                .commit_one(Write::put(
                    &space,
                    "counter",
                    Expect::At(record.revision),
                    next,
                ))
                .await
            {
                Ok(_) => break,
                Err(WriteError::Conflict { .. }) => tokio::task::yield_now().await,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// Every watcher that does not expire sees all events without a gap, and ends with what the store has.
pub async fn writers_and_watchers_agree_under_load(rig: Rig) {
    let watchers: Vec<_> = (0..4)
        .map(|_| tokio::spawn(follow(rig.store.clone(), at(401))))
        .collect();
    let write = |store: Store, writer: usize| async move {
        let space = store.keyspace("things");
        for n in 0..100 {
            let write = Write::put(
                &space,
                format!("{writer}/{}", n % 10),
                Expect::Any,
                draft(&n.to_string()),
            );
            store.commit_one(write).await.unwrap();
            tokio::task::yield_now().await;
        }
    };
    let writers: Vec<_> = (0..4)
        .map(|writer| tokio::spawn(write(rig.store.clone(), writer)))
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    for watcher in watchers {
        assert_eq!(watcher.await.unwrap(), dump(&rig.space().snapshot()));
    }
}

/// Mirrors a space by list and watch until `end`, listing again whenever the watch expires.
async fn follow(store: Store, end: Revision) -> Vec<String> {
    let space = store.keyspace("things");
    loop {
        let snapshot = space.snapshot();
        let mut mirror: BTreeMap<_, _> = snapshot
            .range("", None)
            .map(|record| (record.key.clone(), record.clone()))
            .collect();
        let mut seen = snapshot.at();
        let mut watch = space.watch(seen).unwrap();
        while seen < end {
            let Ok(events) = watch.next().await else {
                break;
            };
            for event in events {
                assert_eq!(event.revision, seen.next(), "only this space is written");
                assert!(
                    event.revision <= store.revision(),
                    "told before it can be read"
                );
                assert_eq!(event.kind, EventKind::Put);
                seen = event.revision;
                mirror.insert(event.record.key.clone(), event.record);
            }
        }
        if seen == end {
            return mirror.values().map(|record| show(record)).collect();
        }
    }
}
