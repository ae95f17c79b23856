//! Deletes an object: at once, after its grace period, or when the last finalizer is removed.

use mizzen_object::{GroupResource, GroupVersionKind, Status};
use mizzen_store::{Expect, Write, WriteError};
use mizzen_value::{Str, Value, time};

use crate::attempt::Attempt;
use crate::encode::same;
use crate::status::write_status;
use crate::{Key, ListOptions, Match, Object, Registry, Resource, ValidatingAdmission, encode};

/// The finalizer of orphan propagation.
const ORPHAN: &str = "orphan";
/// The finalizer of foreground propagation.
const FOREGROUND: &str = "foregroundDeletion";

/// propagationPolicy: what happens to dependents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Propagation {
    /// Orphan: dependents stay.
    Orphan,
    /// Background: dependents are deleted after their owner.
    Background,
    /// Foreground: dependents are deleted before their owner.
    Foreground,
}

/// How an object is deleted.
#[derive(Debug, Clone, Default)]
pub struct DeleteOptions {
    /// gracePeriodSeconds.
    pub grace: Option<i64>,
    /// What happens to its dependents.
    pub propagation: Option<Propagation>,
    /// The deprecated orphanDependents.
    pub orphan_dependents: Option<bool>,
    /// Precondition: the uid.
    pub uid: Option<String>,
    /// Precondition: the resourceVersion.
    pub version: Option<String>,
    /// Dry run: everything but the commit.
    pub dry_run: bool,
}

/// A deleted object.
pub struct Deleted {
    /// The last state of the object.
    pub object: Object,
    /// Whether it is gone; otherwise finalizers or a grace period hold it.
    pub gone: bool,
    /// Its uid.
    pub uid: Str,
}

/// What to do with the object now.
enum DeletionStep {
    /// Nothing: it is already being deleted.
    Wait,
    /// Set its deletionTimestamp.
    Mark,
    /// Set its deletionTimestamp, then remove it.
    MarkAndRemove,
    Remove,
}

/// The result of one attempt.
enum DeleteAttempt {
    Done(Deleted),
    /// There is nothing to change.
    Unchanged(Deleted),
    /// Another write was committed first. If the mark was committed before that, what it has made of the object.
    Raced(Option<Deleted>),
    /// The store did not take the write, or did not say whether it has.
    Failed(Status),
}

impl Registry {
    /// Deletes the object at `key`.
    pub async fn delete(
        &self,
        resource: &Resource,
        key: &Key,
        options: &DeleteOptions,
        gate: &dyn ValidatingAdmission,
    ) -> Result<Deleted, Status> {
        let mut attempt = Attempt::first(self, resource, key);
        let mut marked: Option<Deleted> = None;
        loop {
            let current = attempt.current().await?;
            // Kubernetes: what has no grace period left may be removed by another component first, such as the kubelet with
            // its last status (store.go, `ignoreNotFound`).
            let is_there = |marked: &mut Deleted| {
                let current = current.as_ref().map(Object::value);
                current.is_some_and(|current| current["metadata"]["uid"].str() == &*marked.uid)
            };
            if let Some(removed) = marked.take_if(|marked| !is_there(marked)) {
                return Ok(removed);
            }
            let current = current.ok_or_else(|| resource.missing(key))?;
            let delete = (options, gate);
            match self.try_delete(resource, key, delete, &current).await {
                Ok(DeleteAttempt::Done(deleted)) => return Ok(deleted),
                Ok(DeleteAttempt::Raced(deleted)) => {
                    marked = deleted.or(marked);
                    attempt.require_latest();
                }
                // The change that the store shows then may be that of this very write.
                Ok(DeleteAttempt::Failed(status)) => return Err(status),
                _ if attempt.was_outdated(&current).await? => {}
                Ok(DeleteAttempt::Unchanged(deleted)) => return Ok(deleted),
                Err(status) => return Err(status),
            }
        }
    }

    async fn try_delete(
        &self,
        resource: &Resource,
        key: &Key,
        (options, gate): (&DeleteOptions, &dyn ValidatingAdmission),
        current: &Object,
    ) -> Result<DeleteAttempt, Status> {
        let record = current.record().expect("what was found is stored").clone();
        let old = resource.validation_value(current)?;
        options.check_preconditions(resource, &old)?;
        gate.check(None, Some(&old)).await?;

        let had_finalizers = !old["metadata"]["finalizers"].is_empty();
        let uid = Str::from(old["metadata"]["uid"].str());
        let mut object = old;
        let step = self.plan(resource, &mut object, options);
        if let DeletionStep::Wait = step {
            return Ok(DeleteAttempt::Unchanged(Deleted {
                object: current.clone(),
                gone: false,
                uid,
            }));
        }
        if options.dry_run {
            return Ok(DeleteAttempt::Unchanged(pretend(resource, object, step)));
        }
        let draft = match step {
            // The object is removed as it was stored last, so it is not encoded again.
            DeletionStep::Remove if !had_finalizers && !resource.is_custom() => {
                encode::redraft(resource.stored(), &object, &record)
            }
            _ => {
                resource.to_stored(&mut object).await?;
                encode::draft(resource.stored(), &mut object, self.now())
            }
        };
        let gone = !matches!(step, DeletionStep::Mark);
        if !gone && same(&draft, &record) {
            return Ok(DeleteAttempt::Unchanged(Deleted {
                object: current.clone(),
                gone,
                uid,
            }));
        }
        let (space, expect) = (resource.space(), Expect::At(record.revision));
        let write = match step {
            DeletionStep::Remove => Write::delete(space, key.stored(), expect, draft),
            _ => Write::put(space, key.stored(), expect, draft).with_reserve(),
        };
        let (mut outcome, mut marked) = (self.store.commit_one(write).await, None);
        // Kubernetes: watchers see the deletionTimestamp before the DELETED event.
        if let (DeletionStep::MarkAndRemove, Ok(record)) = (&step, &outcome) {
            let draft = encode::draft(resource.stored(), &mut object, self.now());
            let write = Write::delete(space, key.stored(), Expect::At(record.revision), draft);
            marked = Some(record.clone());
            outcome = self.store.commit_one(write).await;
        }
        match outcome {
            Ok(record) => {
                let object = resource.render_one(record).await?;
                Ok(DeleteAttempt::Done(Deleted { object, gone, uid }))
            }
            Err(WriteError::Conflict { .. } | WriteError::Missing { .. }) => {
                let Some(record) = marked else {
                    return Ok(DeleteAttempt::Raced(None));
                };
                let object = resource.render_one(record).await?;
                Ok(DeleteAttempt::Raced(Some(Deleted { object, gone, uid })))
            }
            Err(error) => {
                let status = write_status(resource.kind(), &key.name, error);
                Ok(DeleteAttempt::Failed(status))
            }
        }
    }

    /// Deletes every object of a list and returns that list.
    pub async fn delete_collection(
        &self,
        resource: &Resource,
        list: &ListOptions,
        options: &DeleteOptions,
        gate: &dyn ValidatingAdmission,
    ) -> Result<crate::ObjectList, Status> {
        // Kubernetes: collections are listed in pages (`deleteCollectionPageSize`), and so at the very version that is given.
        let at_version =
            list.matching == Match::Unset && !matches!(list.version.as_str(), "" | "0");
        let matching = if at_version {
            Match::Exact
        } else {
            list.matching
        };
        let found = self
            .read_list(
                resource,
                &ListOptions {
                    matching,
                    ..list.clone()
                },
            )
            .await?;
        for object in &found.items {
            let record = object.record().expect("what was listed is stored");
            match self
                .delete(resource, &Key::of(&record.key), options, gate)
                .await
            {
                Err(status) if status.reason == "NotFound" => {}
                outcome => drop(outcome?),
            }
        }
        Ok(found)
    }

    /// Changes `object` to its next state and returns which state that is.
    fn plan(
        &self,
        resource: &Resource,
        object: &mut Value,
        options: &DeleteOptions,
    ) -> DeletionStep {
        let hooks = &resource.validation_kind().hooks;
        let deleting = !object["metadata"]["deletionTimestamp"].is_null();
        if !deleting && hooks.mark_deleted(object, &self.timestamp()) {
            self.set_finalizers(resource, object, options);
            object
                .entry("metadata")
                .set("deletionTimestamp", self.timestamp());
            return DeletionStep::Mark;
        }
        if deleting && hooks.is_removal_blocked(object) {
            return DeletionStep::Wait;
        }
        let graceful = match self.begin_grace(resource, object, options) {
            Grace::Pending => return DeletionStep::Wait,
            Grace::Begun(seconds) => Some(seconds),
            Grace::None => None,
        };
        self.set_finalizers(resource, object, options);
        let held = !object["metadata"]["finalizers"].is_empty();
        match graceful {
            Some(seconds) if held || seconds > 0 => DeletionStep::Mark,
            Some(_) => DeletionStep::MarkAndRemove,
            None if held => {
                self.mark(object);
                DeletionStep::Mark
            }
            None => DeletionStep::Remove,
        }
    }

    fn begin_grace(
        &self,
        resource: &Resource,
        object: &mut Value,
        options: &DeleteOptions,
    ) -> Grace {
        let requested = options
            .grace
            .map(|seconds| if seconds < 0 { 1 } else { seconds });
        let Some(seconds) = resource
            .validation_kind()
            .hooks
            .grace_period(object, requested)
        else {
            return Grace::None;
        };
        let metadata = object.entry("metadata");
        if !metadata["deletionTimestamp"].is_null() {
            return shorten_grace(metadata, requested);
        }
        metadata.set("deletionTimestamp", time::from_unix(self.now() + seconds));
        metadata.set("deletionGracePeriodSeconds", seconds);
        bump_generation(metadata);
        Grace::Begun(seconds)
    }

    fn mark(&self, object: &mut Value) {
        let metadata = object.entry("metadata");
        if metadata["deletionTimestamp"].is_null() {
            metadata.set("deletionTimestamp", self.timestamp());
            bump_generation(metadata);
        }
        metadata.set("deletionGracePeriodSeconds", 0);
    }

    /// Sets the finalizers of the propagation policy.
    fn set_finalizers(&self, resource: &Resource, object: &mut Value, options: &DeleteOptions) {
        let metadata = object.entry("metadata");
        let policy = propagation(resource, metadata, options);
        let mut finalizers: Vec<Value> = metadata["finalizers"].list().to_vec();
        finalizers.retain(|finalizer| !matches!(finalizer.str(), ORPHAN | FOREGROUND));
        match policy {
            Propagation::Orphan => finalizers.push(ORPHAN.into()),
            Propagation::Foreground => finalizers.push(FOREGROUND.into()),
            Propagation::Background => {}
        }
        if finalizers.is_empty() {
            metadata.remove("finalizers");
        } else {
            metadata.set("finalizers", finalizers);
        }
    }
}

/// The progress of a graceful deletion.
enum Grace {
    /// The kind has none, or its grace period is over.
    None,
    /// It is running and is not shortened.
    Pending,
    /// It starts or continues with this grace period.
    Begun(i64),
}

/// A running grace period can only be shortened.
fn shorten_grace(metadata: &mut Value, requested: Option<i64>) -> Grace {
    let running = metadata["deletionGracePeriodSeconds"].int();
    if running == 0 {
        return Grace::None;
    }
    match requested {
        Some(requested) if requested < running => {
            let end = time::to_unix(metadata["deletionTimestamp"].str()).unwrap_or_default();
            metadata.set(
                "deletionTimestamp",
                time::from_unix(end - running + requested),
            );
            metadata.set("deletionGracePeriodSeconds", requested);
            Grace::Begun(requested)
        }
        _ => Grace::Pending,
    }
}

fn bump_generation(metadata: &mut Value) {
    let generation = metadata["generation"].int();
    if generation > 0 {
        metadata.set("generation", generation + 1);
    }
}

/// The grace period of the request, else of the object, else of the kind.
fn propagation(resource: &Resource, metadata: &Value, options: &DeleteOptions) -> Propagation {
    // Kubernetes: rest.Unsupported.
    if resource.kind().rules.no_garbage_collection {
        return Propagation::Background;
    }
    if let Some(orphan) = options.orphan_dependents {
        return if orphan {
            Propagation::Orphan
        } else {
            Propagation::Background
        };
    }
    if let Some(policy) = options.propagation {
        return policy;
    }
    let has = |name: &str| {
        metadata["finalizers"]
            .list()
            .iter()
            .any(|finalizer| finalizer.str() == name)
    };
    if has(ORPHAN) {
        Propagation::Orphan
    } else if has(FOREGROUND) {
        Propagation::Foreground
    } else if resource.kind().rules.orphan_by_default {
        Propagation::Orphan
    } else {
        Propagation::Background
    }
}

fn pretend(resource: &Resource, mut object: Value, step: DeletionStep) -> Deleted {
    resource.from_hub(&mut object);
    let uid = object["metadata"]["uid"].str().into();
    let json = encode::plain(resource.kind(), &mut object).into();
    Deleted {
        uid,
        object: Object::unstored(json),
        gone: !matches!(step, DeletionStep::Mark),
    }
}

impl DeleteOptions {
    /// Checks the preconditions.
    pub fn check_preconditions(&self, resource: &Resource, object: &Value) -> Result<(), Status> {
        let metadata = &object["metadata"];
        let checks = [
            ("UID", "uid", &self.uid, "deleted and then recreated"),
            (
                "ResourceVersion",
                "resourceVersion",
                &self.version,
                "modified",
            ),
        ];
        for (title, field, wanted, happened) in checks {
            let stored = metadata[field].str();
            if let Some(wanted) = wanted.as_deref().filter(|wanted| *wanted != stored) {
                let why = format!(
                    "the {title} in the precondition ({wanted}) does not match the {title} in record ({stored}). The \
                     object might have been {happened}"
                );
                // Kubernetes: this error names the kind, not the resource (rest/delete.go).
                let GroupVersionKind { group, kind, .. } = resource.kind().gvk.clone();
                let kind = GroupResource {
                    group,
                    resource: kind,
                };
                return Err(Status::conflict(&kind, metadata["name"].str(), &why));
            }
        }
        Ok(())
    }
}
