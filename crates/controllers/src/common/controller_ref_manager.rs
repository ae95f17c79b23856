//! The controller reference manager: claims objects for their controller.
//!
//! Orphans that match are adopted, and controlled objects that no longer match are released.
//!
//! Invariant: an owner that is being deleted adopts nothing. The cache may be stale, so the owner
//! is read from the server before the first adoption.

use std::sync::Arc;

use mizzen_sdk::api::Patch;
use mizzen_sdk::informer::Informer;
use mizzen_sdk::write::is_not_found;
use mizzen_sdk::{Key, Object, Resource};
use mizzen_value::{Value, value};

use super::api_errors::is_invalid;
use super::controller_index::{candidates, decode};
use super::template::controller_reference;
use crate::{ControllerContext, Error};

/// An object that can be claimed.
pub(crate) trait Claimable: Send + Sync {
    fn key(&self) -> Key;
    fn uid(&self) -> &str;
    /// The uid of its controller.
    fn controller(&self) -> Option<&str>;
    /// Whether it is being deleted.
    fn is_going(&self) -> bool;
}

impl Claimable for Object {
    fn key(&self) -> Key {
        Object::key(self)
    }

    fn uid(&self) -> &str {
        Object::uid(self)
    }

    fn controller(&self) -> Option<&str> {
        Object::controller(self).map(|owner| owner["uid"].str())
    }

    fn is_going(&self) -> bool {
        Object::is_terminating(self)
    }
}

/// Claims objects of a kind for an owner.
pub(crate) struct ControllerRefManager<'a> {
    context: &'a ControllerContext,
    owner: &'a Object,
    owner_kind: &'a Resource,
    kind: &'a Resource,
    finalizers: &'a [&'a str],
}

/// What to do with an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClaimAction {
    Keep,
    Ignore,
    Adopt,
    Release,
}

impl<'a> ControllerRefManager<'a> {
    /// Claims objects of `kind` for `owner`, which is from the cache.
    pub(crate) fn new(
        context: &'a ControllerContext,
        (owner, owner_kind): (&'a Object, &'a Resource),
        kind: &'a Resource,
    ) -> ControllerRefManager<'a> {
        ControllerRefManager {
            context,
            owner,
            owner_kind,
            kind,
            finalizers: &[],
        }
    }

    /// Adds finalizers to adopted objects, and removes them from released ones.
    pub(crate) fn with_finalizers(self, finalizers: &'a [&'a str]) -> ControllerRefManager<'a> {
        ControllerRefManager { finalizers, ..self }
    }

    /// Claims among the objects that the owner controls or may adopt.
    pub(crate) async fn claim_candidates(
        &self,
        informer: &Informer<Object>,
        matches: impl Fn(&Object) -> bool,
    ) -> Result<Vec<Arc<Object>>, Error> {
        let candidates = decode(candidates(informer, self.owner))?;
        self.claim(candidates, matches).await
    }

    /// The objects that the owner controls afterwards, in their order. All objects are tried before
    /// the first error is returned.
    pub(crate) async fn claim<T: Claimable>(
        &self,
        objects: Vec<Arc<T>>,
        matches: impl Fn(&T) -> bool,
    ) -> Result<Vec<Arc<T>>, Error> {
        let (mut claimed, mut may_adopt, mut failure) = (Vec::new(), None, None);
        for object in objects {
            let action = claim_action(self.owner, &*object, matches(&object));
            match self.apply_action(action, &*object, &mut may_adopt).await {
                Ok(true) => claimed.push(object),
                Ok(false) => {}
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        failure.map_or(Ok(claimed), Err)
    }

    async fn apply_action(
        &self,
        action: ClaimAction,
        object: &impl Claimable,
        may_adopt: &mut Option<Result<(), String>>,
    ) -> Result<bool, Error> {
        match action {
            ClaimAction::Keep => Ok(true),
            ClaimAction::Ignore => Ok(false),
            ClaimAction::Release => self.release(object).await.map(|()| false),
            ClaimAction::Adopt => {
                let allowed = match may_adopt {
                    Some(known) => known,
                    None => may_adopt.insert(self.can_adopt().await),
                };
                match allowed {
                    Ok(()) => self.adopt(object).await,
                    Err(reason) => Err(self.adoption_error(object, reason)),
                }
            }
        }
    }

    /// Rechecks on the server that the owner exists and is not being deleted.
    async fn can_adopt(&self) -> Result<(), String> {
        let key = self.owner.key();
        let fresh = self.context.api.get(self.owner_kind, &key).await;
        let fresh = fresh.map_err(|error| format!("can't recheck DeletionTimestamp: {error}"))?;
        if fresh.uid() != self.owner.uid() {
            return Err(format!("original {} {key} is gone", self.owner_kind.kind));
        }
        match fresh["metadata"]["deletionTimestamp"].str() {
            "" => Ok(()),
            time => Err(format!("{key} has just been deleted at {time}")),
        }
    }

    fn adoption_error(&self, object: &impl Claimable, reason: &str) -> Error {
        let (kind, key, uid) = (&self.kind.kind, object.key(), object.uid());
        Error::Other(format!("can't adopt {kind} {key} ({uid}): {reason}"))
    }

    /// Adopts an object; false if it does not exist any more. The uid in the patch is a
    /// precondition.
    async fn adopt(&self, object: &impl Claimable) -> Result<bool, Error> {
        let owners = vec![controller_reference(self.owner, self.owner_kind)];
        let mut metadata = value!({"uid": (object.uid()), "ownerReferences": owners});
        if !self.finalizers.is_empty() {
            metadata.set("finalizers", to_values(self.finalizers));
        }
        match self.patch(object, metadata).await {
            Ok(_) => Ok(true),
            Err(error) if is_not_found(&error) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Kubernetes: an object that is gone, has no owner any more, or is a new one of the same name
    /// (the patch is invalid) needs no release (controller_ref_manager.go, ReleasePod).
    async fn release(&self, object: &impl Claimable) -> Result<(), Error> {
        let owner = value!({"$patch": "delete", "uid": (self.owner.uid())});
        let mut metadata = value!({"uid": (object.uid()), "ownerReferences": [owner]});
        if !self.finalizers.is_empty() {
            metadata.set(
                "$deleteFromPrimitiveList/finalizers",
                to_values(self.finalizers),
            );
        }
        match self.patch(object, metadata).await {
            Err(error) if !is_not_found(&error) && !is_invalid(&error) => Err(error.into()),
            _ => Ok(()),
        }
    }

    async fn patch(&self, object: &impl Claimable, metadata: Value) -> Result<Object, kube::Error> {
        let change = value!({"metadata": metadata});
        self.context
            .api
            .patch(self.kind, &object.key(), "", Patch::Strategic, &change)
            .await
    }
}

fn to_values(texts: &[&str]) -> Vec<Value> {
    texts.iter().map(|text| Value::from(*text)).collect()
}

fn claim_action(owner: &Object, object: &impl Claimable, matches: bool) -> ClaimAction {
    let owner_stays = !owner.is_terminating();
    match object.controller() {
        Some(uid) if uid != owner.uid() => ClaimAction::Ignore,
        Some(_) if matches => ClaimAction::Keep,
        Some(_) if owner_stays => ClaimAction::Release,
        Some(_) => ClaimAction::Ignore,
        None if matches
            && owner_stays
            && !object.is_going()
            && object.key().namespace() == owner.namespace() =>
        {
            ClaimAction::Adopt
        }
        None => ClaimAction::Ignore,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(is_going: bool) -> Object {
        let deletion = is_going.then_some("2026-01-01T00:00:00Z");
        Object(
            value!({"metadata": {"name": "o", "namespace": "a", "uid": "me", "deletionTimestamp": deletion}}),
        )
    }

    fn object(controller: Option<&str>, is_going: bool) -> Object {
        let deletion = is_going.then_some("2026-01-01T00:00:00Z");
        let mut object = Object(
            value!({"metadata": {"name": "p", "namespace": "a", "uid": "p", "deletionTimestamp": deletion}}),
        );
        if let Some(uid) = controller {
            object.entry("metadata").set(
                "ownerReferences",
                value!([{"uid": uid, "controller": true}]),
            );
        }
        object
    }

    #[test]
    fn a_controlled_object_that_matches_is_kept_even_in_deletion() {
        for going in [false, true] {
            assert_eq!(
                claim_action(&owner(going), &object(Some("me"), going), true),
                ClaimAction::Keep
            );
        }
    }

    #[test]
    fn an_object_that_no_longer_matches_is_released_unless_the_owner_is_deleted() {
        assert_eq!(
            claim_action(&owner(false), &object(Some("me"), false), false),
            ClaimAction::Release
        );
        assert_eq!(
            claim_action(&owner(true), &object(Some("me"), false), false),
            ClaimAction::Ignore
        );
    }

    #[test]
    fn an_object_of_another_controller_is_ignored() {
        assert_eq!(
            claim_action(&owner(false), &object(Some("you"), false), true),
            ClaimAction::Ignore
        );
    }

    #[test]
    fn orphans_that_match_are_adopted_unless_one_is_being_deleted() {
        assert_eq!(
            claim_action(&owner(false), &object(None, false), true),
            ClaimAction::Adopt
        );
        assert_eq!(
            claim_action(&owner(false), &object(None, false), false),
            ClaimAction::Ignore
        );
        assert_eq!(
            claim_action(&owner(true), &object(None, false), true),
            ClaimAction::Ignore
        );
        assert_eq!(
            claim_action(&owner(false), &object(None, true), true),
            ClaimAction::Ignore
        );
    }

    #[test]
    fn orphans_of_other_namespaces_are_ignored() {
        let mut elsewhere = object(None, false);
        elsewhere.entry("metadata").set("namespace", "b");
        assert_eq!(
            claim_action(&owner(false), &elsewhere, true),
            ClaimAction::Ignore
        );
    }
}
