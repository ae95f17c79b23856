//! attemptToDelete: decides for one object on its live state and that of its owners.

use mizzen_sdk::Object;

use super::GarbageCollector;
use super::decide::{self, CollectionAction, DeletionCase, choose_action};
use super::graph::GraphItem;
use super::identity::{ObjectIdentity, Uid};
use super::live::CollectError;
use super::observed::{FOREGROUND, ORPHAN, OwnerReference, has_finalizer};

/// What is left to do for an object.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AttemptResult {
    /// Nothing until an event arrives.
    Done,
    /// Try again later: the decision is not possible yet.
    Requeue,
}

impl GarbageCollector {
    /// Deletes an object if its owners are gone.
    pub(super) async fn attempt_to_delete(&self, uid: &Uid) -> Result<AttemptResult, CollectError> {
        let Some(item) = self.graph.lock().item(uid) else {
            return Ok(AttemptResult::Done);
        };
        // It is being deleted already; its dependents are enqueued when it is gone.
        if item.deletion.is_going && !item.deletion.is_foreground {
            return Ok(AttemptResult::Done);
        }
        let Some(latest) = self.live.find(&item.identity).await? else {
            self.note_absent(&item.identity);
            return Ok(AttemptResult::Done);
        };
        if item.deletion.is_foreground {
            self.process_deleting_dependents(&item).await?;
        } else if !self.apply_owners(&item, &latest).await? {
            self.note_absent(&item.identity);
            return Ok(AttemptResult::Done);
        }
        // A virtual owner that exists may be deleted without an event, and would stay in the graph,
        // so it is tried again.
        Ok(if item.is_virtual {
            AttemptResult::Requeue
        } else {
            AttemptResult::Done
        })
    }

    /// Continues a foreground deletion: removes the finalizer once no dependent blocks it.
    async fn process_deleting_dependents(&self, item: &GraphItem) -> Result<(), CollectError> {
        let blocking = self.graph.lock().blocking(&item.identity.uid);
        if blocking.is_empty() {
            return self.live.remove_finalizer(&item.identity, FOREGROUND).await;
        }
        for dependent in blocking
            .into_iter()
            .filter(|dependent| !dependent.deletion.is_foreground)
        {
            self.to_delete.add(dependent.identity.uid);
        }
        Ok(())
    }

    /// Applies what follows from the owners; false if the object is gone.
    async fn apply_owners(&self, item: &GraphItem, latest: &Object) -> Result<bool, CollectError> {
        let GraphItem { identity, .. } = item;
        match choose_action(&self.classify_references(identity, latest).await?) {
            CollectionAction::Keep => Ok(true),
            CollectionAction::RemoveOwners(owners) => self
                .live
                .remove_owners(identity, &owners)
                .await
                .map(|()| true),
            CollectionAction::Delete(propagation) => {
                self.live.delete(identity, latest, propagation).await
            }
            CollectionAction::DeleteForeground => {
                let dependents = self.graph.lock().dependents(&identity.uid);
                if dependents
                    .iter()
                    .any(|dependent| dependent.deletion.is_foreground)
                {
                    // The owners may form a cycle in which each waits for the other.
                    let owners = self.graph.lock().blocked_owners(&identity.uid);
                    self.live.unblock_owners(identity, &owners).await?;
                    return self.delete_latest(identity).await;
                }
                self.live.delete(identity, latest, "Foreground").await
            }
        }
    }

    /// Deletes an object that was just patched.
    async fn delete_latest(&self, identity: &ObjectIdentity) -> Result<bool, CollectError> {
        let Some(latest) = self.live.find(identity).await? else {
            return Ok(false);
        };
        self.live.delete(identity, &latest, "Foreground").await
    }

    async fn classify_references(
        &self,
        identity: &ObjectIdentity,
        latest: &Object,
    ) -> Result<DeletionCase, CollectError> {
        let metadata = &latest["metadata"];
        let references = self.graph.lock().owners(latest);
        let mut owners = Vec::new();
        for reference in &references {
            owners.push((
                reference.uid.clone(),
                self.owner_state(identity, reference).await?,
            ));
        }
        Ok(DeletionCase {
            owners,
            has_dependents: !self.graph.lock().dependents(&identity.uid).is_empty(),
            is_foreground: has_finalizer(metadata, FOREGROUND),
            is_orphaning: has_finalizer(metadata, ORPHAN),
        })
    }

    /// The state of an owner.
    async fn owner_state(
        &self,
        dependent: &ObjectIdentity,
        reference: &OwnerReference,
    ) -> Result<decide::OwnerState, CollectError> {
        let beside = reference.identity(dependent.namespace.clone());
        let above = ObjectIdentity {
            namespace: "".into(),
            ..beside.clone()
        };
        if self.is_absent(&above) || self.is_absent(&beside) {
            return Ok(decide::OwnerState::Dangling);
        }
        let is_namespaced = self.live.is_namespaced(&beside)?;
        match self.live.find(&beside).await? {
            None => {
                self.graph
                    .lock()
                    .note_absent(if is_namespaced { beside } else { above });
                Ok(decide::OwnerState::Dangling)
            }
            Some(owner)
                if owner.is_terminating() && has_finalizer(&owner["metadata"], FOREGROUND) =>
            {
                Ok(decide::OwnerState::WaitingForDependentsDeletion)
            }
            Some(_) => Ok(decide::OwnerState::Solid),
        }
    }

    fn is_absent(&self, identity: &ObjectIdentity) -> bool {
        self.graph.lock().is_absent(identity)
    }

    fn note_absent(&self, identity: &ObjectIdentity) {
        let effects = self.graph.lock().on_absent(identity);
        self.enqueue_effects(effects);
    }
}
