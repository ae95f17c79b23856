//! Which revisions has an object had? They are kept as ControllerRevisions: found again, numbered, adopted, forgotten.

pub(crate) mod limit;
pub(crate) mod revision;

use std::sync::Arc;

use mizzen_object::select::LabelSelector;
use mizzen_sdk::api::DeleteOptions;
use mizzen_sdk::informer::Informer;
use mizzen_sdk::resource::CONTROLLER_REVISIONS;
use mizzen_sdk::write::{is_already_exists, is_not_found};
use mizzen_sdk::{Object, Resource};

use crate::common::claim::Claim;
use crate::common::owned;
use crate::common::template::controller_reference;
use crate::{Context, Error};

/// The revisions of all objects.
pub(crate) struct History {
    context: Context,
    /// What is known of them.
    pub revisions: Informer<Object>,
}

impl History {
    /// Follows revisions.
    pub(crate) fn new(context: &Context) -> History {
        let revisions = context.follow(&CONTROLLER_REVISIONS);
        owned::index(&revisions);
        History {
            context: context.clone(),
            revisions,
        }
    }

    /// The revisions that are the owner's, in order. Orphans that match its selector are adopted; what does not match is
    /// none of its own.
    pub(crate) async fn claim(
        &self,
        owner: &Object,
        kind: &Resource,
    ) -> Result<Vec<Arc<Object>>, Error> {
        let selector = LabelSelector::of(&owner["spec"]["selector"]).unwrap_or_default();
        let mut found = owned::read(owned::candidates(&self.revisions, owner))?;
        found.retain(|revision| selector.matches(|label| revision.label(label)));
        found.sort_by_key(|revision| revision::order(revision));
        let claim = Claim {
            context: &self.context,
            owner,
            owner_kind: kind,
            kind: &CONTROLLER_REVISIONS,
            finalizers: &[],
        };
        claim.claim(found, |_| true).await
    }

    /// Makes a revision of the owner as it is now, named by its hash. Another revision of that name is a collision, and
    /// the next hash is tried. Returns how many collisions there were by then, too.
    pub(crate) async fn create(
        &self,
        owner: &Object,
        kind: &Resource,
        number: i64,
        mut n_collisions: i64,
    ) -> Result<(Object, i64), Error> {
        let patch = revision::patch(owner);
        let hash = revision::hash(&patch, n_collisions);
        let name = revision::name(owner.name(), &hash);
        let reference = controller_reference(owner, kind);
        // Kubernetes: the label keeps the first hash, whatever the name becomes (controller_history.go).
        let mut draft = revision::draft(
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
            let known = self
                .context
                .api
                .get(&CONTROLLER_REVISIONS, &draft.key())
                .await?;
            if known["data"] == patch {
                return Ok((known, n_collisions));
            }
            n_collisions += 1;
            let name = revision::name(owner.name(), &revision::hash(&patch, n_collisions));
            draft.entry("metadata").set("name", name);
        }
    }

    /// Gives a revision another number.
    pub(crate) async fn renumber(&self, revision: &Object, number: i64) -> Result<Object, Error> {
        let mut revision = revision.clone();
        revision.set("revision", number);
        Ok(self
            .context
            .api
            .update(&CONTROLLER_REVISIONS, &revision)
            .await?)
    }

    /// Forgets revisions.
    pub(crate) async fn forget(&self, revisions: &[Arc<Object>]) -> Result<(), Error> {
        for revision in revisions {
            let outcome = self
                .context
                .api
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
