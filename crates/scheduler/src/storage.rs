//! PersistentVolumes, claims and storage classes, and what is assumed of them until the API has it.

use std::sync::Arc;

use mizzen_sdk::{Key, Object};
use mizzen_value::Str;

use crate::HashMap;
use crate::model::{Labels, NodeRule};

/// The node that was selected for a claim, for its provisioner.
pub(crate) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// A PersistentVolume, and the nodes that it can be used on.
#[derive(Debug, Clone)]
pub(crate) struct PersistentVolume {
    pub object: Arc<Object>,
    nodes: Option<NodeRule>,
    pub labels: Labels,
}

impl PersistentVolume {
    pub(crate) fn from_object(object: Arc<Object>) -> PersistentVolume {
        let nodes = NodeRule::new(
            &mizzen_value::Value::Null,
            &object["spec"]["nodeAffinity"]["required"],
        );
        let labels = Labels::from_value(&object["metadata"]["labels"]);
        PersistentVolume {
            object,
            nodes,
            labels,
        }
    }

    /// Whether it can be used on a node with these labels.
    pub(crate) fn allows_node(&self, labels: &Labels) -> bool {
        self.nodes
            .as_ref()
            .is_none_or(|rule| rule.allows("", labels))
    }

    /// Whether it is bound to a claim, or pre-bound to it.
    pub(crate) fn is_bound_or_prebound_to(&self, claim: &Object) -> bool {
        let reference = &self.object["spec"]["claimRef"];
        let uid = reference["uid"].str();
        !reference.is_null()
            && reference["name"].str() == claim.name()
            && reference["namespace"].str() == claim.namespace()
            && (uid.is_empty() || uid == claim.uid())
    }
}

/// The objects of storage.
#[derive(Debug, Default)]
pub(crate) struct StorageState {
    claims: HashMap<Key, Arc<Object>>,
    volumes: HashMap<Str, Arc<PersistentVolume>>,
    pub classes: HashMap<Str, Arc<Object>>,
    pub csi_nodes: HashMap<Str, Arc<Object>>,
    pub csi_drivers: HashMap<Str, Arc<Object>>,
    pub capacities: HashMap<Key, Arc<Object>>,
    pub attachments: HashMap<Str, Arc<Object>>,
    /// Claims with an assumed selected node.
    assumed_claims: HashMap<Key, Arc<Object>>,
    /// Volumes with an assumed claimRef.
    assumed_volumes: HashMap<Str, Arc<PersistentVolume>>,
}

impl StorageState {
    pub(crate) fn claim(&self, namespace: &str, name: &str) -> Option<&Arc<Object>> {
        let key = Key::new(namespace, name);
        self.assumed_claims
            .get(&key)
            .or_else(|| self.claims.get(&key))
    }

    pub(crate) fn volume(&self, name: &str) -> Option<&Arc<PersistentVolume>> {
        self.assumed_volumes
            .get(name)
            .or_else(|| self.volumes.get(name))
    }

    /// All volumes of a class, by name.
    pub(crate) fn volumes_of_class(&self, class: &str) -> Vec<Arc<PersistentVolume>> {
        let assumed = |name: &Str, volume| self.assumed_volumes.get(name).unwrap_or(volume).clone();
        let volumes = self
            .volumes
            .iter()
            .map(|(name, volume)| assumed(name, volume));
        let mut volumes: Vec<_> = volumes
            .filter(|volume| volume.object["spec"]["storageClassName"].str() == class)
            .collect();
        volumes.sort_by(|a, b| a.object.name().cmp(b.object.name()));
        volumes
    }

    /// Sets or removes a claim. Returns the old one.
    pub(crate) fn set_claim(
        &mut self,
        key: &Key,
        claim: Option<Arc<Object>>,
    ) -> Option<Arc<Object>> {
        let newer = |assumed: &Arc<Object>| {
            claim
                .as_ref()
                .is_none_or(|claim| claim.version() != assumed.version())
        };
        if self.assumed_claims.get(key).is_some_and(newer) {
            self.assumed_claims.remove(key);
        }
        match claim {
            Some(claim) => self.claims.insert(key.clone(), claim),
            None => self.claims.remove(key),
        }
    }

    /// Sets or removes a volume. Returns the old one.
    pub(crate) fn set_volume(
        &mut self,
        name: &str,
        volume: Option<Arc<Object>>,
    ) -> Option<Arc<Object>> {
        let newer = |assumed: &Arc<PersistentVolume>| {
            volume
                .as_ref()
                .is_none_or(|volume| volume.version() != assumed.object.version())
        };
        if self.assumed_volumes.get(name).is_some_and(newer) {
            self.assumed_volumes.remove(name);
        }
        let old = match volume {
            Some(volume) => self
                .volumes
                .insert(name.into(), Arc::new(PersistentVolume::from_object(volume))),
            None => self.volumes.remove(name),
        };
        old.map(|old| old.object.clone())
    }

    /// Assumes a claim until the API has its next version.
    pub(crate) fn assume_claim(&mut self, claim: Arc<Object>) {
        self.assumed_claims.insert(claim.key(), claim);
    }

    /// Assumes a volume until the API has its next version.
    pub(crate) fn assume_volume(&mut self, volume: Arc<Object>) {
        self.assumed_volumes.insert(
            volume.name().into(),
            Arc::new(PersistentVolume::from_object(volume)),
        );
    }

    pub(crate) fn forget_claim(&mut self, key: &Key) {
        self.assumed_claims.remove(key);
    }

    pub(crate) fn forget_volume(&mut self, name: &str) {
        self.assumed_volumes.remove(name);
    }
}

/// The storage class of a claim; empty if it has none.
pub(crate) fn storage_class(claim: &Object) -> &str {
    claim
        .annotation(BETA_CLASS)
        .unwrap_or_else(|| claim["spec"]["storageClassName"].str())
}

/// Whether a claim is fully bound.
pub(crate) fn is_bound(claim: &Object) -> bool {
    !claim["spec"]["volumeName"].str().is_empty() && claim.annotation(BIND_COMPLETED).is_some()
}
