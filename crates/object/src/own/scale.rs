//! Owners of an object as its `/scale` shows them, and back.
//!
//! A Scale has one field of its object. Who owns that field of the object owns `spec.replicas` of the Scale; who
//! takes it through the Scale takes it from the others.

use super::managed::{Entry, Managed};
use super::set::FieldSet;
use mizzen_value::{Str, Value};

const SCALE_VERSION: &str = "autoscaling/v1";
const REPLICAS: &str = "spec.replicas";

/// The owners of an object that is scaled.
#[derive(Debug, Clone)]
pub struct ScaleOwners<'a> {
    /// The object.
    pub object: &'a Value,
    /// The version in which it is scaled.
    pub api_version: &'a str,
    /// For every version of the kind the names, with dots, of the field that a Scale shows as `spec.replicas`;
    /// `None` if that version cannot be scaled.
    pub paths: Vec<(&'a str, Option<&'a str>)>,
}

impl ScaleOwners<'_> {
    /// The `metadata.managedFields` of the Scale before it is written.
    pub fn to_scale(&self) -> Value {
        let mut scale = Managed::default();
        for entry in Managed::of(self.object).entries {
            if self.has_replicas(&entry) {
                scale.entries.push(Entry::new(
                    entry.owner.clone(),
                    SCALE_VERSION.into(),
                    entry.time().clone(),
                    FieldSet::of_names(&[REPLICAS]),
                ));
            }
        }
        scale.encode()
    }

    /// The `metadata.managedFields` of the object after its Scale has been written, from those of the Scale.
    ///
    /// Kubernetes: managedfields' scalehandler.go. Who did not apply has another name in the Scale, because the
    /// version is part of it, so he loses the field and gets an entry of its own; and new entries have no time.
    pub fn to_object(&self, scale: &Value) -> Value {
        let mut scale = Managed::decode(scale.list().into()).unwrap_or_default();
        let mut object = Managed::of(self.object);
        object.entries.retain_mut(|entry| {
            if self.path(&entry.api_version).is_none() {
                return false;
            }
            if self.has_replicas(entry) {
                match scale.position(&entry.owner) {
                    Some(at) => drop(scale.entries.remove(at)),
                    None => entry.lose(&self.replicas_in(&entry.api_version)),
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
            object.entries.push(Entry::new(
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

    fn has_replicas(&self, entry: &Entry) -> bool {
        self.path(&entry.api_version)
            .flatten()
            .is_some_and(|path| entry.fields().has_names(path))
    }
}
