//! Who writes: all that ownership needs to know about a write besides the object.

use std::sync::Arc;

use super::compare::{Comparison, compare};
use super::managed::{Managed, Operation, Owner};
use super::rule::ItemError;
use super::set::FieldSet;
use crate::names::GroupVersionKind;
use crate::schema::{Struct, canonical};
use mizzen_value::{Str, Value};

/// Who writes an object, through which door, in which version, and when.
#[derive(Clone, Copy)]
pub struct Writer<'a> {
    /// The shape of the object in the version in which it is written.
    pub schema: &'a Arc<Struct>,
    /// The kind and that version.
    pub gvk: &'a GroupVersionKind,
    /// The name that he goes by; see [`super::manager_name`].
    pub manager: &'a str,
    /// The subresource through which he writes; empty for the object itself.
    pub subresource: &'a str,
    /// The time, in RFC 3339 to the second.
    pub now: &'a str,
    /// What the server takes back of a write through this door, with all below: the status of a write to the
    /// object itself, the spec of a write to its status. Who cannot change it cannot own it.
    pub reset: &'a FieldSet,
    /// The other versions of the kind.
    pub versions: &'a dyn Versions,
}

/// The other versions of a kind, in which some may own what they own.
pub trait Versions: Send + Sync {
    /// The shape of the kind in `api_version`; `None` if there is no such version (any more).
    fn schema(&self, api_version: &str) -> Option<Arc<Struct>>;

    /// `object`, which is in version `from`, in version `to`, without defaults; `None` if it cannot be had.
    fn convert(&self, object: &Value, from: &str, to: &str) -> Option<Value>;
}

/// A kind of which there is one version.
#[derive(Debug, Clone, Copy, Default)]
pub struct OneVersion;

impl Versions for OneVersion {
    fn schema(&self, _api_version: &str) -> Option<Arc<Struct>> {
        None
    }

    fn convert(&self, _object: &Value, _from: &str, _to: &str) -> Option<Value> {
        None
    }
}

impl<'a> Writer<'a> {
    /// The shape of the kind in `api_version`.
    pub(super) fn schema_in(&self, api_version: &str) -> Option<Arc<Struct>> {
        match self.gvk.api_version() == api_version {
            true => Some(self.schema.clone()),
            false => self.versions.schema(api_version),
        }
    }

    /// Brings all owners into line with schemas that have changed since. What is owned in a version that is no
    /// more is owned by nobody.
    pub(super) fn reconcile(&self, managed: &mut Managed) {
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

    /// What has changed between two objects of the shape `schema`, as far as he can own it.
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

    /// What of `fields` he can own.
    pub(super) fn ownable(&self, fields: FieldSet) -> FieldSet {
        if self.reset.is_empty() {
            fields
        } else {
            fields.without(self.reset)
        }
    }

    pub(super) fn owner(&self, operation: Operation) -> Owner {
        let manager = if self.manager.is_empty() {
            "unknown"
        } else {
            self.manager
        };
        Owner::new(
            manager.into(),
            operation,
            &self.gvk.api_version(),
            self.subresource.into(),
        )
    }

    /// What an object is before anybody has written it.
    pub(super) fn nothing(&self) -> Value {
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
    pub(super) fn of(writer: &Writer, object: Value) -> Versioned {
        Versioned {
            object,
            api_version: writer.gvk.api_version(),
        }
    }

    /// The object in another version.
    pub(super) fn to(&self, api_version: &str, versions: &dyn Versions) -> Option<Versioned> {
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
