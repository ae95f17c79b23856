//! VolumeZone: the node is in the zone of the pod's volumes.

use std::sync::Arc;

use mizzen_sdk::Object;
use mizzen_value::Str;

use super::{FilterPlugin, Name, NodeFilter, PreFilterResult, Rejection};
use crate::cache::NodeInfo;
use crate::cluster_event::{ClusterEvent, NodeAction};
use crate::cluster_state::ClusterState;
use crate::model::{Labels, PodInfo};
use crate::storage::{PersistentVolume, storage_class};

/// Topology labels of volumes and nodes with their current names; the deprecated ones first.
const LABELS: [(&str, &str); 4] = [
    (
        "failure-domain.beta.kubernetes.io/zone",
        "topology.kubernetes.io/zone",
    ),
    (
        "failure-domain.beta.kubernetes.io/region",
        "topology.kubernetes.io/region",
    ),
    ("topology.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    (
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/region",
    ),
];

pub(crate) struct VolumeZone;

/// A label, its current name, and the values that match.
type Zone = (&'static str, &'static str, Vec<Str>);

#[derive(Clone)]
struct VolumeZoneFilter(Vec<Zone>);

fn topology_labels(labels: &Labels) -> Vec<Zone> {
    let zone = |(label, today): (&'static str, &'static str)| {
        let values = labels
            .get(label)?
            .split("__")
            .map(|value| value.trim().into())
            .collect();
        Some((label, today, values))
    };
    LABELS.into_iter().filter_map(zone).collect()
}

/// The topology labels of a pod's volumes, or why no node fits.
fn pod_topology_labels(pod: &PodInfo, cluster: &ClusterState) -> Result<Vec<Zone>, String> {
    let mut found = Vec::new();
    for claim in pod.volumes.claims.iter().filter(|claim| !claim.ephemeral) {
        let object = cluster.storage.claim(&pod.namespace, &claim.name);
        let object =
            object.ok_or_else(|| format!("persistentvolumeclaim \"{}\" not found", claim.name))?;
        if let Some(volume) = bound_volume(object, cluster)? {
            found.extend(topology_labels(&volume.labels));
        }
    }
    Ok(found)
}

fn bound_volume<'a>(
    claim: &Object,
    cluster: &'a ClusterState,
) -> Result<Option<&'a PersistentVolume>, String> {
    let name = claim["spec"]["volumeName"].str();
    if !name.is_empty() {
        let volume = cluster.storage.volume(name);
        return volume
            .map(|it| Some(&**it))
            .ok_or_else(|| format!("persistentvolume \"{name}\" not found"));
    }
    let class = storage_class(claim);
    if class.is_empty() {
        return Err("PersistentVolumeClaim had no pv name and storageClass name".into());
    }
    let object = cluster.storage.classes.get(class);
    let object =
        object.ok_or_else(|| format!("storageclass.storage.k8s.io \"{class}\" not found"))?;
    match object["volumeBindingMode"].str() {
        "WaitForFirstConsumer" => Ok(None),
        "" => Err(format!(
            "VolumeBindingMode not set for StorageClass \"{class}\""
        )),
        _ => Err("PersistentVolume had no name".into()),
    }
}

impl FilterPlugin for VolumeZone {
    fn name(&self) -> Name {
        Name::VolumeZone
    }

    fn pre_filter(&self, pod: &Arc<PodInfo>, cluster: &mut ClusterState) -> PreFilterResult {
        match pod_topology_labels(pod, cluster) {
            Err(reason) => {
                PreFilterResult::Reject(Rejection::unresolvable(Name::VolumeZone, reason))
            }
            Ok(zones) if zones.is_empty() => PreFilterResult::Skip,
            Ok(zones) => PreFilterResult::Filter(Box::new(VolumeZoneFilter(zones))),
        }
    }

    fn queueing_hint(&self, pod: &PodInfo, event: &ClusterEvent, _world: &ClusterState) -> bool {
        match event {
            ClusterEvent::StorageClass {
                old: None,
                new: Some(class),
            } => class["volumeBindingMode"].str() == "WaitForFirstConsumer",
            ClusterEvent::Node {
                new: Some(_),
                change,
                ..
            } => change.has(NodeAction::ADD | NodeAction::LABEL),
            ClusterEvent::PersistentVolumeClaim {
                new: Some(claim), ..
            } => {
                let uses = |name: &str| {
                    pod.volumes
                        .claims
                        .iter()
                        .any(|one| !one.ephemeral && one.name == name)
                };
                claim.namespace() == pod.namespace && uses(claim.name())
            }
            ClusterEvent::PersistentVolume {
                old,
                new: Some(new),
            } => {
                let zones = |volume: &Object| {
                    topology_labels(&Labels::from_value(&volume["metadata"]["labels"]))
                };
                old.is_none_or(|old| zones(old) != zones(new))
            }
            _ => false,
        }
    }
}

impl NodeFilter for VolumeZoneFilter {
    fn filter(&self, node: &NodeInfo, _world: &ClusterState) -> Option<Rejection> {
        let labels = &node.facts.labels;
        if !LABELS.iter().any(|(label, _)| labels.get(label).is_some()) {
            return None;
        }
        let is_there = |(label, today, values): &Zone| {
            let value = labels.get(label).or_else(|| labels.get(today));
            value.is_some_and(|value| values.iter().any(|one| one == value))
        };
        let refuse =
            || Rejection::unresolvable(Name::VolumeZone, "node(s) had no available volume zone");
        (!self.0.iter().all(is_there)).then(refuse)
    }

    fn copy(&self) -> Box<dyn NodeFilter> {
        Box::new(self.clone())
    }
}
