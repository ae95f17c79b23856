//! What a storage engine does: decide transactions, and publish what was committed.
//!
//! There are three: memory ([`memory`](crate::memory)), disk ([`disk_engine`](crate::disk_engine)) and etcd (the crate
//! `mizzen-etcd`). An engine decides and keeps transactions; snapshots and watches read what it publishes to the keyspaces,
//! and are the same for all. `mizzen_store::conformance` is the suite that every engine passes.
//!
//! Invariant: a transaction is published, in the order of revisions, before its writer is answered.

use std::future::{self, Future};
use std::pin::Pin;
use std::sync::Arc;

use crate::{Expired, Feed, Keyspace, Record, Revision, Snapshot, Write, WriteError};

/// A future in a box, as traits return them.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The records of one transaction's changes, in its order.
pub type CommitResult = Result<Vec<Arc<Record>>, WriteError>;

/// A storage engine.
pub trait Engine: Send + Sync {
    /// A keyspace is used for the first time. An engine that other processes write to, too, begins to fill it.
    fn open(&self, _feed: Feed) {}

    /// Nothing uses a keyspace any more that the engine fills: it stops. One of the same name may be opened afterwards.
    fn release(&self, _space: &Keyspace) {}

    /// Whether other processes write to the same data, so that a keyspace may lag behind. `get`, `latest` and `snapshot_at`
    /// are called where it is true.
    fn is_shared(&self) -> bool {
        false
    }

    /// Commits a transaction: all of it, durably and under one revision, or none of it, and publishes it. Returns the
    /// record of each put and delete, in order. A transaction of checks alone takes no revision.
    fn commit(&self, writes: Vec<Write>) -> BoxFuture<'_, CommitResult>;

    /// The record of `key`, with all writes that were acknowledged before the call, by any process.
    fn get<'a>(
        &'a self,
        space: &'a Keyspace,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Option<Arc<Record>>, ReadError>> {
        let record = space.snapshot().get(key).cloned();
        Box::pin(future::ready(Ok(record)))
    }

    /// The keyspace with all writes that were acknowledged before the call, by any process. It need not be right for
    /// keys that do not begin with `prefix`; a snapshot that is not is [`partial`](Snapshot::partial).
    fn latest<'a>(
        &'a self,
        space: &'a Keyspace,
        _prefix: &'a str,
    ) -> BoxFuture<'a, Result<Snapshot, ReadError>> {
        Box::pin(future::ready(Ok(space.snapshot())))
    }

    /// The keyspace as it was at `revision`, which is not in its window. It need not be right for keys that do not begin
    /// with `prefix`, as in `latest`.
    fn snapshot_at<'a>(
        &'a self,
        _space: &'a Keyspace,
        _prefix: &'a str,
        _revision: Revision,
        expired: Expired,
    ) -> BoxFuture<'a, Result<Snapshot, ReadError>> {
        Box::pin(future::ready(Err(expired.into())))
    }

    /// Deletes records that expire at or before the Unix second `now`, and returns how many there were. An engine whose
    /// records expire by themselves does nothing.
    fn expire(&self, now: u64) -> BoxFuture<'_, Result<usize, WriteError>>;

    /// Compacts history before `revision`, or does what processes that share the data have agreed on instead.
    fn compact(&self, _revision: Revision) -> BoxFuture<'_, ()> {
        Box::pin(future::ready(()))
    }

    /// The revision before which the history of a keyspace is compacted after `compact` was called with `revision`.
    fn compacted(&self, _space: &str, revision: Revision) -> Revision {
        revision
    }

    /// Whether a record of `space` should be written again although its content is the same: it is encrypted under an old
    /// key, or in plain text and should not be.
    fn is_stale(&self, _space: &str, _record: &Record) -> bool {
        false
    }

    /// How many clusters of servers have the data. The first one has what no other is said to have.
    fn n_clusters(&self) -> usize {
        1
    }

    /// Whether reads and writes are answered now by one of its clusters.
    fn check(&self, _check: EngineCheck, _cluster: usize) -> BoxFuture<'_, Result<(), ReadError>> {
        Box::pin(future::ready(Ok(())))
    }

    /// Takes no more writes, and makes those that were accepted durable.
    fn close(&self) -> BoxFuture<'_, ()>;
}

/// What a check of an engine is for. Each may wait for another time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineCheck {
    /// Whether the engine works.
    Health,
    /// Whether requests should be sent to this process.
    Readiness,
}

/// Why the latest state cannot be read.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReadError {
    /// The engine cannot be reached, or does not answer in time.
    #[error("{0}")]
    Unavailable(String),
    /// The revision was compacted.
    #[error(transparent)]
    Expired(#[from] Expired),
}
