//! The controller reference manager: claims objects for their controller.
//!
//! Orphans that match are adopted, and controlled objects that no longer match are released.
//!
//! Invariant: an owner that is being deleted adopts nothing. The cache may be stale, so the owner
//! is read from the server before the first adoption.
//!
//! Built-in kinds get a strategic merge patch, which merges owner references by uid. Custom kinds
//! have none (the server answers 415): their metadata is read and written back with a merge patch
//! that has the resourceVersion as its precondition.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mizzen_value::{Value, value};
use serde::de::DeserializeOwned;

use super::Error;
use super::controller_index::{candidates, decode_entries};
use crate::accessor::Accessor;
use crate::dynamic::{DynamicClient, PatchType};
use crate::informer::Informer;
use crate::object::Object;
use crate::resource::ResourceType;
use crate::write::{is_conflict, is_invalid, is_not_found, is_unsupported_media_type};

/// How often a merge patch that conflicts is tried again.
const TRIES: usize = 5;

/// Claims objects of a kind, built-in or custom, for an owner.
///
/// ```
/// # use mizzen_apiserver::User;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
/// # let api = mizzen_sdk::dynamic::DynamicClient::new(client.clone());
/// # for name in ["owner", "part"] {
/// #     let text = format!(r#"{{"metadata":{{"name":"{name}","namespace":"default","labels":{{"of":"{name}"}}}}}}"#);
/// #     let config = mizzen_sdk::Object::parse(text.as_bytes())?;
/// #     api.create(&mizzen_sdk::resource::CONFIG_MAPS, &config).await?;
/// # }
/// use mizzen_sdk::Key;
/// use mizzen_sdk::controller::{Context, ControllerRefManager, index_controllers};
/// use mizzen_sdk::resource::CONFIG_MAPS;
///
/// let context = Context::new(client);
/// let configs = context.informer(&CONFIG_MAPS);
/// index_controllers(&configs);
/// configs.start();
/// configs.wait_for_sync().await;
/// let owner = configs.lister().by_key(&Key::new("default", "owner"))?.expect("it was created");
/// let claimed = ControllerRefManager::new(&context.api, (&*owner, &CONFIG_MAPS), &CONFIG_MAPS)
///     .claim_candidates(&configs, |config| config.label("of") == Some("part"))
///     .await?;
/// assert_eq!(claimed[0].name(), "part");
/// let adopted = context.api.get(&CONFIG_MAPS, &Key::new("default", "part")).await?;
/// assert!(adopted.is_controlled_by(owner.uid()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ControllerRefManager<'a, O> {
    api: &'a DynamicClient,
    owner: &'a O,
    owner_kind: &'a ResourceType,
    kind: &'a ResourceType,
    finalizers: &'a [&'a str],
    /// Whether the server has refused a strategic merge patch of the kind.
    merges_only: AtomicBool,
}

/// What to do with an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClaimAction {
    Keep,
    Ignore,
    Adopt,
    Release,
}

impl<'a, O: Accessor> ControllerRefManager<'a, O> {
    /// Claims objects of `kind` for `owner`, which is from the cache.
    pub fn new(
        api: &'a DynamicClient,
        (owner, owner_kind): (&'a O, &'a ResourceType),
        kind: &'a ResourceType,
    ) -> ControllerRefManager<'a, O> {
        ControllerRefManager {
            api,
            owner,
            owner_kind,
            kind,
            finalizers: &[],
            merges_only: AtomicBool::new(false),
        }
    }

    /// Adds finalizers to adopted objects, and removes them from released ones.
    ///
    /// ```
    /// # use mizzen_apiserver::User;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
    /// # let api = mizzen_sdk::dynamic::DynamicClient::new(client.clone());
    /// # let parse = |name: &str| mizzen_sdk::Object::parse(format!(r#"{{"metadata":{{"name":"{name}","namespace":"default"}}}}"#).as_bytes());
    /// # let owner = api.create(&mizzen_sdk::resource::CONFIG_MAPS, &parse("owner")?.0).await?;
    /// # let part = api.create(&mizzen_sdk::resource::CONFIG_MAPS, &parse("part")?.0).await?;
    /// use std::sync::Arc;
    /// use mizzen_sdk::controller::ControllerRefManager;
    /// use mizzen_sdk::resource::CONFIG_MAPS;
    ///
    /// let claimed = ControllerRefManager::new(&api, (&owner, &CONFIG_MAPS), &CONFIG_MAPS)
    ///     .with_finalizers(&["example.com/tracked"])
    ///     .claim(vec![Arc::new(part)], |part| part.name() == "part")
    ///     .await?;
    /// let adopted = api.get(&CONFIG_MAPS, &claimed[0].key()).await?;
    /// assert!(adopted.has_finalizer("example.com/tracked"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_finalizers(self, finalizers: &'a [&'a str]) -> ControllerRefManager<'a, O> {
        ControllerRefManager { finalizers, ..self }
    }

    /// Claims among the objects that the owner controls or may adopt.
    /// [`index_controllers`](super::index_controllers) must have been called.
    pub async fn claim_candidates<T>(
        &self,
        informer: &Informer<T>,
        matches: impl Fn(&T) -> bool,
    ) -> Result<Vec<Arc<T>>, Error>
    where
        T: Accessor + DeserializeOwned + 'static,
    {
        let candidates = decode_entries(candidates(informer, self.owner))?;
        self.claim(candidates, matches).await
    }

    /// The objects that the owner controls afterwards, in their order. All objects are tried before
    /// the first error is returned.
    ///
    /// ```
    /// # use mizzen_apiserver::User;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
    /// # let api = mizzen_sdk::dynamic::DynamicClient::new(client.clone());
    /// # let parse = |name: &str| mizzen_sdk::Object::parse(format!(r#"{{"metadata":{{"name":"{name}","namespace":"default"}}}}"#).as_bytes());
    /// # let owner = api.create(&mizzen_sdk::resource::CONFIG_MAPS, &parse("owner")?.0).await?;
    /// # let part = api.create(&mizzen_sdk::resource::CONFIG_MAPS, &parse("part")?.0).await?;
    /// use std::sync::Arc;
    /// use mizzen_sdk::controller::ControllerRefManager;
    /// use mizzen_sdk::resource::CONFIG_MAPS;
    ///
    /// let claimed = ControllerRefManager::new(&api, (&owner, &CONFIG_MAPS), &CONFIG_MAPS)
    ///     .claim(vec![Arc::new(part)], |part| part.name() == "part")
    ///     .await?;
    /// let adopted = api.get(&CONFIG_MAPS, &claimed[0].key()).await?;
    /// assert!(adopted.is_controlled_by(owner.uid()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn claim<T: Accessor>(
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
        object: &impl Accessor,
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
        let fresh = self.api.get(self.owner_kind, &key).await;
        let fresh = fresh.map_err(|error| format!("can't recheck DeletionTimestamp: {error}"))?;
        if fresh.uid() != self.owner.uid() {
            return Err(format!("original {} {key} is gone", self.owner_kind.kind));
        }
        match fresh["metadata"]["deletionTimestamp"].str() {
            "" => Ok(()),
            time => Err(format!("{key} has just been deleted at {time}")),
        }
    }

    fn adoption_error(&self, object: &impl Accessor, reason: &str) -> Error {
        let (kind, key, uid) = (&self.kind.kind, object.key(), object.uid());
        Error::other(format!("can't adopt {kind} {key} ({uid}): {reason}"))
    }

    /// Adopts an object; false if it does not exist any more. The uid in the patch is a
    /// precondition.
    async fn adopt(&self, object: &impl Accessor) -> Result<bool, Error> {
        let owners = vec![self.controller_reference()];
        let mut metadata = value!({"uid": (object.uid()), "ownerReferences": owners});
        if !self.finalizers.is_empty() {
            metadata.set("finalizers", to_values(self.finalizers));
        }
        match self.patch_strategically(object, metadata).await {
            Some(Ok(_)) => Ok(true),
            Some(Err(error)) if is_not_found(&error) => Ok(false),
            Some(Err(error)) => Err(error.into()),
            None => self.merge(object, ClaimAction::Adopt).await,
        }
    }

    /// Kubernetes: an object that is gone, has no owner any more, or is a new one of the same name
    /// (the patch is invalid) needs no release (controller_ref_manager.go, ReleasePod).
    async fn release(&self, object: &impl Accessor) -> Result<(), Error> {
        let owner = value!({"$patch": "delete", "uid": (self.owner.uid())});
        let mut metadata = value!({"uid": (object.uid()), "ownerReferences": [owner]});
        if !self.finalizers.is_empty() {
            metadata.set(
                "$deleteFromPrimitiveList/finalizers",
                to_values(self.finalizers),
            );
        }
        match self.patch_strategically(object, metadata).await {
            Some(Err(error)) if !is_not_found(&error) && !is_invalid(&error) => Err(error.into()),
            Some(_) => Ok(()),
            None => self.merge(object, ClaimAction::Release).await.map(drop),
        }
    }

    /// `None` if the kind has no strategic merge patch.
    async fn patch_strategically(
        &self,
        object: &impl Accessor,
        metadata: Value,
    ) -> Option<Result<Object, kube::Error>> {
        if self.merges_only.load(Ordering::Relaxed) {
            return None;
        }
        let outcome = self.patch(object, PatchType::Strategic, metadata).await;
        if matches!(&outcome, Err(error) if is_unsupported_media_type(error)) {
            self.merges_only.store(true, Ordering::Relaxed);
            return None;
        }
        Some(outcome)
    }

    /// Adopts or releases an object of a kind without strategic merge patch. A merge patch replaces
    /// lists, so they are those of the server. Returns whether the owner controls the object then.
    async fn merge(&self, object: &impl Accessor, action: ClaimAction) -> Result<bool, Error> {
        let (api, owner_uid) = (self.api.metadata_only(), self.owner.uid());
        let mut tries = 0;
        loop {
            let current = api.find(self.kind, &object.key()).await?;
            let Some(current) = current.filter(|current| current.uid() == object.uid()) else {
                return Ok(false);
            };
            // Another client may have changed the owners since.
            let matches = action == ClaimAction::Adopt;
            match claim_action(self.owner, &current, matches) {
                current_action if current_action == action => {}
                current_action => return Ok(current_action == ClaimAction::Keep),
            }
            let others = current.owners().iter();
            let others = others.filter(|owner| owner["uid"].str() != owner_uid);
            let finalizers = current["metadata"]["finalizers"].list().iter();
            let finalizers = finalizers.filter(|known| !self.finalizers.contains(&known.str()));
            let mut owners: Vec<Value> = others.cloned().collect();
            let mut finalizers: Vec<Value> = finalizers.cloned().collect();
            if action == ClaimAction::Adopt {
                owners.push(self.controller_reference());
                finalizers.extend(to_values(self.finalizers));
            }
            let metadata = value!({
                "uid": (current.uid()),
                "resourceVersion": (current.version()),
                "ownerReferences": owners,
                "finalizers": finalizers,
            });
            tries += 1;
            match self.patch(object, PatchType::Merge, metadata).await {
                Ok(_) => return Ok(action == ClaimAction::Adopt),
                Err(error) if is_not_found(&error) => return Ok(false),
                Err(error) if is_conflict(&error) && tries < TRIES => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn controller_reference(&self) -> Value {
        value!({
            "apiVersion": (self.owner_kind.api_version()),
            "kind": (&*self.owner_kind.kind),
            "name": (self.owner.key().name()),
            "uid": (self.owner.uid()),
            "controller": true,
            "blockOwnerDeletion": true,
        })
    }

    async fn patch(
        &self,
        object: &impl Accessor,
        how: PatchType<'_>,
        metadata: Value,
    ) -> Result<Object, kube::Error> {
        let change = value!({"metadata": metadata});
        self.api
            .patch(self.kind, &object.key(), "", how, &change)
            .await
    }
}

fn to_values(texts: &[&str]) -> Vec<Value> {
    texts.iter().map(|text| Value::from(*text)).collect()
}

fn claim_action(owner: &impl Accessor, object: &impl Accessor, matches: bool) -> ClaimAction {
    let owner_stays = !owner.is_terminating();
    match object.controller_uid() {
        Some(uid) if uid != owner.uid() => ClaimAction::Ignore,
        Some(_) if matches => ClaimAction::Keep,
        Some(_) if owner_stays => ClaimAction::Release,
        Some(_) => ClaimAction::Ignore,
        None if matches
            && owner_stays
            && !object.is_terminating()
            && object.key().namespace() == owner.key().namespace() =>
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
