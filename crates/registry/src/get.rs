//! Reads one object.

use std::sync::Arc;

use mizzen_object::Status;
use mizzen_store::{Expect, Record, Write};
use mizzen_value::Str;

use crate::fresh::too_large;
use crate::header::{field_term, selected};
use crate::{Key, Object, Registry, Resource, parse_version};

impl Registry {
    /// The object, at least as new as `version` (empty for "the latest").
    pub async fn read(
        &self,
        resource: &Resource,
        key: &Key,
        version: &str,
    ) -> Result<Object, Status> {
        self.wait_until_fresh(resource, parse_version(version).unwrap_or_default())
            .await?;
        resource
            .render_one(self.find(resource, key, version)?)
            .await
    }

    /// The same for a built-in kind, whose conversion is synchronous.
    pub fn get(&self, resource: &Resource, key: &Key, version: &str) -> Result<Object, Status> {
        let record = self.find(resource, key, version)?;
        resource
            .render_without_converter(&record)?
            .ok_or_else(converter_required)
    }

    /// A selectable field of an object, without decoding it.
    pub fn get_field(&self, resource: &Resource, key: &Key, field: &str) -> Result<Str, Status> {
        let record = self.find(resource, key, "")?;
        selected(resource, &record, field)
    }

    fn find(&self, resource: &Resource, key: &Key, version: &str) -> Result<Arc<Record>, Status> {
        let wanted = parse_version(version).map_err(|error| match resource.is_cached() {
            true => Status::unknown(error.named()),
            false => Status::bad_request(format!("invalid resource version: {}", error.named())),
        })?;
        if wanted > self.store.revision().0 {
            return Err(too_large(wanted, self.store.revision()));
        }
        resource.record(key).ok_or_else(|| resource.missing(key))
    }

    /// The object, after all writes in flight are decided.
    pub async fn get_settled(&self, resource: &Resource, key: &Key) -> Option<Object> {
        // The store decides writes in order of arrival, so a check without a change is decided after all earlier writes.
        let check = Write::check(resource.space(), key.stored(), Expect::Any);
        self.store.commit(vec![check]).await.ok()?;
        resource.find(key).await.ok()?
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

/// 500: the caller uses the synchronous path for a kind that a converter must convert.
pub(crate) fn converter_required() -> Status {
    Status::internal("the object is stored in another version and has to be converted")
}
