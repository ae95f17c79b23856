//! Server-side apply: somebody says what he wants of an object, and owns exactly that.

use super::check::check;
use super::compare::{nobodys, same};
use super::conflict::Conflicts;
use super::last_applied;
use super::managed::{Entry, Managed, Operation};
use super::merge::merge;
use super::of::fields_of;
use super::prune::{put_back_others, put_back_owned, take_out};
use super::set::FieldSet;
use super::update::Changes;
use super::writer::{Versioned, Writer};
use crate::status::Status;
use mizzen_value::{Str, Value};

/// The owner of what was there before anybody was remembered.
const BEFORE: &str = "before-first-apply";

/// Why something cannot be applied.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The request makes no sense.
    #[error("{0}")]
    BadRequest(String),
    /// What is applied does not have the shape of its kind.
    #[error("{0}")]
    Shape(String),
    /// Others own what would change.
    #[error(transparent)]
    Conflict(#[from] Conflicts),
}

impl ApplyError {
    /// The answer that a client gets.
    pub fn to_status(&self) -> Status {
        match self {
            ApplyError::BadRequest(message) => Status::bad_request(message),
            ApplyError::Shape(message) => Status::unknown(message),
            ApplyError::Conflict(conflicts) => conflicts.to_status(),
        }
    }
}

impl Writer<'_> {
    /// Applies `config`, as the client has written it, to the object `current`, or makes a new one.
    ///
    /// The result has its new owners, but is as raw as `config` is: it has to be decoded, which drops nulls and
    /// brings values into their canonical form, and given its defaults.
    pub fn apply(
        &self,
        current: Option<&Value>,
        config: &Value,
        force: bool,
    ) -> Result<Value, ApplyError> {
        self.check_config(config)?;
        let live = current.map_or_else(|| self.nothing(), without_owners);
        let managed = current.map_or_else(Managed::default, Managed::of);
        let outcome = match self.attempt(&live, config, managed.clone(), force) {
            Err(ApplyError::Conflict(conflicts)) => match self.allowed_anyway(&live, conflicts) {
                Ok(()) => self.attempt(&live, config, managed, true),
                Err(conflicts) => Err(conflicts.into()),
            },
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
        // Kubernetes: what is no list of objects counts as none here, and is of a wrong type later.
        let is_object = |entry: &Value| matches!(entry, Value::Map(_));
        if matches!(&metadata["managedFields"], Value::List(entries) if entries.iter().all(is_object))
        {
            return Err(ApplyError::BadRequest(
                "metadata.managedFields must be nil".into(),
            ));
        }
        let Some(complaint) = check(self.schema, config) else {
            return Ok(());
        };
        let (namespace, name) = (metadata["namespace"].str(), metadata["name"].str());
        let what = format!("{namespace}/{name}; {group}/{version}, Kind={kind}");
        Err(ApplyError::Shape(format!(
            "failed to create typed patch object ({what}): {complaint}"
        )))
    }

    /// Whether all conflicts are about what the applier himself has applied from the client's side before;
    /// otherwise those that are not.
    fn allowed_anyway(&self, live: &Value, conflicts: Conflicts) -> Result<(), Conflicts> {
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
        managed: Managed,
        force: bool,
    ) -> Result<Value, ApplyError> {
        let mut managed = self.with_before(live, managed)?;
        self.reconcile(&mut managed);
        let mut applied = live.clone();
        merge(self.schema, &mut applied, config.clone());

        let owner = self.owner(Operation::Apply);
        let last = managed.get(&owner).cloned();
        let time = last
            .as_ref()
            .map_or_else(Str::default, |last| last.time().clone());
        let fields = self.ownable(fields_of(self.schema, config));
        managed.set(Entry::new(
            owner.clone(),
            self.gvk.api_version(),
            time,
            fields,
        ));
        if let Some(last) = last {
            applied = self.prune(&applied, &last, &managed).unwrap_or(applied);
        }

        self.take_over(live, &applied, &mut managed, force)?;
        if let Some(at) = managed.position(&owner) {
            let entry = &mut managed.entries[at];
            entry.set_fields(entry.fields().difference(nobodys()));
            if !same(live, &applied) {
                entry.set_time(self.now);
            }
        }
        managed.drop_empty();
        managed.write(&mut applied);
        Ok(applied)
    }

    /// If nobody is remembered, what is there belongs to a nameless owner, so that nobody overwrites it unawares.
    fn with_before<'a>(
        &self,
        live: &Value,
        managed: Managed<'a>,
    ) -> Result<Managed<'a>, ApplyError> {
        if !managed.entries.is_empty() {
            return Ok(managed);
        }
        let before = Writer {
            manager: BEFORE,
            ..*self
        };
        before
            .track(&self.nothing(), live, managed)
            .map_err(|error| {
                ApplyError::Shape(format!(
                    "failed to create manager for existing fields: {error}"
                ))
            })
    }

    /// Takes what changes away from the others, or says who would lose what.
    fn take_over(
        &self,
        live: &Value,
        applied: &Value,
        managed: &mut Managed,
        force: bool,
    ) -> Result<(), ApplyError> {
        let fail = |error| ApplyError::Shape(format!("failed to compare objects: {error}"));
        let owner = self.owner(Operation::Apply);
        let mut changes = Changes::new(*self, live, applied).map_err(fail)?;
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
            entry.lose(&changes.changed);
            entry.lose(&changes.removed);
        }
        match conflicts.is_empty() || force {
            true => Ok(()),
            false => Err(Conflicts::new(conflicts).into()),
        }
    }

    /// Takes away what the applier owned and no longer names, unless somebody else owns it. `None` if the version
    /// is missing in which it could be told what was his.
    fn prune(&self, applied: &Value, last: &Entry, managed: &Managed) -> Option<Value> {
        let version = &last.api_version;
        let schema = self.schema_in(version)?;
        let merged = Versioned::of(self, applied.clone()).to(version, self.versions)?;
        let object = take_out(&schema, &merged.object, last.fields());
        let pruned = self.put_back(
            &merged,
            Versioned {
                object,
                api_version: version.clone(),
            },
            managed,
        );
        let pruned = pruned.to(version, self.versions)?;
        let object = put_back_others(&schema, &merged.object, &pruned.object, last.fields());
        let pruned = Versioned {
            object,
            api_version: version.clone(),
        };
        Some(pruned.to(&self.gvk.api_version(), self.versions)?.object)
    }

    /// Puts back what anybody owns, version by version, beginning with the one at hand.
    fn put_back(&self, merged: &Versioned, mut pruned: Versioned, managed: &Managed) -> Versioned {
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
            let object = put_back_owned(&schema, &merged.object, &object.object, &owned);
            pruned = Versioned {
                object,
                api_version: version.clone(),
            };
        }
        pruned
    }
}

fn without_owners(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata") {
        metadata.remove("managedFields");
    }
    object
}

/// Group, version and kind as upstream reads them from an object without a schema.
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
