//! Live objects of any kind: reads, deletes and patches on the server.

use std::sync::Arc;

use mizzen_sdk::dynamic::{DeleteOptions, DynamicClient, ListOptions, PatchType};
use mizzen_sdk::write::{is_conflict, is_not_found, retry};
use mizzen_sdk::{Key, Object, ResourceType};
use mizzen_value::{Value, value};

use super::identity::{KindName, ObjectIdentity, Uid};
use crate::metadata_informers::MetadataInformers;

/// Why an object could not be processed.
#[derive(Debug, thiserror::Error)]
pub(super) enum CollectError {
    /// Discovery has no such kind, or not yet.
    #[error("unable to get REST mapping for {0}.")]
    UnknownKind(String),
    /// The kind is namespaced, and the reference comes from a cluster-scoped object.
    #[error("cluster-scoped objects cannot refer to namespaced owners")]
    Misplaced,
    #[error(transparent)]
    Api(#[from] kube::Error),
}

/// The API for objects of any kind. Reads return metadata only.
#[derive(Clone)]
pub(super) struct LiveObjects {
    api: DynamicClient,
    metadata_informers: MetadataInformers,
}

impl LiveObjects {
    /// `metadata_informers` maps kinds to resources.
    pub(super) fn new(api: &DynamicClient, metadata_informers: &MetadataInformers) -> LiveObjects {
        LiveObjects {
            api: api.metadata_only(),
            metadata_informers: metadata_informers.clone(),
        }
    }

    /// The resource and key of an object.
    fn rest_mapping(&self, identity: &ObjectIdentity) -> Result<(ResourceType, Key), CollectError> {
        let (version, kind) = (&identity.kind.api_version, &identity.kind.kind);
        let served = self.metadata_informers.discovered();
        let resource = served.find(version, kind).cloned();
        let resource =
            resource.ok_or_else(|| CollectError::UnknownKind(format!("{version}/{kind}")))?;
        match (resource.namespaced, &*identity.namespace) {
            (true, "") => Err(CollectError::Misplaced),
            (true, namespace) => Ok((resource, Key::new(namespace, identity.name.clone()))),
            (false, _) => Ok((resource, Key::cluster(identity.name.clone()))),
        }
    }

    /// Whether the kind is namespaced.
    pub(super) fn is_namespaced(&self, identity: &ObjectIdentity) -> Result<bool, CollectError> {
        self.rest_mapping(identity)
            .map(|(resource, _)| resource.namespaced)
    }

    /// Reads an object; none if it does not exist or has another uid.
    pub(super) async fn find(
        &self,
        identity: &ObjectIdentity,
    ) -> Result<Option<Object>, CollectError> {
        let (resource, key) = self.rest_mapping(identity)?;
        let found = self.api.find(&resource, &key).await?;
        Ok(found.filter(|object| Uid::from(object.uid()) == identity.uid))
    }

    /// Deletes an object if its owners are still those of `latest`; false if it does not exist.
    pub(super) async fn delete(
        &self,
        identity: &ObjectIdentity,
        latest: &Object,
        propagation: &str,
    ) -> Result<bool, CollectError> {
        match self
            .try_delete(identity, Some(latest.version()), propagation)
            .await
        {
            Err(CollectError::Api(error)) if is_conflict(&error) => {
                let Some(live) = self.find(identity).await? else {
                    return Ok(false);
                };
                if live.version() == latest.version() || live.owners() != latest.owners() {
                    return Err(error.into());
                }
                // It keeps changing, but not in its owners, so the resourceVersion precondition is
                // dropped.
                self.try_delete(identity, None, propagation).await
            }
            outcome => outcome,
        }
    }

    async fn try_delete(
        &self,
        identity: &ObjectIdentity,
        version: Option<&str>,
        propagation: &str,
    ) -> Result<bool, CollectError> {
        let (resource, key) = self.rest_mapping(identity)?;
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

    /// Removes owner references.
    pub(super) async fn remove_owners(
        &self,
        identity: &ObjectIdentity,
        owners: &[Uid],
    ) -> Result<(), CollectError> {
        let gone = |owner: &Uid| value!({ "$patch": "delete", "uid": (owner.to_string()) });
        let stays = |reference: &Value| !owners.contains(&Uid::from(reference["uid"].str()));
        self.change_owners(identity, owners.iter().map(gone).collect(), |references| {
            references.retain(stays)
        })
        .await
    }

    /// Sets blockOwnerDeletion to false on owner references.
    pub(super) async fn unblock_owners(
        &self,
        identity: &ObjectIdentity,
        owners: &[Uid],
    ) -> Result<(), CollectError> {
        let free =
            |owner: &Uid| value!({ "uid": (owner.to_string()), "blockOwnerDeletion": false });
        self.change_owners(identity, owners.iter().map(free).collect(), |references| {
            references
                .iter_mut()
                .for_each(|reference| reference.set("blockOwnerDeletion", false));
        })
        .await
    }

    /// Changes owner references by a strategic merge patch or, for kinds without such patches, by a
    /// JSON merge patch.
    async fn change_owners(
        &self,
        identity: &ObjectIdentity,
        patches: Vec<Value>,
        change: impl FnOnce(&mut Vec<Value>),
    ) -> Result<(), CollectError> {
        let (resource, key) = self.rest_mapping(identity)?;
        // The uid in the patch is a precondition.
        let uid = identity.uid.to_string();
        let patch = value!({ "metadata": { "uid": uid, "ownerReferences": patches } });
        match self
            .api
            .patch(&resource, &key, "", PatchType::Strategic, &patch)
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
            .patch(&resource, &key, "", PatchType::Merge, &patch)
            .await
            .map(drop)?)
    }

    /// All dependents of an owner, read from the server.
    pub(super) async fn dependents(
        &self,
        owner: &ObjectIdentity,
    ) -> Result<Vec<ObjectIdentity>, CollectError> {
        let served = self.metadata_informers.discovered();
        let mut found = Vec::new();
        for kind in served.preferred(&["list", "patch"]) {
            // A namespaced owner has dependents in its namespace only.
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

    pub(super) async fn remove_finalizer(
        &self,
        identity: &ObjectIdentity,
        finalizer: &str,
    ) -> Result<(), CollectError> {
        let (resource, key) = self.rest_mapping(identity)?;
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
                .patch(&resource, &key, "", PatchType::Merge, &patch)
                .await
                .map(drop)
        });
        match outcome.await {
            Err(error) if is_not_found(&error) => Ok(()),
            outcome => Ok(outcome?),
        }
    }
}

fn identity(resource: &ResourceType, object: &Object) -> ObjectIdentity {
    let kind = KindName {
        kind: (&*resource.kind).into(),
        api_version: resource.api_version().into(),
    };
    ObjectIdentity {
        kind: Arc::new(kind),
        namespace: object.namespace().into(),
        name: object.name().into(),
        uid: object.uid().into(),
    }
}
