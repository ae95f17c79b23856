//! Reads that have every acknowledged write, and reads of the past.
//!
//! The latest state of a keyspace is its cache once the watch has reached the revision that etcd has now. etcd tells
//! how far a watch has come when it is asked, since 3.4.31 and 3.5.13. With an older etcd the keys of the list and
//! their revisions are read, and the values that differ from the cache.
//!
//! Kubernetes: consistent reads from cache (storage/cacher/ready.go, watch_progress.go).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mizzen_store::{Expired, Keyspace, ReadError, Record, Revision, Snapshot};
use tokio::time::{Instant, sleep};

use super::commit::record_of;
use super::space::{CachedSpace, list, number, revision_from, revision_of};
use super::{CATCH_UP_TIMEOUT, EngineParts, unavailable};
use crate::client::CallError;
use crate::messages::{KeyValue, RangeRequest};

/// How often etcd is asked for progress while a read waits for it.
///
/// Kubernetes: progressRequestPeriod (storage/cacher/watch_progress.go).
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// How often a revision that is compacted while it is read is replaced by a later one.
const MAX_COMPACTED: usize = 3;

pub(super) async fn get(
    engine: &EngineParts,
    space: &Keyspace,
    key: &str,
) -> Result<Option<Arc<Record>>, ReadError> {
    let cached = engine.cached(space);
    let request = RangeRequest {
        key: cached.key(key),
        ..RangeRequest::default()
    };
    let response = cached.read("get", request).await.map_err(unavailable)?;
    let kv = response.kvs.into_iter().next();
    Ok(kv.map(|kv| record_of(engine, space, key, kv)))
}

pub(super) async fn latest(
    engine: &EngineParts,
    space: &Keyspace,
    prefix: &str,
) -> Result<Snapshot, ReadError> {
    let cached = engine.cached(space);
    let has_progress = engine
        .cluster(space.name())
        .has_progress
        .load(Ordering::Acquire);
    if has_progress && space.revision() > Revision::ZERO {
        let now = current_revision(&cached).await.map_err(unavailable)?;
        if catch_up(&cached, space, now).await {
            return Ok(space.snapshot());
        }
    }
    read_through(engine, &cached, space, prefix).await
}

/// The revision of etcd, by a linearizable read of a key that is not there.
async fn current_revision(cached: &CachedSpace) -> Result<Revision, CallError> {
    let request = RangeRequest {
        key: cached.prefix.clone().into(),
        ..RangeRequest::default()
    };
    let header = cached.read("get", request).await?.header;
    Ok(revision_from(header.map_or(0, |header| header.revision)))
}

/// Waits until the watch has reached `revision`. Returns whether it has in time.
async fn catch_up(cached: &CachedSpace, space: &Keyspace, revision: Revision) -> bool {
    if space.revision() >= revision {
        return true;
    }
    let deadline = Instant::now() + CATCH_UP_TIMEOUT;
    while Instant::now() < deadline {
        cached.request_progress();
        tokio::select! {
            () = space.reached(revision) => return true,
            () = sleep(PROGRESS_INTERVAL) => {}
        }
    }
    cached.report_lag();
    false
}

/// Reads keys and revisions from etcd, and the values that the cache does not have.
async fn read_through(
    engine: &EngineParts,
    cached: &CachedSpace,
    space: &Keyspace,
    prefix: &str,
) -> Result<Snapshot, ReadError> {
    for _ in 1..MAX_COMPACTED {
        match read_at(engine, cached, space, prefix, 0).await {
            Err(error) if error.is_compacted() => {}
            read => return read.map_err(unavailable),
        }
    }
    let read = read_at(engine, cached, space, prefix, 0).await;
    read.map_err(unavailable)
}

pub(super) async fn snapshot_at(
    engine: &EngineParts,
    space: &Keyspace,
    prefix: &str,
    revision: Revision,
    expired: Expired,
) -> Result<Snapshot, ReadError> {
    // A list at revision zero is one that names no revision.
    if revision == Revision::ZERO {
        return Err(expired.into());
    }
    let cached = engine.cached(space);
    match read_at(engine, &cached, space, prefix, number(revision)).await {
        Ok(snapshot) => {
            space.retain(&snapshot);
            Ok(snapshot)
        }
        Err(error) if error.is_compacted() => Err(expired.into()),
        Err(error) => Err(unavailable(error)),
    }
}

/// The keys of a keyspace that begin with `prefix`, at `revision`; 0 for the latest.
///
/// Everything is read at one revision, so that writes meanwhile are not seen. If that is compacted meanwhile, a read
/// fails.
async fn read_at(
    engine: &EngineParts,
    cached: &CachedSpace,
    space: &Keyspace,
    prefix: &str,
    revision: i64,
) -> Result<Snapshot, CallError> {
    let decoded = |kv: KeyValue| {
        let key = cached.own_key(&kv)?.to_owned();
        Some(record_of(engine, space, &key, kv))
    };
    // A cache that was not filled yet has no value.
    let keys_only = space.revision() > Revision::ZERO;
    let (revision, kvs) = list(cached, prefix, revision, keys_only).await?;
    if !keys_only {
        let records = kvs.into_iter().filter_map(decoded);
        return Ok(Snapshot::of_records(records, revision).partial(prefix));
    }
    let known = space.snapshot();
    let has = |kv: &&KeyValue| {
        let record = cached.own_key(kv).and_then(|key| known.get(key));
        record.is_some_and(|record| record.revision == revision_of(kv))
    };
    let missing = kvs.iter().filter(|kv| !has(kv));
    let missing: Vec<_> = missing.map(|kv| kv.key.clone()).collect();
    let gone = match kvs.len() - missing.len() == known.count(prefix) {
        true => Vec::new(),
        false => not_listed(cached, &known, prefix, &kvs),
    };
    let read = cached.values(&missing, revision).await?;
    let read = read.into_iter().filter_map(decoded);
    Ok(known.changed(gone, read, revision).partial(prefix))
}

/// The keys of a snapshot that a list of those that begin with `prefix` does not have. A list is in the order of keys.
fn not_listed(
    cached: &CachedSpace,
    known: &Snapshot,
    prefix: &str,
    listed: &[KeyValue],
) -> Vec<Arc<str>> {
    let own_key = |kv: &KeyValue| kv.key.slice(cached.prefix.len()..);
    let keys = known.range(prefix, None).map(|record| &record.key);
    let is_gone = |key: &&Arc<str>| {
        let place = listed.binary_search_by(|kv| (*own_key(kv)).cmp(key.as_bytes()));
        place.is_err()
    };
    keys.filter(is_gone).cloned().collect()
}
