//! Managed fields of the scale subresource.
//!
//! A Scale has one field of its object. The manager of that field owns `spec.replicas` of the
//! Scale; a manager that changes it through the Scale owns it afterwards. Kubernetes:
//! managedfields' scalehandler.go.

use super::entry::{ManagedFields, ManagedFieldsEntry};
use super::field_set::FieldSet;
use mizzen_value::{Str, Value};

const SCALE_VERSION: &str = "autoscaling/v1";
const REPLICAS: &str = "spec.replicas";

/// Converts managed fields between an object and its Scale.
#[derive(Debug, Clone)]
pub struct ScaleHandler<'a> {
    /// The object.
    pub object: &'a Value,
    /// The version in which it is scaled.
    pub api_version: &'a str,
    /// For every version of the kind the dotted path of the field that is `spec.replicas` of the
    /// Scale; `None` if that version has no scale subresource.
    pub paths: Vec<(&'a str, Option<&'a str>)>,
}

impl ScaleHandler<'_> {
    /// The `metadata.managedFields` of the Scale before the write.
    pub fn to_scale(&self) -> Value {
        let mut scale = ManagedFields::default();
        for entry in ManagedFields::from_object(self.object).entries {
            if self.has_replicas(&entry) {
                scale.entries.push(ManagedFieldsEntry::new(
                    entry.owner.clone(),
                    SCALE_VERSION.into(),
                    entry.time().clone(),
                    FieldSet::of_names(&[REPLICAS]),
                ));
            }
        }
        scale.encode()
    }

    /// The `metadata.managedFields` of the object after a write of its Scale.
    ///
    /// Kubernetes: managedfields' scalehandler.go. An updater has another identifier in the Scale,
    /// because the version is part of it, so it loses the field and gets a new entry; and new
    /// entries have no time.
    pub fn to_object(&self, scale: &Value) -> Value {
        let mut scale = ManagedFields::decode(scale.list().into()).unwrap_or_default();
        let mut object = ManagedFields::from_object(self.object);
        object.entries.retain_mut(|entry| {
            if self.path(&entry.api_version).is_none() {
                return false;
            }
            if self.has_replicas(entry) {
                match scale.position(&entry.owner) {
                    Some(at) => drop(scale.entries.remove(at)),
                    None => entry.remove_fields(&self.replicas_in(&entry.api_version)),
                }
            }
            !entry.fields().is_empty()
        });
        for entry in scale
            .entries
            .into_iter()
            .filter(|entry| entry.fields().has_names(REPLICAS))
        {
            let fields = self.replicas_in(self.api_version);
            object.entries.push(ManagedFieldsEntry::new(
                entry.owner,
                self.api_version.into(),
                Str::default(),
                fields,
            ));
        }
        object.encode()
    }

    fn path(&self, api_version: &str) -> Option<Option<&str>> {
        self.paths
            .iter()
            .find(|(version, _)| *version == api_version)
            .map(|(_, path)| *path)
    }

    fn replicas_in(&self, api_version: &str) -> FieldSet {
        self.path(api_version)
            .flatten()
            .map_or_else(FieldSet::default, |path| FieldSet::of_names(&[path]))
    }

    fn has_replicas(&self, entry: &ManagedFieldsEntry) -> bool {
        self.path(&entry.api_version)
            .flatten()
            .is_some_and(|path| entry.fields().has_names(path))
    }
}
