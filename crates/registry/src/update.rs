//! Updates an object, with a retry after a conflict.

use mizzen_object::managed_fields::keep_times;
use mizzen_object::validate::meta;
use mizzen_object::{Action, HookContext, NameRule, Path, Status, User, Violations};
use mizzen_store::{Expect, Write, WriteError};
use mizzen_value::Value;

use crate::attempt::Attempt;
use crate::create::{check_kind, check_own_meta};
use crate::encode::{ManagedFieldsLimit, StorageLocation, same};
use crate::prepare::{count_generation, reset_for_update};
use crate::status::{MODIFIED, write_status};
use crate::validate::validate;
use crate::{
    Create, Key, NoAdmission, Object, Registry, Resource, UpdateFn, ValidatingAdmission, Warnings,
    encode, parse_version,
};

/// An update of an object.
pub struct Update<'a> {
    /// Its resource.
    pub resource: &'a Resource,
    /// Which object.
    pub key: &'a Key,
    /// Computes the new object.
    pub change: &'a mut dyn UpdateFn,
    /// The main resource or `/status`.
    pub action: Action,
    /// The user of the request.
    pub user: User,
    /// Dry run: everything but the commit.
    pub dry_run: bool,
    /// Server-side apply: managed fields are never dropped.
    pub applies: bool,
    /// Create the object if it is missing.
    pub create: bool,
    /// Reject at once if the uid differs from that of the new object.
    pub uid_precondition: bool,
    /// Skip the preparation and validation of the kind: some subresources have rules of their own.
    pub unchecked: bool,
    /// Validating admission.
    pub gate: &'a dyn ValidatingAdmission,
    /// Collects warnings for the client.
    pub warnings: Option<&'a Warnings>,
}

impl<'a> Update<'a> {
    /// An update of the main resource, without user, admission or warnings.
    pub fn new(resource: &'a Resource, key: &'a Key, change: &'a mut dyn UpdateFn) -> Update<'a> {
        Update {
            resource,
            key,
            change,
            action: Action::Update,
            user: User::default(),
            dry_run: false,
            applies: false,
            create: false,
            uid_precondition: false,
            unchecked: false,
            gate: &NoAdmission,
            warnings: None,
        }
    }
}

/// An updated object.
pub struct Updated {
    /// The new state of the object.
    pub object: Object,
    /// Whether the update created it.
    pub created: bool,
}

/// The result of one attempt.
enum UpdateAttempt {
    Done(Object),
    /// There is nothing to change.
    Unchanged(Object),
    /// Another write was committed first.
    Raced,
    /// The store did not take the write, or did not say whether it has.
    Failed(Status),
}

impl Registry {
    /// Updates an object.
    pub async fn update(&self, mut update: Update<'_>) -> Result<Updated, Status> {
        let (resource, key) = (update.resource, update.key);
        let mut attempt = Attempt::first(self, resource, key);
        loop {
            let Some(current) = attempt.current().await? else {
                return self.create_instead(update).await;
            };
            let outcome = self.try_update(&mut update, &current).await;
            let object = match outcome {
                Ok(UpdateAttempt::Done(object)) => object,
                Ok(UpdateAttempt::Raced) => {
                    attempt.require_latest();
                    continue;
                }
                // The change that the store shows then may be that of this very write.
                Ok(UpdateAttempt::Failed(status)) => return Err(status),
                _ if attempt.was_outdated(&current).await? => continue,
                Ok(UpdateAttempt::Unchanged(object)) => object,
                Err(status) => return Err(status),
            };
            return Ok(Updated {
                object,
                created: false,
            });
        }
    }

    async fn create_instead(&self, update: Update<'_>) -> Result<Updated, Status> {
        let Update { resource, key, .. } = update;
        resource.check_namespace(&key.namespace)?;
        if !update.create {
            return Err(resource.not_found(&key.name));
        }
        let mut object = update.change.apply(None).await?;
        let metadata = &object["metadata"];
        // Kubernetes: the version must be a number, and is otherwise ignored.
        check_uid(&update, metadata, &Value::Null)?;
        parse_version(metadata["resourceVersion"].str())
            .map_err(|error| Status::unknown(error.to_string()))?;
        if !update.dry_run {
            object.remove_metadata("resourceVersion");
        }
        let create = Create {
            user: update.user,
            dry_run: update.dry_run,
            applies: update.applies,
            gate: update.gate,
            warnings: update.warnings,
            ..Create::new(resource, &key.namespace, object)
        };
        Ok(Updated {
            object: self.create(create).await?,
            created: true,
        })
    }

    async fn try_update(
        &self,
        update: &mut Update<'_>,
        current: &Object,
    ) -> Result<UpdateAttempt, Status> {
        let Update {
            resource,
            key,
            action,
            dry_run,
            gate,
            ..
        } = *update;
        let record = current.record().expect("what was found is stored").clone();
        let shown = current.value();
        let mut draft = update.change.apply(Some(&shown)).await?;
        let violations = resource.validate_and_convert(&mut draft);
        let old = match resource.is_converted() {
            true => resource.validation_value(current)?,
            false => shown,
        };
        check_preconditions(update, &draft["metadata"], &old["metadata"])?;
        if resource.is_custom() && draft["apiVersion"].is_empty() {
            return Err(Status::internal(
                "Object 'apiVersion' is missing in 'object has no apiVersion field'",
            ));
        }

        let kind = resource.validation_kind();
        let mut new;
        if update.unchecked {
            new = draft.into_value();
        } else {
            let now = self.timestamp();
            let context = update.user.context(action, &now);
            reset_for_update(resource, action, &mut draft, &old);
            new = draft.into_value();
            resource
                .kind()
                .hooks
                .prepare(&mut new, Some(&old), &context);
            if action != Action::Status {
                count_generation(kind, &mut new, &old);
            }
            keep_times(&old, &mut new);
            let mut violations =
                validate_change(resource, &new, &old, &context, violations).await?;
            if let Some(authorized) = gate.authorize(&new, Some(&old), &mut violations) {
                authorized.await;
            }
            let warnings = update.warnings;
            if let Some(warnings) = warnings {
                warnings.warn_all(violations.1.drain(..));
            }
            if !violations.is_empty() {
                // Kubernetes: an object that is stored in another group is validated under that group's name.
                let name = new["metadata"]["name"].str();
                return Err(Status::invalid(&kind.gvk, name, &violations));
            }
            if let Some(warnings) = warnings {
                warnings.warn_all(resource.kind().hooks.warnings(&new, Some(&old), &context));
            }
        }
        gate.check(Some(&new), Some(&old)).await?;

        let gone = is_finished(resource, &new, &old);
        let mut seen = None;
        if gone || dry_run {
            let mut written = new.clone();
            if dry_run {
                resource.through_storage(&mut written).await?;
            }
            seen = Some(pretend(resource, written, &old));
        }
        resource.to_stored(&mut new).await?;
        let owners = ManagedFieldsLimit::of(update.applies);
        let stored_at = StorageLocation {
            key: resource.storage_key(key),
            replaces: Some(record.revision),
        };
        let draft = encode::bounded(resource.stored(), &mut new, self.now(), owners, &stored_at)?;
        // A record that is encrypted under an old key is rewritten even if the object is unchanged.
        if !gone && same(&draft, &record) && !self.store.is_stale(resource.space(), &record) {
            return Ok(UpdateAttempt::Unchanged(current.clone()));
        }
        if let Some(seen) = seen.clone().filter(|_| dry_run) {
            return Ok(UpdateAttempt::Unchanged(seen));
        }
        let expect = Expect::At(record.revision);
        let write = match gone {
            // Kubernetes: watchers get the object as it was stored last.
            true => {
                let mut last = old;
                resource.to_stored(&mut last).await?;
                let draft = encode::draft(resource.stored(), &mut last, self.now());
                Write::delete(resource.space(), key.stored(), expect, draft)
            }
            false => {
                let leads_to_delete =
                    is_being_deleted(&new) && draft.value.len() <= record.value.len() + SLACK;
                let write = Write::put(resource.space(), key.stored(), expect, draft);
                if leads_to_delete {
                    write.with_reserve()
                } else {
                    write
                }
            }
        };
        match self.store.commit_one(write).await {
            // Kubernetes: the client that removes the last finalizer gets the object as it sent it.
            Ok(record) => Ok(UpdateAttempt::Done(match seen {
                Some(seen) => seen,
                None => resource.render_one(record).await?,
            })),
            // The next attempt rejects an update that names a resourceVersion.
            Err(WriteError::Conflict { .. } | WriteError::Missing { .. }) => {
                Ok(UpdateAttempt::Raced)
            }
            Err(error) => {
                let status = write_status(resource.kind(), &key.name, error);
                Ok(UpdateAttempt::Failed(status))
            }
        }
    }
}

/// Rejects another uid or resourceVersion. `new` and `old` are metadata.
fn check_preconditions(update: &Update<'_>, new: &Value, old: &Value) -> Result<(), Status> {
    let (kind, key) = (update.resource.kind(), update.key);
    check_uid(update, new, old)?;
    let version = new["resourceVersion"].str();
    let number = parse_version(version).map_err(|error| Status::unknown(error.to_string()))?;
    if number == 0 && kind.rules.conditional_update {
        return Err(unconditional(update.resource, key));
    }
    if number != 0 && version != old["resourceVersion"].str() {
        return Err(Status::conflict(&kind.resource(), &key.name, MODIFIED));
    }
    Ok(())
}

fn check_uid(update: &Update<'_>, new: &Value, old: &Value) -> Result<(), Status> {
    let (uid, stored) = (new["uid"].str(), old["uid"].str());
    if !update.uid_precondition || uid.is_empty() || uid == stored {
        return Ok(());
    }
    // Kubernetes: a dry run is rejected above the storage layer, which has its own key prefix.
    let key_there = update.resource.storage_key(update.key);
    let shown = if update.dry_run {
        key_there.trim_start_matches("/registry")
    } else {
        &key_there
    };
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: {shown}, ResourceVersion: 0, AdditionalErrorMsg: \
         Precondition failed: UID in precondition: {uid}, UID in object meta: {stored}"
    );
    let resource = update.resource.kind().resource();
    Err(Status::conflict(&resource, &update.key.name, &why))
}

/// Kubernetes: this error names the resource, not the kind (registry/store.go).
fn unconditional(resource: &Resource, key: &Key) -> Status {
    let mut gvk = resource.kind().gvk.clone();
    gvk.kind = resource.kind().plural.clone();
    let mut violations = Violations::default();
    let path = Path::new("metadata");
    violations.invalid_shown(
        path.child("resourceVersion"),
        "0",
        "must be specified for an update",
    );
    Status::invalid(&gvk, &key.name, &violations)
}

/// Validates an updated object, in addition to `violations`.
async fn validate_change(
    resource: &Resource,
    new: &Value,
    old: &Value,
    context: &HookContext<'_>,
    mut violations: Violations,
) -> Result<Violations, Status> {
    let kind = resource.validation_kind();
    check_kind(kind, new)?;
    let path = Path::new("metadata");
    let (metadata, stored) = (&new["metadata"], &old["metadata"]);
    meta::object_meta(
        metadata,
        kind.is_namespaced(),
        NameRule::PathSegment,
        &path,
        &mut violations,
    );
    meta::object_meta_update(metadata, stored, &path, &mut violations);
    check_own_meta(kind, context.action, metadata, stored, &mut violations);
    Ok(validate(resource, new, Some(old), context, violations).await)
}

/// How many bytes an object with a deletionTimestamp may grow on a full disk: its conditions say what it waits for.
const SLACK: usize = 4096;

fn is_being_deleted(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

/// Whether this update removes the last finalizer of a deleted object.
fn is_finished(resource: &Resource, new: &Value, old: &Value) -> bool {
    is_being_deleted(old)
        && old["metadata"]["deletionGracePeriodSeconds"].int() == 0
        && new["metadata"]["finalizers"].is_empty()
        && !resource.validation_kind().hooks.is_removal_blocked(new)
}

fn pretend(resource: &Resource, mut new: Value, old: &Value) -> Object {
    let version = old["metadata"]["resourceVersion"].clone();
    new.entry("metadata").set("resourceVersion", version);
    resource.from_hub(&mut new);
    Object::unstored(encode::plain(resource.kind(), &mut new).into())
}
