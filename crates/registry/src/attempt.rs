//! The object that a write starts from, attempt by attempt.
//!
//! Where several servers write to one store, this server's cache may lag. A write starts from the cache all the same, and
//! its outcome is trusted if the store has the same version of the object, as a commit finds out. An outcome without a commit
//! (an error, or nothing to change) is trusted after the version was compared.
//!
//! Invariant: a write that the store did not answer is not tried again, as it may be committed.
//!
//! Kubernetes: GuaranteedUpdate with a cached object (storage/etcd3/store.go).

use std::sync::Arc;

use mizzen_object::Status;
use mizzen_store::Record;

use crate::status::read_status;
use crate::{Key, Object, Registry, Resource};

/// The attempts of one write.
pub(crate) struct Attempt<'a> {
    registry: &'a Registry,
    resource: &'a Resource,
    key: &'a Key,
    /// Whether the next attempt starts from the store and not from the cache.
    is_latest: bool,
    /// What the store had when it was last asked.
    latest: Option<Arc<Record>>,
}

impl<'a> Attempt<'a> {
    pub(crate) fn first(
        registry: &'a Registry,
        resource: &'a Resource,
        key: &'a Key,
    ) -> Attempt<'a> {
        Attempt {
            registry,
            resource,
            key,
            is_latest: false,
            latest: None,
        }
    }

    /// The object that the next attempt starts from.
    pub(crate) async fn current(&mut self) -> Result<Option<Object>, Status> {
        let cached = match self.is_latest {
            true => None,
            false => self.resource.record(self.key),
        };
        let record = match (cached, self.latest.take()) {
            (Some(record), _) | (None, Some(record)) => Some(record),
            (None, None) => self.read().await?,
        };
        match record {
            Some(record) => Ok(Some(self.resource.render_one(record).await?)),
            None => Ok(None),
        }
    }

    /// The next attempt starts from the store: what the last one started from has changed.
    pub(crate) fn require_latest(&mut self) {
        self.is_latest = self.registry.store().is_shared();
    }

    /// Whether the store had another version than the one that the last attempt started from. The next one starts from
    /// that.
    pub(crate) async fn was_outdated(&mut self, current: &Object) -> Result<bool, Status> {
        if self.is_latest || !self.registry.store().is_shared() {
            return Ok(false);
        }
        self.is_latest = true;
        self.latest = self.read().await?;
        let used = current.record().map(|record| record.revision);
        Ok(self.latest.as_ref().map(|record| record.revision) != used)
    }

    async fn read(&self) -> Result<Option<Arc<Record>>, Status> {
        let (store, space) = (self.registry.store(), self.resource.space());
        let found = store.get(space, &self.key.stored()).await;
        found.map_err(read_status)
    }
}
