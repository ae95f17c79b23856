//! What the store does with its journal: group commit, and what happens when it fails.

use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use mizzen_store::{
    AppendError, Expect, Health, Journal, JournalEntry, OpenError, Options, Revision, Saved, Store,
    Write, WriteError,
};

use crate::rig::{at, draft, dump};

/// Fails once `countdown` appends have succeeded: once if nothing is written then, and for good if that is unknown.
struct Failing {
    countdown: usize,
    error: fn(io::Error) -> AppendError,
}

impl Journal for Failing {
    fn replay(&mut self, _load: &mut dyn FnMut(Saved<'_>)) -> Result<Option<Revision>, OpenError> {
        Ok(None)
    }

    fn append(&mut self, _batch: &[JournalEntry]) -> Result<(), AppendError> {
        let left = self.countdown.checked_sub(1);
        self.countdown = left.unwrap_or(usize::MAX);
        left.map(drop)
            .ok_or_else(|| (self.error)(io::ErrorKind::StorageFull.into()))
    }
}

/// Waits for permission before each append, and remembers how many entries it had.
struct Gated {
    permits: Receiver<()>,
    sizes: Arc<Mutex<Vec<usize>>>,
}

impl Journal for Gated {
    fn replay(&mut self, _load: &mut dyn FnMut(Saved<'_>)) -> Result<Option<Revision>, OpenError> {
        Ok(None)
    }

    fn append(&mut self, batch: &[JournalEntry]) -> Result<(), AppendError> {
        self.permits
            .recv()
            .map_err(|error| AppendError::Unknown(io::Error::other(error)))?;
        self.sizes.lock().push(batch.len());
        Ok(())
    }
}

fn put(
    store: &Store,
    key: &str,
) -> impl Future<Output = Result<Arc<mizzen_store::Record>, WriteError>> + use<> {
    let (store, write) = (
        store.clone(),
        Write::put(&store.keyspace("things"), key, Expect::Absent, draft("x")),
    );
    async move { store.commit_one(write).await }
}

fn gated() -> (Store, SyncSender<()>, Arc<Mutex<Vec<usize>>>) {
    let (permit, permits) = sync_channel(64);
    let sizes = Arc::default();
    let journal = Gated {
        permits,
        sizes: Arc::clone(&sizes),
    };
    (
        Store::with_journal(journal, Options::default()).unwrap(),
        permit,
        sizes,
    )
}

#[tokio::test]
async fn a_failed_fsync_is_reported_as_unknown_and_poisons_the_store() {
    let journal = Failing {
        countdown: 1,
        error: AppendError::Unknown,
    };
    let store = Store::with_journal(journal, Options::default()).unwrap();
    let space = store.keyspace("things");
    let mut watch = space.watch(at(1)).unwrap();
    put(&store, "a").await.unwrap();
    assert!(matches!(store.health(), Health::Writable));
    let failed = put(&store, "b").await.unwrap_err();
    assert!(matches!(store.health(), Health::Failed(_)));
    assert!(
        matches!(&failed, WriteError::Unknown(cause) if cause.kind() == io::ErrorKind::StorageFull)
    );
    let poisoned = put(&store, "c").await.unwrap_err();
    assert!(
        matches!(&poisoned, WriteError::Poisoned(cause) if cause.kind() == io::ErrorKind::StorageFull)
    );
    assert!(matches!(
        store.expire(1).await,
        Err(WriteError::Poisoned(_))
    ));
    assert_eq!(store.revision(), at(2));
    assert_eq!(dump(&space.snapshot()), ["a=x"]);
    assert_eq!(watch.ready().unwrap().len(), 1);
}

#[tokio::test]
async fn a_failed_write_is_rejected_and_the_next_one_is_accepted() {
    let journal = Failing {
        countdown: 1,
        error: AppendError::NotWritten,
    };
    let store = Store::with_journal(journal, Options::default()).unwrap();
    let mut health = store.watch_health();
    put(&store, "a").await.unwrap();
    let failed = put(&store, "b").await.unwrap_err();
    assert!(
        matches!(&failed, WriteError::NotWritten(cause) if cause.kind() == io::ErrorKind::StorageFull)
    );
    assert!(matches!(*health.borrow_and_update(), Health::Full(_)));
    put(&store, "b").await.unwrap();
    assert!(matches!(*health.borrow_and_update(), Health::Writable));
    assert_eq!(
        (store.revision(), store.failures().refused_writes),
        (at(3), 1)
    );
    assert_eq!(dump(&store.keyspace("things").snapshot()), ["a=x", "b=x"]);
}

#[tokio::test]
async fn waiting_writers_share_one_append() {
    let (store, permit, sizes) = gated();
    // Once somebody waits for the disk, all who come meanwhile go together.
    let first = tokio::spawn(put(&store, "first"));
    let rest: Vec<_> = (0..50)
        .map(|n| tokio::spawn(put(&store, &format!("{n:02}"))))
        .collect();
    // On this single-threaded runtime all of them have sent their write once each has been polled.
    for _ in 0..2 {
        tokio::task::yield_now().await;
    }
    (0..51).for_each(|_| permit.send(()).unwrap());
    first.await.unwrap().unwrap();
    for write in rest {
        write.await.unwrap().unwrap();
    }
    let sizes = sizes.lock();
    assert_eq!(sizes.iter().sum::<usize>(), 51);
    assert!(sizes.len() <= 3, "{sizes:?}");
}

#[tokio::test]
async fn a_write_is_visible_only_after_it_is_durable() {
    let (store, permit, _) = gated();
    let space = store.keyspace("things");
    let mut watch = space.watch(at(1)).unwrap();
    let write = tokio::spawn(put(&store, "a"));
    tokio::task::yield_now().await;
    assert_eq!(
        (
            store.revision(),
            space.snapshot().len(),
            watch.ready().unwrap().len()
        ),
        (at(1), 0, 0)
    );
    permit.send(()).unwrap();
    write.await.unwrap().unwrap();
    assert_eq!(
        (
            store.revision(),
            space.snapshot().len(),
            watch.ready().unwrap().len()
        ),
        (at(2), 1, 1)
    );
}

#[tokio::test]
async fn a_write_completes_after_its_caller_is_dropped() {
    let (store, permit, _) = gated();
    let write = tokio::spawn(put(&store, "a"));
    tokio::task::yield_now().await;
    write.abort();
    permit.send(()).unwrap();
    permit.send(()).unwrap();
    put(&store, "b").await.unwrap();
    assert_eq!(dump(&store.keyspace("things").snapshot()), ["a=x", "b=x"]);
}

#[tokio::test]
async fn closing_waits_for_accepted_writes() {
    let (store, permit, sizes) = gated();
    let write = tokio::spawn(put(&store, "a"));
    tokio::task::yield_now().await;
    permit.send(()).unwrap();
    store.close().await;
    assert_eq!(*sizes.lock(), [1]);
    write.await.unwrap().unwrap();
}
