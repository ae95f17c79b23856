//! What the store on disk promises beyond the others.

use std::fs;
use std::path::Path;

use mizzen_store::{Expect, Expired, OpenError, Options, Store, Write};

use crate::rig::{Rig, at, draft, dump, show, tagged};

/// So small that every few writes begin a new generation.
pub(crate) fn compacting() -> Options {
    Options {
        compaction_bytes: 2000,
        ..Options::default()
    }
}

pub(crate) fn files(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[tokio::test]
async fn all_records_survive_reopening() {
    let mut rig = Rig::disk(Options::default());
    rig.put_draft("a", tagged("1", &["x", "y"])).await;
    rig.put("b", "1").await;
    rig.put_draft(
        "c",
        mizzen_store::Draft {
            expires: Some(7),
            stamp: Some(0),
            ..draft("")
        },
    )
    .await;
    rig.store
        .commit_one(Write::put(
            &rig.store.keyspace("others"),
            "é",
            Expect::Any,
            draft("2"),
        ))
        .await
        .unwrap();
    rig.delete("b").await;
    rig.reopen().await;
    let snapshot = rig.space().snapshot();
    assert_eq!(dump(&snapshot), ["a=1", "c=4"]);
    assert_eq!(dump(&rig.store.keyspace("others").snapshot()), ["é=2"]);
    let (a, c) = (snapshot.get("a").unwrap(), snapshot.get("c").unwrap());
    assert_eq!(
        (a.revision, &*a.terms),
        (at(2), &["x".into(), "y".into()][..])
    );
    assert_eq!(
        (c.revision, c.expires, c.digits()),
        (at(4), Some(7), Some(0..1))
    );
    assert_eq!(rig.store.revision(), at(6), "the last change was a delete");
    assert_eq!(rig.put("d", "1").await.revision, at(7));
}

/// Across compactions, which replace files.
#[tokio::test]
async fn records_survive_reopening_without_fsync() {
    let mut rig = Rig::disk(Options {
        unsafe_no_fsync: true,
        ..compacting()
    });
    for number in 0..100 {
        rig.put(&format!("key-{}", number % 10), &number.to_string())
            .await;
    }
    rig.reopen().await;
    let expected: Vec<String> = (0..10)
        .map(|key| format!("key-{key}={}", 90 + key))
        .collect();
    assert_eq!(dump(&rig.space().snapshot()), expected);
}

#[tokio::test]
async fn history_starts_at_opening() {
    let mut rig = Rig::disk(Options::default());
    rig.put("a", "1").await;
    rig.put("a", "2").await;
    rig.reopen().await;
    assert_eq!(
        rig.space().watch(at(2)).unwrap_err(),
        Expired {
            requested: at(2),
            oldest: at(3)
        }
    );
    assert!(rig.space().snapshot_at(at(2)).is_err());
    assert!(rig.store.keyspace("never used").watch(at(2)).is_err());
    let mut watch = rig.space().watch(at(3)).unwrap();
    rig.put("a", "3").await;
    assert_eq!(show(&watch.next().await.unwrap()[0].record), "a=3");
}

#[tokio::test]
async fn a_data_directory_is_locked() {
    let rig = Rig::disk(Options::default());
    let dir = rig.dir.as_ref().unwrap().path();
    let locked = Store::open(dir, Options::default()).unwrap_err();
    assert!(
        matches!(&locked, OpenError::Locked { path } if *path == dir.join("lock")),
        "{locked}"
    );
    rig.store.close().await;
    Store::open(dir, Options::default()).unwrap();
}

#[tokio::test]
async fn dropping_the_last_handle_unlocks_the_directory() {
    let rig = Rig::disk(Options::default());
    rig.put("a", "1").await;
    drop(rig.store);
    let again = Store::open(rig.dir.as_ref().unwrap().path(), Options::default()).unwrap();
    assert_eq!(dump(&again.keyspace("things").snapshot()), ["a=1"]);
}

#[test]
fn the_error_names_a_path_that_is_no_directory() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let error = Store::open(file.path(), Options::default()).unwrap_err();
    assert!(
        matches!(&error, OpenError::Io { path, .. } if path == file.path()),
        "{error}"
    );
}

#[tokio::test]
async fn superseded_records_are_removed_from_disk() {
    let mut rig = Rig::disk(compacting());
    for n in 0..400 {
        rig.put(&format!("{}", n % 7), &format!("{n}{}", "x".repeat(100)))
            .await;
    }
    rig.delete("0").await;
    rig.put_until_folded("1", "x").await;
    let (before, revision) = (dump(&rig.space().snapshot()), rig.store.revision());
    // Closing may interrupt a compaction; then it is made up for later, and nothing is missing.
    for _ in 0..3 {
        rig.reopen().await;
        assert_eq!(dump(&rig.space().snapshot()), before);
        assert_eq!(rig.store.revision(), revision);
    }
    let names = files(rig.dir.as_ref().unwrap().path());
    assert!(names.len() < 10, "{names:?}");
}

#[tokio::test]
async fn a_large_batch_is_read_back() {
    let mut rig = Rig::disk(Options::default());
    let space = rig.space();
    let large = "x".repeat(700 << 10);
    let put = |n: usize| Write::put(&space, format!("{n}"), Expect::Absent, draft(&large));
    let one = rig.store.commit((0..4).map(put).collect());
    let two = rig.store.commit((4..8).map(put).collect());
    let (one, two) = tokio::join!(one, two);
    assert_eq!((one.unwrap().len(), two.unwrap().len()), (4, 4));
    rig.reopen().await;
    assert_eq!(rig.space().snapshot().len(), 8);
    assert_eq!(rig.store.revision(), at(3));
}

/// What a kill leaves: the log as it was at the last append, and a tail of which nobody was told.
#[tokio::test]
async fn an_unacknowledged_torn_tail_is_dropped() {
    let rig = Rig::disk(Options::default());
    rig.put("a", "1").await;
    rig.store.close().await;
    let dir = rig.dir.as_ref().unwrap().path();
    let log = dir.join("00000001.log");
    let tip = fs::read(dir.join("tip")).unwrap();
    let whole = fs::read(&log).unwrap();

    let again = Store::open(dir, Options::default()).unwrap();
    let things = again.keyspace("things");
    again
        .commit_one(Write::put(&things, "b", Expect::Any, draft("2")))
        .await
        .unwrap();
    again.close().await;
    let longer = fs::read(&log).unwrap();
    let torn = (0..longer.len()).rev().find(|&at| longer[at] != 0).unwrap();
    assert!(longer[..20] == whole[..20] && torn > 60);

    // The second append happened, but was cut short before anybody was told.
    fs::write(&log, &longer[..torn]).unwrap();
    fs::write(dir.join("tip"), &tip).unwrap();
    let opened = Store::open(dir, Options::default()).unwrap();
    assert_eq!(dump(&opened.keyspace("things").snapshot()), ["a=1"]);
    let c = Write::put(&opened.keyspace("things"), "c", Expect::Any, draft("3"));
    assert_eq!(opened.commit_one(c).await.unwrap().revision, at(3));
    opened.close().await;
    let opened = Store::open(dir, Options::default()).unwrap();
    assert_eq!(dump(&opened.keyspace("things").snapshot()), ["a=1", "c=3"]);
}
