//! Which objects are mine? Those that say so and match; orphans that match are adopted, and what no longer matches is let
//! go.
//!
//! Invariant: an owner that is being deleted adopts nothing. Since a cache may not know yet, the owner is looked up once
//! more before the first adoption.

use std::sync::Arc;

use mizzen_sdk::api::Patch;
use mizzen_sdk::write::is_not_found;
use mizzen_sdk::{Key, Object, Resource};
use mizzen_value::{Value, value};

use super::failure::is_invalid;
use super::template::controller_reference;
use crate::{Context, Error};

/// Something that can have an owner.
pub(crate) trait Claimable: Sync {
    /// Its namespace and name.
    fn key(&self) -> Key;
    /// What tells it from an earlier object of the same name.
    fn uid(&self) -> &str;
    /// The uid of the one that controls it.
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
        Object::is_going(self)
    }
}

impl<T: Claimable + Send> Claimable for Arc<T> {
    fn key(&self) -> Key {
        T::key(self)
    }

    fn uid(&self) -> &str {
        T::uid(self)
    }

    fn controller(&self) -> Option<&str> {
        T::controller(self)
    }

    fn is_going(&self) -> bool {
        T::is_going(self)
    }
}

/// Somebody who claims objects.
pub(crate) struct Claim<'a> {
    /// The loop that acts.
    pub context: &'a Context,
    /// Who claims, as the cache knows it.
    pub owner: &'a Object,
    /// The owner's kind.
    pub owner_kind: &'a Resource,
    /// The kind of what is claimed.
    pub kind: &'a Resource,
    /// Finalizers that an adopted object gets, and a released one loses.
    pub finalizers: &'a [&'a str],
}

/// What becomes of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Mine,
    NotMine,
    Adopt,
    Release,
}

impl Claim<'_> {
    /// Those of `objects` that are the owner's in the end, in their order. All are tried before the first failure is
    /// returned.
    pub(crate) async fn claim<T: Claimable>(
        &self,
        objects: Vec<T>,
        matches: impl Fn(&T) -> bool,
    ) -> Result<Vec<T>, Error> {
        let (mut mine, mut may_adopt, mut failure) = (Vec::new(), None, None);
        for object in objects {
            let verdict = decide(self.owner, &object, matches(&object));
            match self.carry_out(verdict, &object, &mut may_adopt).await {
                Ok(true) => mine.push(object),
                Ok(false) => {}
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        failure.map_or(Ok(mine), Err)
    }

    async fn carry_out(
        &self,
        verdict: Verdict,
        object: &impl Claimable,
        may_adopt: &mut Option<Result<(), String>>,
    ) -> Result<bool, Error> {
        match verdict {
            Verdict::Mine => Ok(true),
            Verdict::NotMine => Ok(false),
            Verdict::Release => self.release(object).await.map(|()| false),
            Verdict::Adopt => {
                let allowed = match may_adopt {
                    Some(known) => known,
                    None => may_adopt.insert(self.look_again().await),
                };
                match allowed {
                    Ok(()) => self.adopt(object).await,
                    Err(reason) => Err(self.refusal(object, reason)),
                }
            }
        }
    }

    /// Whether the owner is still there, and stays.
    async fn look_again(&self) -> Result<(), String> {
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

    fn refusal(&self, object: &impl Claimable, reason: &str) -> Error {
        let (kind, key, uid) = (&self.kind.kind, object.key(), object.uid());
        Error::Other(format!("can't adopt {kind} {key} ({uid}): {reason}"))
    }

    /// Whether the object is still there to be adopted. The uid says which object is meant.
    async fn adopt(&self, object: &impl Claimable) -> Result<bool, Error> {
        let owners = vec![controller_reference(self.owner, self.owner_kind)];
        let mut metadata = value!({"uid": (object.uid()), "ownerReferences": owners});
        if !self.finalizers.is_empty() {
            metadata.set("finalizers", texts(self.finalizers));
        }
        match self.patch(object, metadata).await {
            Ok(_) => Ok(true),
            Err(error) if is_not_found(&error) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Kubernetes: an object that is gone, or has no owner any more, or is another by now (a refusal as invalid), needs
    /// no release (controller_ref_manager.go, ReleasePod).
    async fn release(&self, object: &impl Claimable) -> Result<(), Error> {
        let owner = value!({"$patch": "delete", "uid": (self.owner.uid())});
        let mut metadata = value!({"uid": (object.uid()), "ownerReferences": [owner]});
        if !self.finalizers.is_empty() {
            metadata.set(
                "$deleteFromPrimitiveList/finalizers",
                texts(self.finalizers),
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

fn texts(texts: &[&str]) -> Vec<Value> {
    texts.iter().map(|text| Value::from(*text)).collect()
}

fn decide(owner: &Object, object: &impl Claimable, matches: bool) -> Verdict {
    let owner_stays = !owner.is_going();
    match object.controller() {
        Some(uid) if uid != owner.uid() => Verdict::NotMine,
        Some(_) if matches => Verdict::Mine,
        Some(_) if owner_stays => Verdict::Release,
        Some(_) => Verdict::NotMine,
        None if matches
            && owner_stays
            && !object.is_going()
            && object.key().namespace() == owner.namespace() =>
        {
            Verdict::Adopt
        }
        None => Verdict::NotMine,
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
    fn what_is_mine_and_matches_stays_mine_even_if_i_go() {
        for going in [false, true] {
            assert_eq!(
                decide(&owner(going), &object(Some("me"), going), true),
                Verdict::Mine
            );
        }
    }

    #[test]
    fn what_no_longer_matches_is_let_go_unless_i_go() {
        assert_eq!(
            decide(&owner(false), &object(Some("me"), false), false),
            Verdict::Release
        );
        assert_eq!(
            decide(&owner(true), &object(Some("me"), false), false),
            Verdict::NotMine
        );
    }

    #[test]
    fn what_is_anothers_is_left_alone() {
        assert_eq!(
            decide(&owner(false), &object(Some("you"), false), true),
            Verdict::NotMine
        );
    }

    #[test]
    fn orphans_that_match_are_adopted_unless_somebody_goes() {
        assert_eq!(
            decide(&owner(false), &object(None, false), true),
            Verdict::Adopt
        );
        assert_eq!(
            decide(&owner(false), &object(None, false), false),
            Verdict::NotMine
        );
        assert_eq!(
            decide(&owner(true), &object(None, false), true),
            Verdict::NotMine
        );
        assert_eq!(
            decide(&owner(false), &object(None, true), true),
            Verdict::NotMine
        );
    }

    #[test]
    fn orphans_elsewhere_are_left_alone() {
        let mut elsewhere = object(None, false);
        elsewhere.entry("metadata").set("namespace", "b");
        assert_eq!(decide(&owner(false), &elsewhere, true), Verdict::NotMine);
    }
}
