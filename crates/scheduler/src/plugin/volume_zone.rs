//! Is the node in the zone of the pod's volumes?

use std::sync::Arc;

use mizzen_sdk::Object;
use mizzen_value::Str;

use super::{Check, Filter, Name, Ready, Refusal};
use crate::cache::Node;
use crate::happening::{Happening, NodeChange};
use crate::model::{Labels, Pod};
use crate::storage::{Volume, class_of};
use crate::world::World;

/// Labels that say where a volume or node is; the old ones of both first.
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

/// A label, what it is called today, and the values that will do.
type Zone = (&'static str, &'static str, Vec<Str>);

#[derive(Clone)]
struct Zones(Vec<Zone>);

fn zones(labels: &Labels) -> Vec<Zone> {
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

/// The zones of a pod's volumes, or why it cannot be anywhere.
fn zones_of(pod: &Pod, world: &World) -> Result<Vec<Zone>, String> {
    let mut found = Vec::new();
    for claim in pod.volumes.claims.iter().filter(|claim| !claim.ephemeral) {
        let object = world.storage.claim(&pod.namespace, &claim.name);
        let object =
            object.ok_or_else(|| format!("persistentvolumeclaim \"{}\" not found", claim.name))?;
        if let Some(volume) = volume_of(object, world)? {
            found.extend(zones(&volume.labels));
        }
    }
    Ok(found)
}

fn volume_of<'a>(claim: &Object, world: &'a World) -> Result<Option<&'a Volume>, String> {
    let name = claim["spec"]["volumeName"].str();
    if !name.is_empty() {
        let volume = world.storage.volume(name);
        return volume
            .map(|it| Some(&**it))
            .ok_or_else(|| format!("persistentvolume \"{name}\" not found"));
    }
    let class = class_of(claim);
    if class.is_empty() {
        return Err("PersistentVolumeClaim had no pv name and storageClass name".into());
    }
    let object = world.storage.classes.get(class);
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

impl Filter for VolumeZone {
    fn name(&self) -> Name {
        Name::VolumeZone
    }

    fn prepare(&self, pod: &Arc<Pod>, world: &mut World) -> Ready {
        match zones_of(pod, world) {
            Err(reason) => Ready::Refuse(Refusal::for_good(Name::VolumeZone, reason)),
            Ok(zones) if zones.is_empty() => Ready::Skip,
            Ok(zones) => Ready::Check(Box::new(Zones(zones))),
        }
    }

    fn wakes(&self, pod: &Pod, happening: &Happening, _world: &World) -> bool {
        match happening {
            Happening::StorageClass {
                old: None,
                new: Some(class),
            } => class["volumeBindingMode"].str() == "WaitForFirstConsumer",
            Happening::Node {
                new: Some(_),
                change,
                ..
            } => change.has(NodeChange::ADD | NodeChange::LABEL),
            Happening::Claim {
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
            Happening::Volume {
                old,
                new: Some(new),
            } => {
                let zones = |volume: &Object| zones(&Labels::of(&volume["metadata"]["labels"]));
                old.is_none_or(|old| zones(old) != zones(new))
            }
            _ => false,
        }
    }
}

impl Check for Zones {
    fn check(&self, node: &Node, _world: &World) -> Option<Refusal> {
        let labels = &node.facts.labels;
        if !LABELS.iter().any(|(label, _)| labels.get(label).is_some()) {
            return None;
        }
        let is_there = |(label, today, values): &Zone| {
            let value = labels.get(label).or_else(|| labels.get(today));
            value.is_some_and(|value| values.iter().any(|one| one == value))
        };
        let refuse = || Refusal::for_good(Name::VolumeZone, "node(s) had no available volume zone");
        (!self.0.iter().all(is_there)).then(refuse)
    }

    fn copy(&self) -> Box<dyn Check> {
        Box::new(self.clone())
    }
}
