//! Can the node have one more volume?

use std::sync::Arc;

use mizzen_sdk::Object;
use mizzen_value::Str;

use super::{Check, Filter, Name, Ready, Refusal};
use crate::HashMap;
use crate::cache::Node;
use crate::happening::Happening;
use crate::model::Pod;
use crate::storage::class_of;
use crate::world::World;

pub(crate) struct VolumeLimits;

/// The pod's volumes: what each is, and its driver.
#[derive(Clone)]
struct Wanted(HashMap<Str, Str>);

impl Filter for VolumeLimits {
    fn name(&self) -> Name {
        Name::NodeVolumeLimits
    }

    fn prepare(&self, pod: &Arc<Pod>, world: &mut World) -> Ready {
        let volumes = volumes(pod, world);
        if volumes.is_empty() {
            Ready::Skip
        } else {
            Ready::Check(Box::new(Wanted(volumes)))
        }
    }

    fn wakes(&self, pod: &Pod, happening: &Happening, _world: &World) -> bool {
        match happening {
            Happening::CsiNode {
                old,
                new: Some(new),
            } => old.is_none_or(|old| grows(old, new)),
            Happening::Pod {
                old: Some(gone),
                new: None,
                ..
            } => gone.has_prospect() && !gone.volumes.claims.is_empty(),
            Happening::Claim {
                old: None,
                new: Some(claim),
            } => {
                let uses = |name: &str| pod.volumes.claims.iter().any(|one| one.name == name);
                claim.namespace() == pod.namespace && uses(claim.name())
            }
            Happening::Attachment { new: None } => {
                pod.volumes.claims.iter().any(|claim| !claim.ephemeral)
            }
            _ => false,
        }
    }
}

/// The volumes of a pod that a driver attaches to nodes.
fn volumes(pod: &Pod, world: &World) -> HashMap<Str, Str> {
    let claims = pod.volumes.claims.iter();
    let claims = claims.filter_map(|claim| world.storage.claim(&pod.namespace, &claim.name));
    claims.filter_map(|claim| volume(claim, world)).collect()
}

/// What tells a claim's volume from others, and its driver. A volume that is not made yet is told by its claim.
fn volume(claim: &Object, world: &World) -> Option<(Str, Str)> {
    let volume = world.storage.volume(claim["spec"]["volumeName"].str());
    let (driver, id): (Str, Str) = match volume {
        Some(volume) => {
            let csi = &volume.object["spec"]["csi"];
            (
                csi["driver"].as_str()?.into(),
                csi["volumeHandle"].str().into(),
            )
        }
        None => {
            let class = world.storage.classes.get(class_of(claim))?;
            let driver: Str = class["provisioner"].str().into();
            // Others than CSI drivers have no limits.
            world.storage.csi_drivers.get(&driver)?;
            (
                driver,
                format!("{}/{}", claim.namespace(), claim.name()).into(),
            )
        }
    };
    Some((format!("{driver}/{id}").into(), driver))
}

fn limits(csi_node: &Object) -> HashMap<&str, i64> {
    let drivers = csi_node["spec"]["drivers"].list().iter();
    drivers
        .filter_map(|one| Some((one["name"].str(), one["allocatable"]["count"].as_int()?)))
        .collect()
}

fn grows(old: &Object, new: &Object) -> bool {
    let old = limits(old);
    limits(new)
        .into_iter()
        .any(|(driver, limit)| limit > old.get(driver).copied().unwrap_or_default())
}

impl Check for Wanted {
    fn check(&self, node: &Node, world: &World) -> Option<Refusal> {
        let limits = limits(world.storage.csi_nodes.get(node.name())?);
        if limits.is_empty() {
            return None;
        }
        let mut there: HashMap<Str, Str> = HashMap::default();
        node.pods
            .iter()
            .for_each(|pod| there.extend(volumes(pod, world)));
        there.extend(attached(node.name(), world));
        let count = |driver: &str, volumes: &mut dyn Iterator<Item = &Str>| {
            volumes.filter(|one| *one == driver).count()
        };
        let exceeds = |(driver, limit): (&str, i64)| {
            let mut new = self
                .0
                .iter()
                .filter(|(id, _)| !there.contains_key(*id))
                .map(|(_, driver)| driver);
            let n_new = count(driver, &mut new);
            n_new > 0 && (count(driver, &mut there.values()) + n_new) as i64 > limit
        };
        let refuse = || Refusal::for_now(Name::NodeVolumeLimits, "node(s) exceed max volume count");
        limits.into_iter().any(exceeds).then(refuse)
    }

    fn copy(&self) -> Box<dyn Check> {
        Box::new(self.clone())
    }
}

/// The volumes that are attached to a node, or shall be.
fn attached(node: &str, world: &World) -> HashMap<Str, Str> {
    let there = world
        .storage
        .attachments
        .values()
        .filter(|one| one["spec"]["nodeName"].str() == node);
    let volume = |attachment: &Arc<Object>| {
        let name = attachment["spec"]["source"]["persistentVolumeName"].as_str()?;
        let csi = &world.storage.volume(name)?.object["spec"]["csi"];
        let driver: Str = csi["driver"].as_str()?.into();
        Some((
            format!("{driver}/{}", csi["volumeHandle"].str()).into(),
            driver,
        ))
    };
    there.filter_map(volume).collect()
}
