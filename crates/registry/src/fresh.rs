//! Reads at a revision that is yet to come.
//!
//! Kubernetes: a read waits for the watch cache to reach the revision (storage/cacher/watch_cache.go,
//! waitUntilFreshAndBlock). Kinds without a watch cache are answered at once
//! (storage/etcd3/store.go, validateMinimumResourceVersion).

use std::time::Duration;

use mizzen_object::{Cause, Details, Status};
use mizzen_store::Revision;

use crate::{Registry, Resource};

/// Kubernetes: blockTimeout.
const BLOCK_TIMEOUT: Duration = Duration::from_secs(3);

/// Kubernetes: resourceVersionTooHighRetrySeconds.
const RETRY_SECONDS: u32 = 1;

impl Registry {
    /// Waits until the store has reached `revision`, but no longer than upstream does.
    pub(crate) async fn wait_until_fresh(
        &self,
        resource: &Resource,
        revision: u64,
    ) -> Result<(), Status> {
        if revision <= self.store.revision().0 {
            return Ok(());
        }
        if !resource.is_cached() {
            return Err(Status {
                retry_after: None,
                ..too_large(revision, self.store.revision())
            });
        }
        let reached =
            tokio::time::timeout(BLOCK_TIMEOUT, self.store.reached(Revision(revision))).await;
        reached.map_err(|_| too_large(revision, self.store.revision()))
    }
}

/// 504: the store has not reached the revision.
pub(crate) fn too_large(wanted: u64, current: Revision) -> Status {
    let cause = Cause {
        reason: "ResourceVersionTooLarge".into(),
        message: "Too large resource version".into(),
        field: String::new(),
    };
    let message = format!("Timeout: Too large resource version: {wanted}, current: {current}");
    Status {
        details: Some(Box::new(Details {
            causes: vec![cause],
            ..Details::default()
        })),
        retry_after: Some(RETRY_SECONDS),
        ..Status::failure(504, "Timeout", message)
    }
}
