//! ControllerRevisions: claimed, created, renumbered and deleted for StatefulSets and DaemonSets.

pub(crate) mod limit;
pub(crate) mod revision;

use std::sync::Arc;

use mizzen_object::select::LabelSelector;
use mizzen_sdk::controller::{
    Context, ControllerRefManager, Error, candidates, decode_entries, index_controllers,
};
use mizzen_sdk::dynamic::DeleteOptions;
use mizzen_sdk::informer::Informer;
use mizzen_sdk::resource::CONTROLLER_REVISIONS;
use mizzen_sdk::write::{is_already_exists, is_not_found};
use mizzen_sdk::{Object, ResourceType};

use crate::common::template::controller_reference;

/// The ControllerRevisions of all owners.
pub(crate) struct ControllerHistory {
    context: Context,
    pub revisions: Informer<Object>,
}

impl ControllerHistory {
    pub(crate) fn new(context: &Context) -> ControllerHistory {
        let revisions = context.informer(&CONTROLLER_REVISIONS);
        index_controllers(&revisions);
        ControllerHistory {
            context: context.clone(),
            revisions,
        }
    }

    /// The owner's revisions, sorted. Orphans that match its selector are adopted; revisions that
    /// do not match are ignored.
    pub(crate) async fn claim_revisions(
        &self,
        owner: &Object,
        kind: &ResourceType,
    ) -> Result<Vec<Arc<Object>>, Error> {
        let selector = LabelSelector::from_value(&owner["spec"]["selector"]).unwrap_or_default();
        let mut found = decode_entries(candidates(&self.revisions, owner))?;
        found.retain(|revision| selector.matches(|label| revision.label(label)));
        found.sort_by_key(|revision| revision::sort_key(revision));
        ControllerRefManager::new(&self.context.api, (owner, kind), &CONTROLLER_REVISIONS)
            .claim(found, |_| true)
            .await
    }

    /// Creates a revision of the owner's template, named by its hash. If another revision has that
    /// name, the next hash is tried. Returns the collision count too.
    pub(crate) async fn create_revision(
        &self,
        owner: &Object,
        kind: &ResourceType,
        number: i64,
        mut n_collisions: i64,
    ) -> Result<(Object, i64), Error> {
        let patch = revision::template_patch(owner);
        let hash = revision::hash(&patch, n_collisions);
        let name = revision::name(owner.name(), &hash);
        let reference = controller_reference(owner, kind);
        // Kubernetes: the label keeps the first hash, whatever the name becomes
        // (controller_history.go).
        let mut draft = revision::new_revision(
            owner,
            reference,
            &name,
            (revision::HASH_LABEL, &hash),
            number,
        );
        loop {
            match self.context.api.create(&CONTROLLER_REVISIONS, &draft).await {
                Err(error) if is_already_exists(&error) => {}
                outcome => return Ok((outcome?, n_collisions)),
            }
            let api = &self.context.api;
            let known = api.get(&CONTROLLER_REVISIONS, &draft.key()).await?;
            if known["data"] == patch {
                return Ok((known, n_collisions));
            }
            n_collisions += 1;
            let name = revision::name(owner.name(), &revision::hash(&patch, n_collisions));
            draft.entry("metadata").set("name", name);
        }
    }

    pub(crate) async fn update_revision_number(
        &self,
        revision: &Object,
        number: i64,
    ) -> Result<Object, Error> {
        let mut revision = revision.clone();
        revision.set("revision", number);
        Ok(self
            .context
            .api
            .update(&CONTROLLER_REVISIONS, &revision)
            .await?)
    }

    pub(crate) async fn delete_revisions(&self, revisions: &[Arc<Object>]) -> Result<(), Error> {
        for revision in revisions {
            let api = &self.context.api;
            let outcome = api
                .delete(
                    &CONTROLLER_REVISIONS,
                    &revision.key(),
                    &DeleteOptions::default(),
                )
                .await;
            if let Some(error) = outcome.err().filter(|error| !is_not_found(error)) {
                return Err(error.into());
            }
        }
        Ok(())
    }
}
