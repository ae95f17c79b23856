//! Records with their revisions into an etcd that has none.
//!
//! etcd numbers its transactions one after the other. So records are written in the order of their revisions, those of one revision
//! together, and the revisions between are used up by writes of one key, which is deleted at the end.

use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use mizzen_etcd::client::{CallError, Client};
use mizzen_etcd::messages::{RangeRequest, RequestOp, TxnRequest};
use mizzen_store::{CreatedRecord, Expect, Revision, Store, Write, WriteError};

/// The key that uses up revisions.
const KEY: &str = "mizzen_import_revision";

/// How many revisions are used up at the same time.
const CONCURRENCY: usize = 64;

/// Why records cannot be written with their revisions.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NumberedError {
    /// etcd does not answer.
    #[error(transparent)]
    Call(#[from] CallError),
    /// A record cannot be written.
    #[error("cannot write {key}: {source}")]
    Write {
        /// Its key.
        key: String,
        /// Why not.
        source: WriteError,
    },
    /// The revision of etcd is higher than that of a record.
    #[error(
        "etcd is at revision {at} already, and the first object has {first}; revisions can only be kept in a new etcd"
    )]
    Late {
        /// The revision of etcd.
        at: u64,
        /// The first that is to be written.
        first: u64,
    },
    /// Another client writes to etcd.
    #[error("etcd is written to by another client, so revisions cannot be kept")]
    Shared,
}

/// Writes records to a store in the etcd of `client`, each at its revision.
pub(super) async fn write_numbered(
    store: &Store,
    client: &Client,
    mut records: Vec<CreatedRecord>,
) -> Result<(), NumberedError> {
    records.sort_by_key(|record| record.revision);
    let mut at = current_revision(client).await?;
    if let Some(first) = records.first().filter(|first| first.revision.0 <= at) {
        let first = first.revision.0;
        return Err(NumberedError::Late { at, first });
    }
    let mut records = records.into_iter().peekable();
    while let Some(first) = records.next() {
        let revision = first.revision;
        let mut together = vec![first];
        while let Some(next) = records.next_if(|next| next.revision == revision) {
            together.push(next);
        }
        use_up(client, revision.0 - at - 1).await?;
        write_together(store, together, revision).await?;
        at = revision.0;
    }
    client.txn(transaction(RequestOp::delete(KEY))).await?;
    Ok(())
}

/// Writes the records of one revision.
async fn write_together(
    store: &Store,
    records: Vec<CreatedRecord>,
    revision: Revision,
) -> Result<(), NumberedError> {
    let key = format!("{}/{}", records[0].space, records[0].key);
    let writes = records.into_iter().map(|record| {
        let space = store.keyspace(&record.space);
        Write::put(&space, record.key, Expect::Absent, record.draft)
    });
    let written = store.commit(writes.collect()).await;
    let written = written.map_err(|source| NumberedError::Write { key, source })?;
    match written.iter().all(|record| record.revision == revision) {
        true => Ok(()),
        false => Err(NumberedError::Shared),
    }
}

async fn current_revision(client: &Client) -> Result<u64, CallError> {
    let request = RangeRequest {
        key: KEY.into(),
        ..RangeRequest::default()
    };
    let header = client.range(request).await?.header;
    let revision = header.map_or(0, |header| header.revision);
    Ok(u64::try_from(revision).unwrap_or_default())
}

/// Moves etcd on by `n` revisions.
async fn use_up(client: &Client, n: u64) -> Result<(), CallError> {
    let writes = stream::iter(0..n).map(|_| async {
        let write = transaction(RequestOp::put(KEY, "", 0));
        client.txn(write).await.map(drop)
    });
    writes.buffer_unordered(CONCURRENCY).try_collect().await
}

fn transaction(operation: RequestOp) -> TxnRequest {
    TxnRequest {
        success: vec![operation],
        ..TxnRequest::default()
    }
}
