//! Transactions.
//!
//! A transaction is one `Txn` of etcd: its expectations are comparisons, its changes the operations, and if a comparison
//! fails, the keys are read in the same revision, so that the error has what was there. The writer is answered when the caches
//! of this process show the transaction.

use std::sync::Arc;
use std::time::Duration;

use mizzen_store::{
    CommitResult, Expect, Keyspace, Record, Revision, Write, WriteError, WriteOperation,
};
use tokio::time::{Instant, timeout_at};
use tracing::warn;

use super::space::{PendingGuard, number, revision_from, revision_of};
use super::{EngineParts, rejected};
use crate::messages::{Compare, KeyValue, RequestOp, Response, TxnRequest, TxnResponse};

/// How long a writer whose transaction is committed waits for the caches to show it. After that it is answered all the same:
/// reads wait for the revision that it was given.
const SHOW_TIMEOUT: Duration = Duration::from_secs(5);

/// One entry of a transaction, on its way to etcd.
struct Entry {
    write: Write,
    /// The write that the cache expects; none for a check.
    pending: Option<PendingGuard>,
    /// The lease of a record that expires.
    lease: Option<EntryLease>,
}

struct EntryLease {
    /// Which operation of the transaction has it.
    operation: usize,
    seconds: u64,
    /// Of etcd; 0 before it is granted.
    id: i64,
}

pub(super) async fn commit(engine: &EngineParts, writes: Vec<Write>) -> CommitResult {
    if *engine.closed.borrow() {
        return Err(WriteError::Closed);
    }
    if engine.is_read_only {
        return Err(WriteError::Remote {
            message: "etcd is opened for reading only".into(),
            is_known: true,
        });
    }
    let Some(first) = writes.first() else {
        return Ok(Vec::new());
    };
    let cluster = engine.cluster(first.space.name());
    let (operation, cached) = (operation(first), engine.cached(&first.space));
    let mut entries = Vec::with_capacity(writes.len());
    let mut txn = TxnRequest::default();
    for (index, write) in writes.into_iter().enumerate() {
        if !std::ptr::eq(cluster, engine.cluster(write.space.name())) {
            return Err(WriteError::Malformed {
                write: index,
                why: "its keys are in different etcd clusters",
            });
        }
        entries.push(add(engine, write, &mut txn)?);
    }
    let execute = |txn| cached.write(operation, txn);
    let response = match grant_leases(engine, &mut entries, &mut txn).await? {
        false => execute(txn).await,
        true => match execute(txn.clone()).await {
            Err(error) if error.is_lease_not_found() => {
                // Nothing was executed. A lease was revoked, or this process was suspended for longer than it lasted.
                forget_leases(engine, &entries).await;
                grant_leases(engine, &mut entries, &mut txn).await?;
                execute(txn).await
            }
            response => response,
        },
    };
    let response = response.map_err(rejected)?;
    match response.succeeded {
        true => {
            let revision = response.header.map_or(0, |header| header.revision);
            committed(engine, entries, revision_from(revision)).await
        }
        false => Err(why_refused(engine, &entries, response)),
    }
}

/// What upstream calls the operation of a transaction that begins with `write`.
fn operation(write: &Write) -> &'static str {
    match (&write.change, write.expect) {
        (WriteOperation::Delete(_), _) => "delete",
        (WriteOperation::Put(_), Expect::Absent) => "create",
        _ => "update",
    }
}

/// Adds the comparison, the operation and the read of a write to a transaction.
fn add(engine: &EngineParts, write: Write, txn: &mut TxnRequest) -> Result<Entry, WriteError> {
    let cached = engine.cached(&write.space);
    let key = cached.key(&write.key);
    let is_delete = matches!(write.change, WriteOperation::Delete(_));
    txn.compare.extend(match write.expect {
        Expect::Absent => Some(Compare::mod_revision(key.clone(), 0)),
        Expect::At(revision) => Some(Compare::mod_revision(key.clone(), number(revision))),
        Expect::Present => Some(Compare::exists(key.clone())),
        Expect::Any => is_delete.then(|| Compare::exists(key.clone())),
    });
    txn.failure.push(RequestOp::get(key.clone()));
    let Write {
        space,
        key: own_key,
        expect,
        change,
        uses_reserve,
    } = write;
    let mut lease = None;
    let pending = match change {
        WriteOperation::Put(draft) => {
            let encoded = engine.codec.encode(space.name(), &own_key, &draft)?;
            lease = draft.expires.map(|expires| EntryLease {
                operation: txn.success.len(),
                seconds: expires.saturating_sub(engine.now()).max(1),
                id: 0,
            });
            let put = RequestOp::put(key, encoded.bytes.clone(), 0);
            txn.success.push(put);
            Some(cached.expect(&own_key, Some(encoded.bytes), draft, encoded.mark))
        }
        WriteOperation::Delete(draft) => {
            txn.success.push(RequestOp::delete(key));
            let mark = engine.codec.mark(space.name());
            Some(cached.expect(&own_key, None, draft, mark))
        }
        WriteOperation::Check => None,
    };
    let change = match (&pending, is_delete) {
        // The draft is with the pending write; what is left is enough to tell why the transaction is refused.
        (Some(_), true) => WriteOperation::Delete(Default::default()),
        _ => WriteOperation::Check,
    };
    Ok(Entry {
        write: Write {
            space,
            key: own_key,
            expect,
            change,
            uses_reserve,
        },
        pending,
        lease,
    })
}

/// Has every record that expires have a lease. Returns whether there is one.
async fn grant_leases(
    engine: &EngineParts,
    entries: &mut [Entry],
    txn: &mut TxnRequest,
) -> Result<bool, WriteError> {
    let mut leased = false;
    for Entry { write, lease, .. } in entries {
        let Some(lease) = lease else { continue };
        let cached = engine.cached(&write.space);
        lease.id = cached.leases.get(lease.seconds).await?;
        txn.success[lease.operation].set_lease(lease.id);
        leased = true;
    }
    Ok(leased)
}

/// Forgets the leases of a transaction, one of which etcd does not know.
async fn forget_leases(engine: &EngineParts, entries: &[Entry]) {
    for Entry { write, lease, .. } in entries {
        let Some(lease) = lease else { continue };
        engine.cached(&write.space).leases.forget(lease.id).await;
    }
}

/// The records of a transaction that is committed, once the caches show them.
async fn committed(engine: &EngineParts, entries: Vec<Entry>, revision: Revision) -> CommitResult {
    let mut records = Vec::new();
    let deadline = Instant::now() + SHOW_TIMEOUT;
    for Entry { write, pending, .. } in &entries {
        let Some(pending) = pending else { continue };
        shown(engine, &write.space, revision, deadline).await;
        records.push(pending.record(revision, &*engine.codec, write.space.name()));
    }
    Ok(records)
}

async fn shown(engine: &EngineParts, space: &Keyspace, revision: Revision, deadline: Instant) {
    let reached = timeout_at(deadline, space.reached(revision));
    if reached.await.is_err() {
        engine.cached(space).report_lag();
        warn!(resource = %space.name(), revision = revision.0, "the watch of etcd lags behind a committed write");
    }
}

/// The first expectation that did not hold.
fn why_refused(engine: &EngineParts, entries: &[Entry], response: TxnResponse) -> WriteError {
    let read = response.responses.into_iter().map(|op| match op.response {
        Some(Response::Range(range)) => range.kvs.into_iter().next(),
        _ => None,
    });
    for (index, (entry, kv)) in entries.iter().zip(read).enumerate() {
        let current = kv.map(|kv| record_of(engine, &entry.write.space, &entry.write.key, kv));
        if let Err(error) = entry.write.verify(index, current.as_ref()) {
            return error;
        }
    }
    WriteError::Remote {
        message: "etcd refused a transaction all of whose conditions hold".into(),
        is_known: true,
    }
}

/// The record of a key that was read: the one of the cache if it is the same, else decoded.
pub(super) fn record_of(
    engine: &EngineParts,
    space: &Keyspace,
    key: &str,
    kv: KeyValue,
) -> Arc<Record> {
    let revision = revision_of(&kv);
    let cached = space.snapshot().get(key).cloned();
    cached
        .filter(|record| record.revision == revision)
        .unwrap_or_else(|| {
            let (draft, mark) = engine.codec.decode(space.name(), key, &kv.value);
            Arc::new(Record::committed(key, revision, draft, mark))
        })
}
