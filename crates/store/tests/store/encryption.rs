//! A store whose records are encrypted on disk.

use std::fs;
use std::sync::Arc;

use mizzen_store::{
    AppendError, Draft, Encryptor as _, EventKind, Expect, Health, Journal, JournalEntry,
    OpenError, Options, Record, Revision, Saved, Store, Write, WriteError,
};
use tempfile::TempDir;

use crate::rig::{Rig, at, draft, dump, tagged};
use crate::toy::Toy;

/// So small that every few writes begin a new generation.
fn compacting() -> Options {
    Options {
        compaction_bytes: 2000,
        ..Options::default()
    }
}

/// Whether somebody who has the directory can read `text`.
fn can_read(dir: &TempDir, text: &str) -> bool {
    // Files may go while we look.
    let files = fs::read_dir(dir)
        .unwrap()
        .map(|entry| fs::read(entry.unwrap().path()).unwrap_or_default());
    files.into_iter().any(|bytes| {
        bytes
            .windows(text.len())
            .any(|window| window == text.as_bytes())
    })
}

/// The directory opened by somebody who has these keys.
fn open(rig: &Rig, toy: Arc<Toy>) -> Result<Store, OpenError> {
    Store::open(
        rig.dir.as_ref().unwrap().path(),
        Options {
            encryptor: Some(toy),
            ..compacting()
        },
    )
}

async fn put_other(rig: &Rig, value: &str) -> Result<Arc<Record>, WriteError> {
    rig.store
        .commit_one(Write::put(
            &rig.store.keyspace("others"),
            "o",
            Expect::Any,
            draft(value),
        ))
        .await
}

/// Writes elsewhere until nobody can read `text` any more: the background has its own pace.
async fn put_until_unreadable(rig: &Rig, text: &str) {
    while can_read(rig.dir.as_ref().unwrap(), text) {
        put_other(rig, "x").await.unwrap();
    }
}

#[tokio::test]
async fn values_and_terms_are_encrypted_before_and_after_compaction() {
    let rig = Rig::encrypted(compacting());
    let dir = rig.dir.as_ref().unwrap();
    rig.put_draft("a", tagged("a long secret", &["label=hidden"]))
        .await;
    put_other(&rig, "all may know").await.unwrap();
    assert!(can_read(dir, "all may know"));
    let check = || assert!(!can_read(dir, "long secret") && !can_read(dir, "label=hidden"));
    check();
    rig.put_until_folded("b", "another long secret").await;
    check();
    assert_eq!(
        dump(&rig.space().snapshot()),
        ["a=a long secret", "b=another long secret"]
    );
}

#[tokio::test]
async fn all_encrypted_records_survive_reopening() {
    let mut rig = Rig::encrypted(Options::default());
    rig.put_draft("a", tagged("1", &["x", "y"])).await;
    rig.put("b", "1").await;
    rig.put_draft(
        "c",
        Draft {
            expires: Some(7),
            stamp: Some(1),
            ..draft("v;")
        },
    )
    .await;
    rig.delete("b").await;
    rig.reopen().await;
    let snapshot = rig.space().snapshot();
    assert_eq!(dump(&snapshot), ["a=1", "c=v4;"]);
    let (a, c) = (snapshot.get("a").unwrap(), snapshot.get("c").unwrap());
    assert_eq!(
        (a.revision, &*a.terms),
        (at(2), &["x".into(), "y".into()][..])
    );
    assert_eq!(
        (c.revision, c.expires, c.digits()),
        (at(4), Some(7), Some(1..2))
    );
    assert_eq!(snapshot.with_term("y", "", None).count(), 1);
}

#[tokio::test]
async fn opening_without_a_key_names_the_record_and_changes_nothing() {
    let rig = Rig::encrypted(compacting());
    rig.put("first", "1").await;
    rig.store.close().await;
    let log = rig.dir.as_ref().unwrap().path().join("00000001.log");
    let before = fs::read(&log).unwrap();
    let check = |opened: Result<Store, OpenError>, why: &str| {
        let error = opened.unwrap_err();
        let OpenError::Decrypt { space, key, source } = &error else {
            panic!("{error}")
        };
        assert_eq!(
            (&**space, &**key, source.to_string().as_str()),
            ("things", "first", why)
        );
        assert_eq!(error.to_string(), "things first cannot be opened");
        assert_eq!(fs::read(&log).unwrap(), before);
    };
    check(open(&rig, Toy::with_keys(&[2])), "there is no key 1");
    check(
        Store::open(rig.dir.as_ref().unwrap().path(), compacting()),
        "it is encrypted, and there is no key",
    );
    assert_eq!(
        dump(
            &open(&rig, Toy::with_keys(&[1, 2]))
                .unwrap()
                .keyspace("things")
                .snapshot()
        ),
        ["first=1"]
    );
}

#[tokio::test]
async fn superseded_records_need_no_key() {
    let rig = Rig::encrypted(Options::default());
    rig.put("a", "1").await;
    rig.put("gone", "1").await;
    rig.delete("gone").await;
    rig.toy.as_ref().unwrap().rotate();
    rig.put("a", "2").await;
    rig.store.close().await;
    assert_eq!(
        dump(
            &open(&rig, Toy::with_keys(&[2]))
                .unwrap()
                .keyspace("things")
                .snapshot()
        ),
        ["a=2"]
    );
}

#[tokio::test]
async fn a_write_that_cannot_be_encrypted_fails_alone() {
    let mut rig = Rig::encrypted(Options::default());
    rig.put("a", "1").await;
    rig.toy.as_ref().unwrap().set_stuck(true);
    let put = Write::put(&rig.space(), "a", Expect::Any, draft("2"));
    let refused = rig.store.commit_one(put).await.unwrap_err();
    assert_eq!(refused.to_string(), "the lock is stuck");
    assert!(
        matches!(refused, WriteError::Encrypt(_)) && matches!(rig.store.health(), Health::Writable)
    );
    put_other(&rig, "1").await.unwrap();
    assert_eq!(
        rig.delete("a").await.revision,
        at(4),
        "to delete needs no key"
    );
    rig.toy.as_ref().unwrap().set_stuck(false);
    rig.put("b", "1").await;
    rig.reopen().await;
    assert_eq!(dump(&rig.space().snapshot()), ["b=1"]);
}

#[tokio::test]
async fn a_failed_compaction_loses_nothing() {
    let mut rig = Rig::encrypted(compacting());
    rig.put("a", "1").await;
    rig.toy.as_ref().unwrap().set_stuck(true);
    for n in 0..200 {
        put_other(&rig, &format!("{n}{}", "x".repeat(100)))
            .await
            .unwrap();
    }
    rig.reopen().await;
    assert_eq!(dump(&rig.space().snapshot()), ["a=1"]);
    assert_eq!(rig.store.revision(), at(202));
    rig.toy.as_ref().unwrap().set_stuck(false);
    rig.put_until_folded("b", &"2".repeat(200)).await;
    rig.reopen().await;
    assert_eq!(rig.space().snapshot().len(), 2);
}

#[tokio::test]
async fn a_new_key_rewrites_live_records_and_removes_the_old_files() {
    let rig = Rig::encrypted(Options::default());
    let (toy, dir) = (rig.toy.as_ref().unwrap(), rig.dir.as_ref().unwrap());
    let old = rig.put("a", "1").await;
    assert!(!rig.store.is_stale(&rig.space(), &old));
    let (other, others) = (
        put_other(&rig, "1").await.unwrap(),
        rig.store.keyspace("others"),
    );
    toy.rotate();
    assert!(rig.store.is_stale(&rig.space(), &old));
    assert!(
        !rig.store.is_stale(&others, &other),
        "it is plain text before and after"
    );
    assert!(!rig.store.is_stale(&rig.space(), &*rig.put("b", "1").await));
    put_until_unreadable(&rig, "\u{1}things a\0").await;
    rig.store.close().await;
    assert!(!can_read(dir, "\u{1}things"));
    let opened = open(&rig, Toy::with_keys(&[2])).unwrap();
    assert_eq!(dump(&opened.keyspace("things").snapshot()), ["a=1", "b=1"]);
}

#[tokio::test]
async fn plain_text_records_are_encrypted_at_the_next_start() {
    let rig = Rig::disk(Options::default());
    rig.put("a", "a long secret").await;
    rig.put("a", "a longer secret").await;
    rig.store.close().await;
    let store = open(&rig, Toy::with_keys(&[1])).unwrap();
    let rig = Rig { store, ..rig };
    assert!(
        rig.store
            .is_stale(&rig.space(), rig.space().snapshot().get("a").unwrap())
    );
    assert!(can_read(rig.dir.as_ref().unwrap(), "secret"));
    put_until_unreadable(&rig, "secret").await;
    assert_eq!(dump(&rig.space().snapshot()), ["a=a longer secret"]);
}

#[tokio::test]
async fn plain_text_records_are_rejected_where_encryption_is_required() {
    let rig = Rig::disk(Options::default());
    put_other(&rig, "1").await.unwrap();
    rig.store.close().await;
    drop(open(&rig, Toy::strict(&[1])).unwrap());
    let again = open(&rig, Toy::with_keys(&[])).unwrap();
    let a = Write::put(&again.keyspace("things"), "a", Expect::Any, draft("1"));
    again.commit_one(a).await.unwrap();
    again.close().await;
    let error = open(&rig, Toy::strict(&[1])).unwrap_err();
    assert!(
        matches!(&error, OpenError::Decrypt { key, .. } if **key == *"a"),
        "{error}"
    );
}

/// A journal in which somebody has put this content under the key `b`.
struct Moved(Vec<u8>);

impl Journal for Moved {
    fn replay(&mut self, load: &mut dyn FnMut(Saved<'_>)) -> Result<Option<Revision>, OpenError> {
        let (space, key, kind, revision) = ("things", "b", EventKind::Put, at(2));
        let (value, digits, terms) = (&self.0, 0..0, Vec::new());
        load(Saved {
            space,
            key,
            kind,
            revision,
            value,
            is_encrypted: true,
            digits,
            terms,
            expires: None,
        });
        Ok(Some(revision))
    }

    fn append(&mut self, _batch: &[JournalEntry]) -> Result<(), AppendError> {
        Ok(())
    }
}

#[test]
fn moved_or_changed_ciphertext_is_rejected() {
    let toy = Toy::with_keys(&[1]);
    let check = |content: Vec<u8>, why: &str| {
        let options = Options {
            encryptor: Some(toy.clone()),
            ..Options::default()
        };
        let error = Store::with_journal(Moved(content), options).unwrap_err();
        let OpenError::Decrypt { key, source, .. } = &error else {
            panic!("{error}")
        };
        assert_eq!((&**key, source.to_string().as_str()), ("b", why));
    };
    let encrypt = |key: &str, plain: &[u8]| {
        toy.encrypt("things", key, plain)
            .unwrap()
            .unwrap()
            .bytes
            .to_vec()
    };
    check(encrypt("a", b"content"), "it belongs elsewhere");
    check(
        encrypt("b", b"nonsense"),
        "the decrypted content is invalid",
    );
    check(encrypt("b", b""), "the decrypted content is invalid");
}

#[tokio::test]
async fn a_new_key_writes_nothing_to_an_empty_keyspace() {
    let mut rig = Rig::encrypted(compacting());
    rig.toy.iter().for_each(|toy| toy.rotate());
    let refused = Write::delete(&rig.space(), "a", Expect::Absent, draft("1"));
    assert!(matches!(
        rig.store.commit_one(refused).await,
        Err(WriteError::Missing { .. })
    ));
    rig.reopen().await;
    assert!(rig.space().snapshot_at(Revision::ZERO).is_ok());
}
