//! The revisions of an etcd without other writers, used up until the next write has the one that is wanted.
//!
//! etcd numbers its transactions one after the other. The revisions between those that are wanted are used up by writes
//! of one key, which is deleted at the end. What they leave behind is compacted on the way, for the size of etcd is
//! limited.

use std::time::Duration;

use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};

use crate::client::{CallError, Client};
use crate::messages::{CompactionRequest, RangeRequest, RequestOp, TxnRequest};

/// The key that uses up revisions.
const KEY: &str = "mizzen_import_revision";

/// How many revisions are used up at the same time.
const CONCURRENCY: usize = 64;

/// How long etcd may take to remove what was compacted.
const COMPACT_TIMEOUT: Duration = Duration::from_secs(60);

/// The revisions of an etcd that this process alone writes to.
pub struct Revisions {
    client: Client,
    at: u64,
    /// Whether the key that uses up revisions is there.
    has_key: bool,
    /// How many were used up since they were compacted last.
    n_used: u64,
    compact_interval: u64,
}

impl Revisions {
    /// Begins at the revision that etcd has. After each `compact_interval` that are used up, they are compacted.
    pub async fn begin(client: Client, compact_interval: u64) -> Result<Revisions, CallError> {
        let request = RangeRequest {
            key: KEY.into(),
            ..RangeRequest::default()
        };
        let header = client.range(request).await?.header;
        let revision = header.map_or(0, |header| header.revision);
        Ok(Revisions {
            client,
            at: u64::try_from(revision).unwrap_or_default(),
            has_key: false,
            n_used: 0,
            compact_interval: compact_interval.max(1),
        })
    }

    /// The last revision that was written.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Uses up the revisions before `revision`, which the next write has.
    pub async fn use_up_to(&mut self, revision: u64) -> Result<(), CallError> {
        while self.at + 1 < revision {
            let n = (revision - 1 - self.at).min(self.compact_interval - self.n_used);
            self.use_up(n).await?;
            if self.n_used == self.compact_interval {
                self.compact().await?;
            }
        }
        Ok(())
    }

    /// The caller has written the next revision.
    pub fn written(&mut self) {
        self.at += 1;
    }

    /// Uses up the revisions up to and with `revision`, and deletes the key that does so. That takes the last of them, or,
    /// if `revision` is written already or the key was not there, the one after it.
    pub async fn end_at(mut self, revision: u64) -> Result<(), CallError> {
        self.use_up_to(revision).await?;
        if self.at < revision && !self.has_key {
            self.use_up(1).await?;
        }
        let delete = transaction(RequestOp::delete(KEY));
        self.client.txn(delete).await.map(drop)
    }

    async fn use_up(&mut self, n: u64) -> Result<(), CallError> {
        let writes = stream::iter(0..n).map(|_| async {
            let write = transaction(RequestOp::put(KEY, "", 0));
            self.client.txn(write).await.map(drop)
        });
        let done = writes.buffer_unordered(CONCURRENCY).try_collect();
        let () = done.await?;
        self.at += n;
        self.n_used += n;
        self.has_key |= n > 0;
        Ok(())
    }

    /// Waits until etcd has removed what was written before, so that it is not filled faster than it is emptied.
    async fn compact(&mut self) -> Result<(), CallError> {
        self.n_used = 0;
        let request = CompactionRequest {
            revision: i64::try_from(self.at).unwrap_or(i64::MAX),
            physical: true,
        };
        let client = self.client.with_call_timeout(COMPACT_TIMEOUT);
        match client.compact(request).await {
            // A server on the same etcd was faster.
            Err(error) if error.is_compacted() => Ok(()),
            compacted => compacted.map(drop),
        }
    }
}

fn transaction(operation: RequestOp) -> TxnRequest {
    TxnRequest {
        success: vec![operation],
        ..TxnRequest::default()
    }
}
