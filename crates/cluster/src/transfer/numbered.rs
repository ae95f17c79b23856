//! Records with their revisions into an etcd that has none.
//!
//! etcd numbers its transactions one after the other. So records are written in the order of their revisions, those of
//! one revision together, and the revisions between, and those after the last record, are used up.

use mizzen_etcd::Revisions;
use mizzen_etcd::client::{CallError, Client};
use mizzen_store::{CreatedRecord, Expect, Revision, Store, Write, WriteError};

/// After how many revisions that are used up etcd is compacted. Each takes about 100 bytes there until then, and the
/// limit of etcd is 2 GiB unless it is told otherwise.
const COMPACT_INTERVAL: u64 = 100_000;

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

/// Writes records to a store in the etcd of `client`, each at its revision. Afterwards etcd is at revision `end`, or at a
/// later one: that of the last record, or the next, which removes what used up revisions.
pub(super) async fn write_numbered(
    store: &Store,
    client: &Client,
    mut records: Vec<CreatedRecord>,
    end: Revision,
) -> Result<(), NumberedError> {
    records.sort_by_key(|record| record.revision);
    let mut revisions = Revisions::begin(client.clone(), COMPACT_INTERVAL).await?;
    let at = revisions.at();
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
        revisions.use_up_to(revision.0).await?;
        write_together(store, together, revision).await?;
        revisions.written();
    }
    Ok(revisions.end_at(end.0).await?)
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
