//! Copies of a store that is in use, and stores that are only read.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use mizzen_store::{
    CreatedRecord, Draft, Expect, OpenError, Options, Revision, Store, Write, WriteError, backup,
    create,
};

use crate::disk::{compacting, files};
use crate::rig::{Rig, draft, dump};

fn copy(rig: &Rig) -> (tempfile::TempDir, Result<Revision, OpenError>) {
    let copy = tempfile::tempdir().unwrap();
    let revision = backup(rig.dir.as_ref().unwrap().path(), copy.path());
    (copy, revision)
}

#[tokio::test]
async fn a_backup_opens_as_the_store_was() {
    let rig = Rig::disk(compacting());
    for n in 0..100 {
        rig.put(&format!("{}", n % 7), &format!("{n}{}", "x".repeat(100)))
            .await;
    }
    rig.delete("0").await;
    let (copy, revision) = copy(&rig);
    assert_eq!(revision.unwrap(), rig.store.revision());
    // What is written later is not in it.
    let before = dump(&rig.space().snapshot());
    rig.put("later", "1").await;
    let opened = Store::open(copy.path(), Options::default()).unwrap();
    assert_eq!(dump(&opened.keyspace("things").snapshot()), before);
    // The copy is a store of its own.
    let things = opened.keyspace("things");
    opened
        .commit_one(Write::put(&things, "own", Expect::Absent, draft("1")))
        .await
        .unwrap();
}

/// Every put of the one writer follows the one before it, so a copy that holds the n-th must hold all earlier ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_under_writes_and_compactions_misses_no_acknowledged_write() {
    const KEYS: u64 = 5;
    let rig = Rig::disk(compacting());
    let dir = rig.dir.as_ref().unwrap().path().to_owned();
    let n_acknowledged = AtomicU64::new(0);
    let copies = tempfile::tempdir().unwrap();
    let n_copies = AtomicU64::new(0);
    let write = async {
        let mut n = 0;
        while n_copies.load(Ordering::Acquire) < 20 {
            n += 1;
            rig.put(
                &(n % KEYS).to_string(),
                &format!("{n:06}{}", "x".repeat(60)),
            )
            .await;
            n_acknowledged.store(n, Ordering::Release);
        }
    };
    let back_up = async {
        for round in 0..20 {
            let (dir, to) = (dir.clone(), copies.path().join(round.to_string()));
            let acknowledged = n_acknowledged.load(Ordering::Acquire);
            let copied = tokio::task::spawn_blocking(move || {
                backup(&dir, &to).map(|revision| (revision, to))
            });
            let (revision, to) = copied.await.unwrap().unwrap();
            check_copy(&to, revision, acknowledged, KEYS);
            n_copies.fetch_add(1, Ordering::AcqRel);
        }
    };
    tokio::join!(write, back_up);
}

fn check_copy(dir: &Path, revision: Revision, acknowledged: u64, n_keys: u64) {
    let store = Store::open_read_only(dir, Options::default()).unwrap();
    // An empty store is at revision 1, and each put takes the next.
    let newest = revision.0.saturating_sub(1);
    assert!(newest >= acknowledged, "{newest} of {acknowledged}");
    let expected: Vec<String> = (newest.saturating_sub(n_keys - 1).max(1)..=newest)
        .map(|n| format!("{}={n:06}{}", n % n_keys, "x".repeat(60)))
        .collect();
    let mut found = dump(&store.keyspace("things").snapshot());
    found.sort_by_key(|line| line[2..8].to_owned());
    assert_eq!(found, expected, "at {revision}");
}

#[tokio::test]
async fn a_backup_goes_into_an_empty_directory_only() {
    let rig = Rig::disk(Options::default());
    rig.put("a", "1").await;
    let (copy, revision) = copy(&rig);
    revision.unwrap();
    let before = files(copy.path());
    let again = backup(rig.dir.as_ref().unwrap().path(), copy.path()).unwrap_err();
    assert!(
        matches!(&again, OpenError::Io { path, .. } if path == copy.path()),
        "{again}"
    );
    assert_eq!(files(copy.path()), before);
    let nowhere = copy.path().join("nowhere");
    let missing = backup(&nowhere, &copy.path().join("new")).unwrap_err();
    assert!(
        matches!(&missing, OpenError::Io { path, .. } if *path == nowhere),
        "{missing}"
    );
}

#[tokio::test]
async fn a_backup_of_a_damaged_store_names_the_file() {
    let rig = Rig::disk(Options::default());
    rig.put("a", "1").await;
    rig.store.close().await;
    let log = rig.dir.as_ref().unwrap().path().join("00000001.log");
    let mut bytes = fs::read(&log).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&log, bytes).unwrap();
    let damaged = copy(&rig).1.unwrap_err();
    assert!(
        matches!(&damaged, OpenError::Corrupt { path, .. } if *path == log),
        "{damaged}"
    );
}

#[tokio::test]
async fn a_store_opened_for_reading_changes_nothing() {
    let rig = Rig::disk(compacting());
    rig.put_until_folded("a", "1").await;
    let dir = rig.dir.as_ref().unwrap().path();
    let locked = Store::open_read_only(dir, Options::default()).unwrap_err();
    assert!(matches!(locked, OpenError::Locked { .. }), "{locked}");
    rig.store.close().await;
    // What an interrupted compaction leaves behind, and a torn tail, which opening for writing would remove.
    fs::write(dir.join("00000099.base.new"), "half").unwrap();
    let content = || -> Vec<_> {
        let read = |name: &String| fs::read(dir.join(name)).unwrap();
        let names = files(dir);
        names
            .iter()
            .map(|name| (name.clone(), read(name)))
            .collect()
    };
    let before = content();
    let store = Store::open_read_only(dir, Options::default()).unwrap();
    let things = store.keyspace("things");
    assert_eq!(dump(&things.snapshot()), ["a=1"]);
    let refused = store
        .commit_one(Write::put(&things, "b", Expect::Any, draft("2")))
        .await
        .unwrap_err();
    assert!(matches!(refused, WriteError::NotWritten(_)), "{refused}");
    assert_eq!(dump(&things.snapshot()), ["a=1"]);
    store.close().await;
    assert_eq!(content(), before);

    let empty = tempfile::tempdir().unwrap();
    let nowhere = empty.path().join("nowhere");
    assert!(Store::open_read_only(&nowhere, Options::default()).is_err());
    assert!(!nowhere.exists());
}

fn created(key: &str, revision: u64) -> CreatedRecord {
    CreatedRecord {
        space: "things".into(),
        key: key.into(),
        revision: Revision(revision),
        draft: Draft {
            value: r#"{"v":""}"#.into(),
            stamp: Some(6),
            terms: vec!["x".into()],
            ..Draft::default()
        },
    }
}

#[tokio::test]
async fn a_store_is_created_of_records_that_keep_their_revisions() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options::default();
    let records = vec![created("b", 7), created("a", 40), created("b", 9)];
    create(dir.path(), &options, Revision(12), records).unwrap();
    let store = Store::open(dir.path(), Options::default()).unwrap();
    let things = store.keyspace("things");
    let shown = dump(&things.snapshot());
    assert_eq!(shown, [r#"a={"v":"40"}"#, r#"b={"v":"9"}"#]);
    assert_eq!(store.revision(), Revision(40));
    assert_eq!(things.snapshot().with_term("x", "", None).count(), 2);
    let record = store
        .commit_one(Write::put(&things, "c", Expect::Absent, draft("1")))
        .await
        .unwrap();
    assert_eq!(record.revision, Revision(41));
    store.close().await;
    drop(store);
    // What is there is not replaced.
    let again = create(dir.path(), &options, Revision(1), vec![created("z", 5)]);
    assert!(matches!(again, Err(OpenError::Io { .. })), "{again:?}");
    let store = Store::open(dir.path(), Options::default()).unwrap();
    assert_eq!(store.revision(), Revision(41));
    assert_eq!(store.keyspace("things").snapshot().len(), 3);
}

#[tokio::test]
async fn a_store_that_was_not_written_to_since_it_was_created_is_backed_up() {
    let (dir, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let options = Options::default();
    let records = vec![created("a", 7)];
    create(dir.path(), &options, Revision(12), records).unwrap();
    assert_eq!(backup(dir.path(), to.path()).unwrap(), Revision(12));
    let store = Store::open(to.path(), options).unwrap();
    assert_eq!(store.revision(), Revision(12));
    let things = store.keyspace("things");
    assert_eq!(dump(&things.snapshot()), [r#"a={"v":"7"}"#]);
    let write = Write::put(&things, "b", Expect::Absent, draft("1"));
    let record = store.commit_one(write).await.unwrap();
    assert_eq!(record.revision, Revision(13));
}

#[test]
fn a_store_that_is_created_of_nothing_is_at_the_revision_that_was_named() {
    let dir = tempfile::tempdir().unwrap();
    create(dir.path(), &Options::default(), Revision(12), Vec::new()).unwrap();
    let store = Store::open(dir.path(), Options::default()).unwrap();
    assert_eq!(store.revision(), Revision(12));
}
