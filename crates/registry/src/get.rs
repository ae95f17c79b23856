//! Reads one object.

use std::sync::Arc;

use mizzen_object::Status;
use mizzen_store::{Expect, Record, Snapshot, Write};
use mizzen_value::Str;

use crate::fresh::{Freshness, too_large};
use crate::header::{field_term, selected};
use crate::status::{read_status, write_status};
use crate::{Key, Object, Registry, Resource, parse_version};

impl Registry {
    /// The object, at least as new as `version` (empty for "the latest").
    pub async fn read(
        &self,
        resource: &Resource,
        key: &Key,
        version: &str,
    ) -> Result<Object, Status> {
        let freshness = Freshness::of(version);
        if freshness == Freshness::Latest {
            let found = self.store.get(resource.space(), &key.stored()).await;
            let found = found.map_err(read_status)?;
            let record = found.ok_or_else(|| resource.missing(key))?;
            return resource.render_one(record).await;
        }
        let snapshot = self.snapshot(resource, &key.stored(), freshness).await?;
        resource
            .render_one(find(resource, key, version, &snapshot)?)
            .await
    }

    /// The object in the cache. One that the cache does not have is read from a store that other processes write to, too.
    ///
    /// Kubernetes: a lister, and then a live lookup.
    pub async fn find(&self, resource: &Resource, key: &Key) -> Result<Object, Status> {
        match resource.record(key) {
            Some(record) => resource.render_one(record).await,
            None => self.read(resource, key, "").await,
        }
    }

    /// The object in the cache, which lacks what another process has just written, for a built-in kind, whose
    /// conversion is synchronous.
    pub fn get(&self, resource: &Resource, key: &Key, version: &str) -> Result<Object, Status> {
        let record = find(resource, key, version, &resource.space().snapshot())?;
        resource
            .render_without_converter(&record)?
            .ok_or_else(converter_required)
    }

    /// A selectable field of an object, without decoding it.
    pub fn get_field(&self, resource: &Resource, key: &Key, field: &str) -> Result<Str, Status> {
        let record = find(resource, key, "", &resource.space().snapshot())?;
        selected(resource, &record, field)
    }

    /// The object, after all writes in flight are decided. An error where that cannot be known: a store that other
    /// processes write to, too, may commit a transaction that it did not answer after any later one.
    pub async fn get_settled(
        &self,
        resource: &Resource,
        key: &Key,
    ) -> Result<Option<Object>, Status> {
        if self.store.is_shared() {
            return Err(Status::internal(
                "writes in flight to a shared store may be decided at any time",
            ));
        }
        // The sequencer of this process decides writes in order of arrival, so a check without a change is decided
        // after all earlier writes.
        let check = Write::check(resource.space(), key.stored(), Expect::Any);
        let checked = self.store.commit(vec![check]).await;
        checked.map_err(|error| write_status(resource.kind(), &key.name, error))?;
        match resource.record(key) {
            Some(record) => Ok(Some(resource.render_one(record).await?)),
            None => Ok(None),
        }
    }

    /// Whether any object has this value in an indexed field.
    pub fn is_taken(&self, resource: &Resource, field: &str, value: &str) -> bool {
        let snapshot = resource.space().snapshot();
        snapshot
            .with_term(&field_term(field, value), "", None)
            .next()
            .is_some()
    }
}

fn find(
    resource: &Resource,
    key: &Key,
    version: &str,
    snapshot: &Snapshot,
) -> Result<Arc<Record>, Status> {
    let wanted = parse_version(version).map_err(|error| match resource.is_cached() {
        true => Status::unknown(error.named()),
        false => Status::bad_request(format!("invalid resource version: {}", error.named())),
    })?;
    if wanted > snapshot.at().0 {
        return Err(too_large(wanted, snapshot.at()));
    }
    let found = snapshot.get(&key.stored()).cloned();
    found.ok_or_else(|| resource.missing(key))
}

/// 500: the caller uses the synchronous path for a kind that a converter must convert.
pub(crate) fn converter_required() -> Status {
    Status::internal("the object is stored in another version and has to be converted")
}
