//! Reads at a revision that is yet to come.
//!
//! Kubernetes: a read waits for the watch cache to reach the revision (storage/cacher/watch_cache.go,
//! waitUntilFreshAndBlock). Kinds without a watch cache are answered at once
//! (storage/etcd3/store.go, validateMinimumResourceVersion).

use std::time::Duration;

use mizzen_object::{Cause, Details, Status};
use mizzen_store::{Revision, Snapshot};

use crate::status::read_status;
use crate::{Registry, Resource, parse_version};

/// Kubernetes: blockTimeout.
const BLOCK_TIMEOUT: Duration = Duration::from_secs(3);

/// Kubernetes: resourceVersionTooHighRetrySeconds.
const RETRY_SECONDS: u32 = 1;

/// How recent a read must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Freshness {
    /// Whatever there is: `resourceVersion=0`.
    Any,
    /// All writes that were acknowledged before the read, by any server: no resourceVersion.
    Latest,
    /// At least this revision.
    AtLeast(u64),
}

impl Freshness {
    /// Of a resourceVersion. An invalid one is rejected later.
    pub(crate) fn of(version: &str) -> Freshness {
        match (version, parse_version(version)) {
            ("", _) => Freshness::Latest,
            (_, Ok(0) | Err(_)) => Freshness::Any,
            (_, Ok(revision)) => Freshness::AtLeast(revision),
        }
    }
}

impl Registry {
    /// The objects of a resource whose keys begin with `prefix`, as recent as they must be. Waits for a revision that
    /// is yet to come, but no longer than upstream does.
    pub(crate) async fn snapshot(
        &self,
        resource: &Resource,
        prefix: &str,
        freshness: Freshness,
    ) -> Result<Snapshot, Status> {
        let space = resource.space();
        let revision = match freshness {
            Freshness::Any => {
                self.store.filled_one(space).await;
                return Ok(space.snapshot());
            }
            Freshness::Latest => {
                let latest = self.store.latest_below(space, prefix).await;
                return latest.map_err(read_status);
            }
            Freshness::AtLeast(revision) => revision,
        };
        let known = space.snapshot();
        if revision <= known.at().0 {
            return Ok(known);
        }
        // It may be the revision of a write through another server.
        let latest = self.store.latest_below(space, prefix).await;
        let latest = latest.map_err(read_status)?;
        if revision <= latest.at().0 {
            return Ok(latest);
        }
        if !resource.is_cached() {
            return Err(Status {
                retry_after: None,
                ..too_large(revision, latest.at())
            });
        }
        let reached = tokio::time::timeout(BLOCK_TIMEOUT, space.reached(Revision(revision))).await;
        reached.map_err(|_| too_large(revision, space.revision()))?;
        Ok(space.snapshot())
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
