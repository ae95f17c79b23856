//! Objects as they are on the server: looked up, deleted and changed, whatever their kind.

use std::sync::Arc;

use mizzen_sdk::api::{Api, DeleteOptions, ListOptions, Patch};
use mizzen_sdk::write::{is_conflict, is_not_found, retry};
use mizzen_sdk::{Key, Object, Resource};
use mizzen_value::{Value, value};

use super::name::{Identity, KindName, Uid};
use crate::census::Census;

/// Why something could not be done.
#[derive(Debug, thiserror::Error)]
pub(super) enum Trouble {
    /// The server has no such kind, or none yet.
    #[error("unable to get REST mapping for {0}.")]
    UnknownKind(String),
    /// It cannot be looked up: its kind lives in namespaces, and what refers to it in none.
    #[error("cluster-scoped objects cannot refer to namespaced owners")]
    Misplaced,
    /// The server refused.
    #[error(transparent)]
    Api(#[from] kube::Error),
}

/// The way to objects of any kind. Of what is read there is metadata alone.
#[derive(Clone)]
pub(super) struct Live {
    api: Api,
    census: Census,
}

impl Live {
    /// Asks through `api`; `census` knows the kinds.
    pub(super) fn new(api: &Api, census: &Census) -> Live {
        Live {
            api: api.metadata_only(),
            census: census.clone(),
        }
    }

    /// Where an object is found.
    fn place(&self, identity: &Identity) -> Result<(Resource, Key), Trouble> {
        let (version, kind) = (&identity.kind.api_version, &identity.kind.kind);
        let served = self.census.served();
        let resource = served.find(version, kind).cloned();
        let resource = resource.ok_or_else(|| Trouble::UnknownKind(format!("{version}/{kind}")))?;
        match (resource.namespaced, &*identity.namespace) {
            (true, "") => Err(Trouble::Misplaced),
            (true, namespace) => Ok((resource, Key::new(namespace, identity.name.clone()))),
            (false, _) => Ok((resource, Key::cluster(identity.name.clone()))),
        }
    }

    /// Whether objects of this kind live in namespaces.
    pub(super) fn is_namespaced(&self, identity: &Identity) -> Result<bool, Trouble> {
        self.place(identity)
            .map(|(resource, _)| resource.namespaced)
    }

    /// An object, if it is there; one of the same name that came later is another.
    pub(super) async fn find(&self, identity: &Identity) -> Result<Option<Object>, Trouble> {
        let (resource, key) = self.place(identity)?;
        let found = self.api.find(&resource, &key).await?;
        Ok(found.filter(|object| Uid::from(object.uid()) == identity.uid))
    }

    /// Deletes an object that has the same owners as `latest`; false if it was not there any more.
    pub(super) async fn delete(
        &self,
        identity: &Identity,
        latest: &Object,
        propagation: &str,
    ) -> Result<bool, Trouble> {
        match self
            .try_delete(identity, Some(latest.version()), propagation)
            .await
        {
            Err(Trouble::Api(error)) if is_conflict(&error) => {
                let Some(live) = self.find(identity).await? else {
                    return Ok(false);
                };
                if live.version() == latest.version() || live.owners() != latest.owners() {
                    return Err(error.into());
                }
                // It changes all the time, but not in what matters.
                self.try_delete(identity, None, propagation).await
            }
            outcome => outcome,
        }
    }

    async fn try_delete(
        &self,
        identity: &Identity,
        version: Option<&str>,
        propagation: &str,
    ) -> Result<bool, Trouble> {
        let (resource, key) = self.place(identity)?;
        let uid = identity.uid.to_string();
        let version = version.filter(|version| !version.is_empty());
        let propagation = Some(propagation);
        let options = DeleteOptions {
            uid: Some(&uid),
            version,
            propagation,
            grace_seconds: None,
        };
        match self.api.delete(&resource, &key, &options).await {
            Err(error) if is_not_found(&error) => Ok(false),
            outcome => Ok(outcome.map(|_| true)?),
        }
    }

    /// Lets an object not belong to these owners any more.
    pub(super) async fn strip(&self, identity: &Identity, owners: &[Uid]) -> Result<(), Trouble> {
        let gone = |owner: &Uid| value!({ "$patch": "delete", "uid": (owner.to_string()) });
        let stays = |reference: &Value| !owners.contains(&Uid::from(reference["uid"].str()));
        self.change_owners(identity, owners.iter().map(gone).collect(), |references| {
            references.retain(stays)
        })
        .await
    }

    /// Lets these owners of an object go before it.
    pub(super) async fn unblock(&self, identity: &Identity, owners: &[Uid]) -> Result<(), Trouble> {
        let free =
            |owner: &Uid| value!({ "uid": (owner.to_string()), "blockOwnerDeletion": false });
        self.change_owners(identity, owners.iter().map(free).collect(), |references| {
            references
                .iter_mut()
                .for_each(|reference| reference.set("blockOwnerDeletion", false));
        })
        .await
    }

    /// Changes owner references by a patch of each or, for kinds that do not know such patches, by all of them anew.
    async fn change_owners(
        &self,
        identity: &Identity,
        patches: Vec<Value>,
        change: impl FnOnce(&mut Vec<Value>),
    ) -> Result<(), Trouble> {
        let (resource, key) = self.place(identity)?;
        // The uid is a condition.
        let uid = identity.uid.to_string();
        let patch = value!({ "metadata": { "uid": uid, "ownerReferences": patches } });
        match self
            .api
            .patch(&resource, &key, "", Patch::Strategic, &patch)
            .await
        {
            Err(kube::Error::Api(status)) if status.code == 415 => {}
            outcome => return Ok(outcome.map(drop)?),
        }
        let Some(live) = self.find(identity).await? else {
            return Ok(());
        };
        let mut references = live.owners().to_vec();
        change(&mut references);
        let patch = value!({ "metadata": { "resourceVersion": (live.version()), "ownerReferences": references } });
        Ok(self
            .api
            .patch(&resource, &key, "", Patch::Merge, &patch)
            .await
            .map(drop)?)
    }

    /// All objects that belong to an owner, as the server knows them.
    pub(super) async fn dependents(&self, owner: &Identity) -> Result<Vec<Identity>, Trouble> {
        let served = self.census.served();
        let mut found = Vec::new();
        for kind in served.preferred(&["list", "patch"]) {
            // Owners in a namespace have dependents there alone.
            if !owner.namespace.is_empty() && !kind.resource.namespaced {
                continue;
            }
            let objects = self
                .api
                .list(&kind.resource, &owner.namespace, &ListOptions::default())
                .await?;
            let belongs = |object: &&Object| {
                object
                    .owners()
                    .iter()
                    .any(|reference| Uid::from(reference["uid"].str()) == owner.uid)
            };
            found.extend(
                objects
                    .iter()
                    .filter(belongs)
                    .map(|object| identity(&kind.resource, object)),
            );
        }
        Ok(found)
    }

    /// Takes a finalizer away.
    pub(super) async fn remove_finalizer(
        &self,
        identity: &Identity,
        finalizer: &str,
    ) -> Result<(), Trouble> {
        let (resource, key) = self.place(identity)?;
        let outcome = retry(async || {
            let Some(object) = self.api.find(&resource, &key).await? else {
                return Ok(());
            };
            if Uid::from(object.uid()) != identity.uid || !object.has_finalizer(finalizer) {
                return Ok(());
            }
            let others = object["metadata"]["finalizers"]
                .list()
                .iter()
                .filter(|name| name.str() != finalizer);
            let others: Vec<Value> = others.cloned().collect();
            let patch = value!({ "metadata": { "resourceVersion": (object.version()), "finalizers": others } });
            self.api
                .patch(&resource, &key, "", Patch::Merge, &patch)
                .await
                .map(drop)
        });
        match outcome.await {
            Err(error) if is_not_found(&error) => Ok(()),
            outcome => Ok(outcome?),
        }
    }
}

fn identity(resource: &Resource, object: &Object) -> Identity {
    let kind = KindName {
        kind: (&*resource.kind).into(),
        api_version: resource.api_version().into(),
    };
    Identity {
        kind: Arc::new(kind),
        namespace: object.namespace().into(),
        name: object.name().into(),
        uid: object.uid().into(),
    }
}
