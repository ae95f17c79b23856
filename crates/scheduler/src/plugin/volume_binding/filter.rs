//! The Filter of VolumeBinding: can a pod's volumes be used on one node?

use std::sync::Arc;
use std::time::Duration;

use mizzen_object::select::LabelSelector;
use mizzen_sdk::Object;
use mizzen_value::{Str, Value, value};

use super::{PodVolumeClaims, matching, max_volume_size, requested_storage};
use crate::HashMap;
use crate::cache::NodeInfo;
use crate::cluster_state::ClusterState;
use crate::model::Labels;
use crate::plugin::{Name, NodeFilter, Reasons, Rejection, Text};
use crate::reserve::PreBindStep;
use crate::storage::{PersistentVolume, SELECTED_NODE, storage_class};

/// A pod's claims, and the volumes that they could bind.
#[derive(Clone)]
pub(super) struct VolumeBindingFilter {
    claims: Arc<PodVolumeClaims>,
    /// By storage class.
    volumes: Arc<HashMap<Str, Vec<Arc<PersistentVolume>>>>,
    /// `bindTimeoutSeconds`.
    bind_timeout: Duration,
}

/// The decisions about unbound claims on a node.
#[derive(Default)]
struct VolumeDecisions {
    bindings: Vec<(Arc<PersistentVolume>, Arc<Object>)>,
    provisions: Vec<Arc<Object>>,
}

impl VolumeBindingFilter {
    pub(super) fn new(
        claims: PodVolumeClaims,
        bind_timeout: Duration,
        cluster: &ClusterState,
    ) -> VolumeBindingFilter {
        let classes = claims.unbound.iter().map(|claim| storage_class(claim));
        let volumes = classes
            .map(|class| (class.into(), cluster.storage.volumes_of_class(class)))
            .collect();
        VolumeBindingFilter {
            claims: Arc::new(claims),
            volumes: Arc::new(volumes),
            bind_timeout,
        }
    }

    /// The decisions about the pod's claims on a node, or all reasons against it.
    fn decide(
        &self,
        node: &NodeInfo,
        cluster: &ClusterState,
    ) -> Result<VolumeDecisions, Vec<Text>> {
        let labels = &node.facts.labels;
        let mut reasons: Vec<Text> = Vec::new();
        let volumes = self
            .claims
            .bound
            .iter()
            .map(|claim| cluster.storage.volume(claim["spec"]["volumeName"].str()));
        let volumes: Option<Vec<_>> = volumes.collect();
        if volumes
            .iter()
            .flatten()
            .any(|volume| !volume.allows_node(labels))
        {
            reasons.push("node(s) didn't match PersistentVolume's node affinity".into());
        }
        let found = self.decide_unbound(node, cluster);
        reasons.extend(found.as_ref().err().map(|reason| Text::from(*reason)));
        if volumes.is_none() {
            reasons.push(
                "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)".into(),
            );
        }
        match found {
            Ok(found) if reasons.is_empty() => Ok(found),
            _ => Err(reasons),
        }
    }

    fn decide_unbound(
        &self,
        node: &NodeInfo,
        cluster: &ClusterState,
    ) -> Result<VolumeDecisions, &'static str> {
        const NOTHING: &str = "node(s) didn't find available persistent volumes to bind";
        let mut found = VolumeDecisions::default();
        let mut claims = self.claims.unbound.clone();
        claims.sort_by(|a, b| {
            requested_storage(a)
                .partial_cmp(&requested_storage(b))
                .unwrap_or(std::cmp::Ordering::Equal)
        });
        for claim in claims {
            match claim.annotation(SELECTED_NODE) {
                Some(selected) if selected != node.name() => return Err(NOTHING),
                Some(_) => found.provisions.push(claim),
                None => {
                    let taken: Vec<&str> = found
                        .bindings
                        .iter()
                        .map(|(volume, _)| volume.object.name())
                        .collect();
                    let volumes = self
                        .volumes
                        .get(storage_class(&claim))
                        .map_or(&[][..], Vec::as_slice);
                    match matching::find_matching_volume(
                        &claim,
                        volumes,
                        &node.facts.labels,
                        &taken,
                    )
                    .cloned()
                    {
                        Some(volume) => found.bindings.push((volume, claim)),
                        None => found.provisions.push(claim),
                    }
                }
            }
        }
        for claim in &found.provisions {
            let class = cluster
                .storage
                .classes
                .get(storage_class(claim))
                .ok_or(NOTHING)?;
            if !can_provision(class, &node.facts.labels) {
                return Err(NOTHING);
            }
            if !has_capacity(claim, class, &node.facts.labels, cluster) {
                return Err("node(s) did not have enough free storage");
            }
        }
        Ok(found)
    }
}

/// Whether a class provisions volumes for a node.
fn can_provision(class: &Object, labels: &Labels) -> bool {
    let holds = |expression: &Value| {
        let value = labels.get(expression["key"].str());
        value.is_some_and(|value| {
            expression["values"]
                .list()
                .iter()
                .any(|one| one.str() == value)
        })
    };
    let terms = class["allowedTopologies"].list();
    !matches!(
        class["provisioner"].str(),
        "" | "kubernetes.io/no-provisioner"
    ) && (terms.is_empty()
        || terms.iter().any(|term| {
            let expressions = term["matchLabelExpressions"].list();
            !expressions.is_empty() && expressions.iter().all(holds)
        }))
}

/// Whether there is enough storage capacity for a claim, if its driver publishes capacity.
fn has_capacity(claim: &Object, class: &Object, labels: &Labels, cluster: &ClusterState) -> bool {
    let publishes_capacity = |driver: &Arc<Object>| driver["spec"]["storageCapacity"].bool();
    if !cluster
        .storage
        .csi_drivers
        .get(class["provisioner"].str())
        .is_some_and(publishes_capacity)
    {
        return true;
    }
    let wanted = requested_storage(claim).value();
    cluster.storage.capacities.values().any(|capacity| {
        capacity["storageClassName"].str() == class.name()
            && max_volume_size(capacity).is_some_and(|limit| limit >= wanted)
            && LabelSelector::from_value(&capacity["nodeTopology"])
                .is_some_and(|nodes| labels.match_selector(&nodes))
    })
}

impl NodeFilter for VolumeBindingFilter {
    fn filter(&self, node: &NodeInfo, cluster: &ClusterState) -> Option<Rejection> {
        let reasons = self.decide(node, cluster).err()?;
        Some(Rejection {
            plugin: Name::VolumeBinding,
            reasons: Reasons::Several(reasons),
            resolvable: false,
        })
    }

    fn reserve(&self, node: &NodeInfo, cluster: &ClusterState) -> Result<Vec<PreBindStep>, String> {
        let bind_timeout = self.bind_timeout;
        let reasons = |reasons: Vec<Text>| reasons.join(", ");
        let VolumeDecisions {
            bindings,
            provisions,
        } = self.decide(node, cluster).map_err(reasons)?;
        let bindings = bindings
            .into_iter()
            .map(|(volume, claim)| PreBindStep::BindVolume {
                volume: Arc::new(with_claim_ref(&volume, &claim)),
                claim: claim.key(),
                bind_timeout,
            });
        let provisions = provisions.into_iter().map(|claim| {
            let mut claim = Object::clone(&claim);
            claim
                .entry("metadata")
                .entry("annotations")
                .set(SELECTED_NODE, node.name());
            PreBindStep::Provision {
                claim: Arc::new(claim),
                bind_timeout,
            }
        });
        Ok(bindings.chain(provisions).collect())
    }

    fn copy(&self) -> Box<dyn NodeFilter> {
        Box::new(self.clone())
    }
}

/// A volume with its claimRef to a claim.
fn with_claim_ref(volume: &PersistentVolume, claim: &Object) -> Object {
    let mut object = Object::clone(&volume.object);
    if !volume.is_bound_or_prebound_to(claim) {
        object
            .entry("metadata")
            .entry("annotations")
            .set("pv.kubernetes.io/bound-by-controller", "yes");
    }
    let reference = value!({
        "kind": "PersistentVolumeClaim",
        "namespace": (claim.namespace()),
        "name": (claim.name()),
        "uid": (claim.uid()),
        "apiVersion": "v1",
        "resourceVersion": (claim.version())
    });
    object.entry("spec").set("claimRef", reference);
    object
}
