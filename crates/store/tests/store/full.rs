//! A store on a real disk that is full: a small tmpfs. Without the right to mount one the test says so and does
//! nothing, and fails in CI; `disk/tests.rs` has the same on a disk that only pretends.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use mizzen_store::{Expect, Health, Options, Store, Write, WriteError};
use tempfile::TempDir;
use tokio::time::timeout;

use crate::rig::{draft, dump};

/// How long a full disk may take to be writable once there is space.
const RECOVERY: Duration = Duration::from_secs(30);

/// A file system of its own, unmounted at the end.
struct Mount(TempDir);

impl Mount {
    fn new(size: &str) -> Option<Mount> {
        let dir = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(dir.path());
        let mounted = mount.status().is_ok_and(|status| status.success());
        if !mounted {
            let is_ci = std::env::var_os("CI").is_some_and(|ci| ci == "true");
            assert!(!is_ci, "a tmpfs must be mounted");
            eprintln!("SKIPPED: a tmpfs cannot be mounted here");
        }
        mounted.then_some(Mount(dir))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

async fn put(store: &Store, key: &str) -> Result<(), WriteError> {
    let large = "x".repeat(16 << 10);
    let write = Write::put(&store.keyspace("things"), key, Expect::Any, draft(&large));
    store.commit_one(write).await.map(drop)
}

/// Puts records until the disk is full, and returns how many there are.
async fn fill(store: &Store, prefix: &str) -> usize {
    for n in 0.. {
        match put(store, &format!("{prefix}{n:04}")).await {
            Ok(()) => {}
            Err(WriteError::NotWritten(_)) => return n,
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!("a small disk is full at some time")
}

fn drafts(dir: &Path) -> usize {
    let names = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(".new")).count()
}

#[tokio::test]
async fn a_full_file_system_needs_no_restart() {
    let Some(mount) = Mount::new("16m") else {
        return;
    };
    let options = Options {
        compaction_bytes: 1 << 20,
        ..Options::default()
    };
    fs::write(mount.path("ballast"), vec![0; 4 << 20]).unwrap();
    let store = Store::open(mount.path("data"), options.clone()).unwrap();
    let things = store.keyspace("things");
    let mut watch = things.watch(store.revision()).unwrap();
    let n_first = fill(&store, "a").await;
    assert!(n_first > 50, "{n_first} fit");
    assert!(matches!(store.health(), Health::Full(_)));
    assert_eq!(things.snapshot().len(), n_first, "reads go on");
    assert_eq!(watch.ready().unwrap().len(), n_first, "watches go on");

    // Others leave room: writes are taken again at once.
    fs::remove_file(mount.path("ballast")).unwrap();
    put(&store, "b").await.unwrap();
    assert!(matches!(store.health(), Health::Writable));

    // Deletes make room, once a compaction in the background is over.
    let n_second = fill(&store, "c").await;
    for n in 0..n_second {
        let write = Write::delete(&things, format!("c{n:04}"), Expect::Present, draft("gone"));
        store.commit_one(write).await.unwrap();
    }
    let recovered = timeout(RECOVERY, async {
        while put(&store, "d").await.is_err() {
            tokio::task::yield_now().await;
        }
    });
    assert!(recovered.await.is_ok(), "{:?}", store.health());
    assert_eq!(store.failures().compactions, 0);
    let content = dump(&things.snapshot());
    assert_eq!(content.len(), n_first + 2);
    store.close().await;
    assert_eq!(drafts(&mount.path("data")), 0);
    let again = Store::open(mount.path("data"), options).unwrap();
    assert_eq!(dump(&again.keyspace("things").snapshot()), content);
}
