//! Compaction, by the agreement of all servers of an etcd.
//!
//! Kubernetes: the key `compact_rev_key` counts compactions by its version. Every interval each server tries to write it on
//! condition that no other server did since it last looked; the one that succeeds compacts (storage/etcd3/compact.go). So upstream's
//! servers and these share the work.

use std::sync::atomic::{AtomicI64, Ordering};

use mizzen_store::Revision;
use tokio::sync::Mutex;
use tracing::{debug, warn};

use super::space::revision_from;
use super::{Cluster, EngineParts};
use crate::client::CallError;
use crate::messages::{CompactionRequest, Compare, RequestOp, Response, TxnRequest};

const KEY: &str = "compact_rev_key";

/// What a server knows of the agreement.
#[derive(Default)]
pub(super) struct Compactor {
    known: Mutex<Known>,
    /// Before which revision the cluster was compacted last, by any server.
    compacted: AtomicI64,
}

#[derive(Default)]
struct Known {
    /// The version of the key when it was last looked at.
    version: i64,
    /// The revision of etcd then; 0 before that. It is at least an interval old when it is compacted.
    revision: i64,
}

impl Compactor {
    /// The revision before which the cluster is compacted.
    pub(super) fn compacted(&self) -> Revision {
        revision_from(self.compacted.load(Ordering::Acquire))
    }

    fn note_compacted(&self, revision: i64) {
        self.compacted.fetch_max(revision, Ordering::AcqRel);
    }
}

/// Compacts what was the present when this was last called, if it is this server's turn.
pub(super) async fn compact(engine: &EngineParts) {
    if engine.is_read_only {
        return;
    }
    for cluster in &engine.clusters {
        match compact_one(cluster).await {
            Ok(()) => {}
            // Another server was faster.
            Err(error) if error.is_compacted() => {}
            Err(error) => warn!(error = error.message, "etcd could not be compacted"),
        }
    }
}

async fn compact_one(cluster: &Cluster) -> Result<(), CallError> {
    let mut known = cluster.compactor.known.lock().await;
    let txn = TxnRequest {
        compare: vec![Compare::version(KEY, known.version)],
        success: vec![RequestOp::put(KEY, known.revision.to_string(), 0)],
        failure: vec![RequestOp::get(KEY)],
    };
    let response = cluster.client.txn(txn).await?;
    let now = response.header.map_or(0, |header| header.revision);
    let revision = std::mem::replace(&mut known.revision, now);
    if !response.succeeded {
        let read = response.responses.into_iter().next();
        if let Some(Response::Range(range)) = read.and_then(|op| op.response) {
            let kv = range.kvs.first();
            known.version = kv.map_or(0, |kv| kv.version);
            let others = kv.and_then(|kv| std::str::from_utf8(&kv.value).ok()?.parse().ok());
            cluster.compactor.note_compacted(others.unwrap_or_default());
        }
        return Ok(());
    }
    known.version += 1;
    if revision == 0 {
        return Ok(());
    }
    let request = CompactionRequest {
        revision,
        physical: false,
    };
    cluster.client.compact(request).await?;
    cluster.compactor.note_compacted(revision);
    debug!(revision, "compacted etcd");
    Ok(())
}
