//! The field manager: the context of a write that its managed fields depend on.

use std::sync::Arc;

use super::compare::{Comparison, compare};
use super::entry::{ManagedFields, ManagedFieldsOperation, ManagerIdentifier};
use super::field_set::FieldSet;
use super::rule::ItemError;
use crate::names::GroupVersionKind;
use crate::schema::{Struct, canonical};
use mizzen_value::{Str, Value};

/// A write: the manager, the subresource, the version and the time.
#[derive(Clone, Copy)]
pub struct FieldManager<'a> {
    /// The schema of the version of the write.
    pub schema: &'a Arc<Struct>,
    /// The kind and the version of the write.
    pub gvk: &'a GroupVersionKind,
    /// The name of the manager; see [`super::manager_name`].
    pub manager: &'a str,
    /// The subresource that is written; empty for the main resource.
    pub subresource: &'a str,
    /// The time, in RFC 3339 to the second.
    pub now: &'a str,
    /// The reset fields: what the server ignores in a write through this subresource, such as the
    /// status of a write to the main resource. A manager cannot own them.
    pub reset_fields: &'a FieldSet,
    /// The other versions of the kind.
    pub versions: &'a dyn VersionConverter,
}

/// The other versions of a kind, in which fields may be owned. Kubernetes: `merge.Converter` and
/// `TypeConverter`.
pub trait VersionConverter: Send + Sync {
    /// The schema of `api_version`; `None` if the version is not served.
    fn schema(&self, api_version: &str) -> Option<Arc<Struct>>;

    /// Converts `object` from version `from` to version `to`, without defaults; `None` if that
    /// fails.
    fn convert(&self, object: &Value, from: &str, to: &str) -> Option<Value>;
}

/// A kind with a single version.
#[derive(Debug, Clone, Copy, Default)]
pub struct OneVersion;

impl VersionConverter for OneVersion {
    fn schema(&self, _api_version: &str) -> Option<Arc<Struct>> {
        None
    }

    fn convert(&self, _object: &Value, _from: &str, _to: &str) -> Option<Value> {
        None
    }
}

impl<'a> FieldManager<'a> {
    /// The schema of `api_version`.
    pub(super) fn schema_in(&self, api_version: &str) -> Option<Arc<Struct>> {
        match self.gvk.api_version() == api_version {
            true => Some(self.schema.clone()),
            false => self.versions.schema(api_version),
        }
    }

    /// Adapts all entries to schemas that have changed since, and drops those of versions that are
    /// no longer served.
    pub(super) fn reconcile(&self, managed: &mut ManagedFields) {
        managed
            .entries
            .retain_mut(|entry| match self.schema_in(&entry.api_version) {
                Some(schema) => {
                    entry.reconcile(&schema);
                    true
                }
                None => false,
            });
    }

    /// The differences between two objects, without the reset fields.
    pub(super) fn compare(
        &self,
        schema: &Struct,
        old: &Value,
        new: &Value,
    ) -> Result<Comparison, ItemError> {
        let Comparison { changed, removed } = compare(schema, old, new)?;
        Ok(Comparison {
            changed: self.ownable(changed),
            removed: self.ownable(removed),
        })
    }

    /// The fields without the reset fields.
    pub(super) fn ownable(&self, fields: FieldSet) -> FieldSet {
        if self.reset_fields.is_empty() {
            fields
        } else {
            fields.without(self.reset_fields)
        }
    }

    pub(super) fn owner(&self, operation: ManagedFieldsOperation) -> ManagerIdentifier {
        let manager = if self.manager.is_empty() {
            "unknown"
        } else {
            self.manager
        };
        ManagerIdentifier::new(
            manager.into(),
            operation,
            &self.gvk.api_version(),
            self.subresource.into(),
        )
    }

    /// An empty object, the state before a create.
    pub(super) fn empty_object(&self) -> Value {
        let mut object = Value::object();
        object.set("kind", &self.gvk.kind);
        object.set("apiVersion", self.gvk.api_version());
        canonical(self.schema, &mut object);
        object
    }
}

/// An object in one of its versions.
pub(super) struct Versioned {
    pub(super) object: Value,
    pub(super) api_version: Str,
}

impl Versioned {
    pub(super) fn new(field_manager: &FieldManager, object: Value) -> Versioned {
        Versioned {
            object,
            api_version: field_manager.gvk.api_version(),
        }
    }

    /// The object in another version.
    pub(super) fn to(
        &self,
        api_version: &str,
        versions: &dyn VersionConverter,
    ) -> Option<Versioned> {
        let object = match self.api_version == api_version {
            true => self.object.clone(),
            false => versions.convert(&self.object, &self.api_version, api_version)?,
        };
        Some(Versioned {
            object,
            api_version: api_version.into(),
        })
    }
}
