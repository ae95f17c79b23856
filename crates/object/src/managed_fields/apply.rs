//! Server-side apply: the applier owns exactly the fields of its configuration.

use super::compare::{same, stripped_fields};
use super::conflict::ApplyConflicts;
use super::entry::{ManagedFields, ManagedFieldsEntry, ManagedFieldsOperation};
use super::field_manager::{FieldManager, Versioned};
use super::field_set::FieldSet;
use super::last_applied;
use super::merge::merge;
use super::prune::{remove_owned, restore_owned, restore_unowned};
use super::shape::validate_shape;
use super::to_field_set::to_field_set;
use super::update::VersionedChanges;
use crate::status::Status;
use mizzen_value::{Str, Value};

/// The manager of fields that were set before managed fields were tracked.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Why a configuration cannot be applied.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The request is invalid.
    #[error("{0}")]
    BadRequest(String),
    /// The configuration does not match the schema.
    #[error("{0}")]
    Shape(String),
    /// Other managers own fields that would change.
    #[error(transparent)]
    Conflict(#[from] ApplyConflicts),
}

impl ApplyError {
    /// The response to the client.
    pub fn to_status(&self) -> Status {
        match self {
            ApplyError::BadRequest(message) => Status::bad_request(message),
            ApplyError::Shape(message) => Status::unknown(message),
            ApplyError::Conflict(conflicts) => conflicts.to_status(),
        }
    }
}

impl FieldManager<'_> {
    /// Applies `config`, as the client sent it, to the object `current`, or creates a new object.
    ///
    /// The result has its new managed fields, but is as raw as `config`: it has to be decoded,
    /// which drops nulls and makes values canonical, and defaulted.
    pub fn apply(
        &self,
        current: Option<&Value>,
        config: &Value,
        force: bool,
    ) -> Result<Value, ApplyError> {
        self.check_config(config)?;
        let mut live = current.map_or_else(|| self.empty_object(), Value::clone);
        if let Some(metadata) = live.get_mut("metadata") {
            metadata.remove("managedFields");
        }
        let managed = current.map_or_else(ManagedFields::default, ManagedFields::from_object);
        let outcome = match self.attempt(&live, config, managed.clone(), force) {
            Err(ApplyError::Conflict(conflicts)) => {
                match self.except_client_side_apply(&live, conflicts) {
                    Ok(()) => self.attempt(&live, config, managed, true),
                    Err(conflicts) => Err(conflicts.into()),
                }
            }
            outcome => outcome,
        };
        let mut applied = outcome?;
        last_applied::refresh(self, &mut applied, config);
        Ok(applied)
    }

    fn check_config(&self, config: &Value) -> Result<(), ApplyError> {
        let (group, version, kind) = kind_of(config);
        if [group, version, kind] != [&*self.gvk.group, &*self.gvk.version, &*self.gvk.kind] {
            return Err(ApplyError::BadRequest(format!(
                "invalid object type: {group}/{version}, Kind={kind}"
            )));
        }
        let metadata = &config["metadata"];
        // Kubernetes: anything but a list of objects counts as empty here, and is a type error
        // later.
        let is_object = |entry: &Value| matches!(entry, Value::Map(_));
        if matches!(&metadata["managedFields"], Value::List(entries) if entries.iter().all(is_object))
        {
            return Err(ApplyError::BadRequest(
                "metadata.managedFields must be nil".into(),
            ));
        }
        let Some(complaint) = validate_shape(self.schema, config) else {
            return Ok(());
        };
        let (namespace, name) = (metadata["namespace"].str(), metadata["name"].str());
        let what = format!("{namespace}/{name}; {group}/{version}, Kind={kind}");
        Err(ApplyError::Shape(format!(
            "failed to create typed patch object ({what}): {complaint}"
        )))
    }

    /// Whether all conflicts are about fields that the applier owns by client-side apply; otherwise
    /// the remaining conflicts.
    fn except_client_side_apply(
        &self,
        live: &Value,
        conflicts: ApplyConflicts,
    ) -> Result<(), ApplyConflicts> {
        let Some(allowed) = last_applied::fields(self, live) else {
            return Err(conflicts);
        };
        let conflicts = conflicts.except(&allowed);
        if conflicts.0.is_empty() {
            Ok(())
        } else {
            Err(conflicts)
        }
    }

    fn attempt(
        &self,
        live: &Value,
        config: &Value,
        managed: ManagedFields,
        force: bool,
    ) -> Result<Value, ApplyError> {
        let mut managed = self.with_before_first_apply(live, managed)?;
        self.reconcile(&mut managed);
        let mut applied = live.clone();
        merge(self.schema, &mut applied, config.clone());

        let owner = self.owner(ManagedFieldsOperation::Apply);
        let last = managed.get(&owner).cloned();
        let time = last
            .as_ref()
            .map_or_else(Str::default, |last| last.time().clone());
        let fields = self.ownable(to_field_set(self.schema, config));
        managed.set(ManagedFieldsEntry::new(
            owner.clone(),
            self.gvk.api_version(),
            time,
            fields,
        ));
        if let Some(last) = last {
            applied = self.prune(&applied, &last, &managed).unwrap_or(applied);
        }

        self.take_ownership(live, &applied, &mut managed, force)?;
        if let Some(at) = managed.position(&owner) {
            let entry = &mut managed.entries[at];
            entry.set_fields(entry.fields().difference(stripped_fields()));
            if !same(live, &applied) {
                entry.set_time(self.now);
            }
        }
        managed.drop_empty();
        managed.write(&mut applied);
        Ok(applied)
    }

    /// If there are no managed fields yet, the existing fields belong to `before-first-apply`, so
    /// that they are not overwritten without a conflict.
    fn with_before_first_apply<'a>(
        &self,
        live: &Value,
        managed: ManagedFields<'a>,
    ) -> Result<ManagedFields<'a>, ApplyError> {
        if !managed.entries.is_empty() {
            return Ok(managed);
        }
        let before = FieldManager {
            manager: BEFORE_FIRST_APPLY,
            ..*self
        };
        before
            .track(&self.empty_object(), live, managed)
            .map_err(|error| {
                ApplyError::Shape(format!(
                    "failed to create manager for existing fields: {error}"
                ))
            })
    }

    /// Removes changed fields from other managers, or returns the conflicts.
    fn take_ownership(
        &self,
        live: &Value,
        applied: &Value,
        managed: &mut ManagedFields,
        force: bool,
    ) -> Result<(), ApplyError> {
        let fail = |error| ApplyError::Shape(format!("failed to compare objects: {error}"));
        let owner = self.owner(ManagedFieldsOperation::Apply);
        let mut changes = VersionedChanges::new(*self, live, applied).map_err(fail)?;
        let mut conflicts = Vec::new();
        for entry in managed
            .entries
            .iter_mut()
            .filter(|entry| entry.owner != owner)
        {
            let changes = changes.in_version(&entry.api_version).map_err(fail)?;
            let lost = entry.fields().intersection(&changes.changed);
            if !lost.is_empty() {
                conflicts.push((entry.owner.clone(), lost));
            }
            entry.remove_fields(&changes.changed);
            entry.remove_fields(&changes.removed);
        }
        match conflicts.is_empty() || force {
            true => Ok(()),
            false => Err(ApplyConflicts::new(conflicts).into()),
        }
    }

    /// Removes the fields that the applier owned and no longer applies, unless another manager owns
    /// them. `None` if the version of its last apply is no longer served.
    fn prune(
        &self,
        applied: &Value,
        last: &ManagedFieldsEntry,
        managed: &ManagedFields,
    ) -> Option<Value> {
        let version = &last.api_version;
        let schema = self.schema_in(version)?;
        let merged = Versioned::new(self, applied.clone()).to(version, self.versions)?;
        let object = remove_owned(&schema, &merged.object, last.fields());
        let pruned = self.restore_fields(
            &merged,
            Versioned {
                object,
                api_version: version.clone(),
            },
            managed,
        );
        let pruned = pruned.to(version, self.versions)?;
        let object = restore_unowned(&schema, &merged.object, &pruned.object, last.fields());
        let pruned = Versioned {
            object,
            api_version: version.clone(),
        };
        Some(pruned.to(&self.gvk.api_version(), self.versions)?.object)
    }

    /// Restores the fields that any manager owns, version by version, starting with the current
    /// one.
    fn restore_fields(
        &self,
        merged: &Versioned,
        mut pruned: Versioned,
        managed: &ManagedFields,
    ) -> Versioned {
        let mut versions: Vec<&Str> = managed
            .entries
            .iter()
            .map(|entry| &entry.api_version)
            .collect();
        versions.sort_by_key(|version| (**version != pruned.api_version, version.as_str()));
        versions.dedup();
        for version in versions {
            let (Some(schema), Some(merged), Some(object)) = (
                self.schema_in(version),
                merged.to(version, self.versions),
                pruned.to(version, self.versions),
            ) else {
                continue;
            };
            let of_version = managed
                .entries
                .iter()
                .filter(|entry| entry.api_version == *version);
            let owned =
                of_version.fold(FieldSet::default(), |all, entry| all.union(entry.fields()));
            let object = restore_owned(&schema, &merged.object, &object.object, &owned);
            pruned = Versioned {
                object,
                api_version: version.clone(),
            };
        }
        pruned
    }
}

/// Group, version and kind as upstream reads them from an unstructured object.
fn kind_of(object: &Value) -> (&str, &str, &str) {
    let kind = object["kind"].str();
    match object["apiVersion"].str().trim_matches('/') {
        "" => ("", "", kind),
        version => match version.split('/').collect::<Vec<_>>().as_slice() {
            [version] => ("", version, kind),
            [group, version] => (group, version, kind),
            _ => ("", "", ""),
        },
    }
}
