//! Reading one object.

use mizzen_object::Status;

use crate::header::field_term;
use crate::list::too_large;
use crate::{Key, Object, Registry, Resource, parse_version};

impl Registry {
    /// The object, at least as new as `version` (empty for "the latest").
    pub fn get(&self, resource: &Resource, key: &Key, version: &str) -> Result<Object, Status> {
        let wanted = parse_version(version).map_err(|error| Status::unknown(error.named()))?;
        if wanted > self.store.revision().0 {
            return Err(too_large(wanted, self.store.revision()));
        }
        resource.find(key).ok_or_else(|| resource.not_found(&key.name))
    }

    /// Whether any object has this value in one of its kind's indexed fields.
    pub fn is_taken(&self, resource: &Resource, field: &str, value: &str) -> bool {
        let snapshot = resource.space().snapshot();
        snapshot.with_term(&field_term(field, value), "", None).next().is_some()
    }
}
