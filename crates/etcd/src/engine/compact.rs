//! Compaction, by the agreement of all servers of an etcd.
//!
//! Kubernetes: the key `compact_rev_key` counts compactions by its version. Every interval each server tries to write it on
//! condition that no other server did since it last looked; the one that succeeds compacts (storage/etcd3/compact.go). So upstream's
//! servers and these share the work.

use tokio::sync::Mutex;
use tracing::{debug, warn};

use super::{Cluster, EngineParts};
use crate::client::CallError;
use crate::messages::{CompactionRequest, Compare, RequestOp, Response, TxnRequest};

const KEY: &str = "compact_rev_key";

/// What a server knows of the agreement.
#[derive(Default)]
pub(super) struct Compactor(Mutex<Known>);

#[derive(Default)]
struct Known {
    /// The version of the key when it was last looked at.
    version: i64,
    /// The revision of etcd then; 0 before that. It is at least an interval old when it is compacted.
    revision: i64,
}

/// Compacts what was the present when this was last called, if it is this server's turn.
pub(super) async fn compact(engine: &EngineParts) -> bool {
    let mut is_done = false;
    if engine.is_read_only {
        return is_done;
    }
    for cluster in &engine.clusters {
        match compact_one(cluster).await {
            Ok(done) => is_done |= done,
            // Another server was faster.
            Err(error) if error.is_compacted() => {}
            Err(error) => warn!(error = error.message, "etcd could not be compacted"),
        }
    }
    is_done
}

async fn compact_one(cluster: &Cluster) -> Result<bool, CallError> {
    let mut known = cluster.compactor.0.lock().await;
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
            known.version = range.kvs.first().map_or(0, |kv| kv.version);
        }
        return Ok(false);
    }
    known.version += 1;
    if revision == 0 {
        return Ok(false);
    }
    let request = CompactionRequest {
        revision,
        physical: false,
    };
    cluster.client.compact(request).await?;
    debug!(revision, "compacted etcd");
    Ok(true)
}
