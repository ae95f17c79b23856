//! Managed fields of an update: a manager owns the fields that it changes.

use std::borrow::Cow;

use super::cap_managers::cap_managers;
use super::compare::Comparison;
use super::entry::{ManagedFields, ManagedFieldsEntry, ManagedFieldsOperation, ManagerIdentifier};
use super::field_manager::FieldManager;
use super::field_set::FieldSet;
use super::rule::ItemError;
use super::shape::validate_shape;
use crate::schema::Struct;
use mizzen_value::{Str, Value};

impl FieldManager<'_> {
    /// Updates `metadata.managedFields` of `new`, which is about to replace `old`.
    ///
    /// Both are canonical and defaulted. The managed fields in `new` are used if they are valid, so
    /// that clients can correct them; an empty list clears them.
    pub fn update(&self, old: Option<&Value>, new: &mut Value) {
        let requested = new
            .get_mut("metadata")
            .and_then(|metadata| metadata.remove("managedFields"));
        let managed = self.previous_managed_fields(old, requested);
        let exists = old.is_some_and(|old| !old["metadata"]["uid"].str().is_empty());
        // Once managed fields are cleared, they are tracked again from the next apply.
        if managed.entries.is_empty() && exists {
            return;
        }
        let nothing = if old.is_none() {
            self.empty_object()
        } else {
            Value::Null
        };
        // Kubernetes: an object with duplicate list keys has no managed fields (`UpdateNoErrors`).
        if let Ok(managed) = self.track(old.unwrap_or(&nothing), new, managed) {
            managed.write(new);
        }
    }

    /// The managed fields before this write.
    fn previous_managed_fields<'a>(
        &self,
        old: Option<&'a Value>,
        requested: Option<Value>,
    ) -> ManagedFields<'a> {
        let requested = requested.filter(|_| self.subresource.is_empty());
        if let Some(Value::List(entries)) = requested {
            // No entry, or a single empty one, clears the managed fields.
            let is_cleared = match &entries[..] {
                [] => true,
                [only] => only.entries().next().is_none(),
                _ => false,
            };
            if is_cleared {
                return ManagedFields::default();
            }
            match ManagedFields::decode(Cow::Owned(entries)) {
                Ok(managed) if !managed.entries.is_empty() => return managed,
                _ => {}
            }
        }
        old.map_or_else(ManagedFields::default, ManagedFields::from_object)
    }

    /// The managed fields after `old` has become `new`.
    pub(super) fn track<'a>(
        &self,
        old: &Value,
        new: &Value,
        mut managed: ManagedFields<'a>,
    ) -> Result<ManagedFields<'a>, ItemError> {
        self.reconcile(&mut managed);
        let owner = self.owner(ManagedFieldsOperation::Update);
        let mut changes = VersionedChanges::new(*self, old, new)?;
        for entry in &mut managed.entries {
            let changes = changes.in_version(&entry.api_version)?;
            if entry.owner != owner {
                entry.remove_fields(&changes.changed);
            }
            entry.remove_fields(&changes.removed);
        }
        managed.drop_empty();
        self.add_changed_fields(&mut managed, owner, changes.own.changed);
        cap_managers(&mut managed);
        Ok(managed)
    }

    fn add_changed_fields(
        &self,
        managed: &mut ManagedFields,
        owner: ManagerIdentifier,
        changed: FieldSet,
    ) {
        if changed.is_empty() {
            return;
        }
        match managed.position(&owner) {
            Some(at) => {
                managed.entries[at].add_fields(&changed);
                managed.entries[at].set_time(self.now);
            }
            None => managed.set(ManagedFieldsEntry::new(
                owner,
                self.gvk.api_version(),
                self.now.into(),
                changed,
            )),
        }
    }
}

/// The changes of a write in every version that has managed fields.
pub(super) struct VersionedChanges<'a> {
    field_manager: FieldManager<'a>,
    old: &'a Value,
    new: &'a Value,
    /// In the version of the write.
    pub(super) own: Comparison,
    others: Vec<(Str, Comparison)>,
}

impl<'a> VersionedChanges<'a> {
    pub(super) fn new(
        field_manager: FieldManager<'a>,
        old: &'a Value,
        new: &'a Value,
    ) -> Result<VersionedChanges<'a>, ItemError> {
        let own = field_manager.compare(field_manager.schema, old, new)?;
        Ok(VersionedChanges {
            field_manager,
            old,
            new,
            own,
            others: Vec::new(),
        })
    }

    /// The changes in another version.
    pub(super) fn in_version(&mut self, api_version: &Str) -> Result<&Comparison, ItemError> {
        if *api_version == self.field_manager.gvk.api_version() {
            return Ok(&self.own);
        }
        let known = self
            .others
            .iter()
            .position(|(version, _)| version == api_version);
        let at = match known {
            Some(at) => at,
            None => {
                self.others
                    .push((api_version.clone(), self.convert(api_version)?));
                self.others.len() - 1
            }
        };
        Ok(&self.others[at].1)
    }

    /// An object that cannot be converted counts as unchanged.
    fn convert(&self, api_version: &str) -> Result<Comparison, ItemError> {
        let FieldManager { versions, gvk, .. } = self.field_manager;
        let convert = |object: &Value| versions.convert(object, &gvk.api_version(), api_version);
        match (
            versions.schema(api_version),
            convert(self.old),
            convert(self.new),
        ) {
            (Some(schema), Some(old), Some(new)) => {
                fits(&schema, &old).and_then(|()| fits(&schema, &new))?;
                self.field_manager.compare(&schema, &old, &new)
            }
            _ => Ok(Comparison::default()),
        }
    }
}

/// Kubernetes: a converted custom resource must match the schema of its version, or all managed
/// fields are dropped.
fn fits(schema: &Struct, object: &Value) -> Result<(), ItemError> {
    if schema.rest().is_none() {
        return Ok(());
    }
    let mut object = object.clone();
    object.remove("metadata");
    validate_shape(schema, &object).map_or(Ok(()), |problem| Err(ItemError::Undeclared(problem)))
}

/// Gives the entries of `new` the times of `old` if nothing but the times has changed, so that the
/// write is a no-op. To be called with the final object.
pub fn keep_times(old: &Value, new: &mut Value) {
    let olds = old["metadata"]["managedFields"].list();
    let news = new["metadata"]["managedFields"].list();
    let times_differ = olds
        .iter()
        .zip(news)
        .any(|(old, new)| old["time"] != new["time"]);
    if olds.len() != news.len() || !times_differ || !equal_except(olds.iter().zip(news), "time") {
        return;
    }
    let same_metadata = equal_except(
        [(&old["metadata"], &new["metadata"])].into_iter(),
        "managedFields",
    );
    if same_metadata && equal_except([(old, &*new)].into_iter(), "metadata") {
        new.entry("metadata").set("managedFields", olds.to_vec());
    }
}

/// Whether all pairs are equal except for one member.
fn equal_except<'a>(mut pairs: impl Iterator<Item = (&'a Value, &'a Value)>, name: &str) -> bool {
    pairs.all(|(old, new)| {
        let rest = |value: &'a Value| value.entries().filter(|(key, _)| *key != name);
        rest(old).count() == rest(new).count()
            && rest(old).all(|(key, value)| new.get(key) == Some(value))
    })
}
