//! Can the pod's volumes be used on the node, or be made there?

mod check;
mod matching;

use std::sync::Arc;
use std::time::Duration;

use mizzen_sdk::Object;
use mizzen_value::quantity::Quantity;

use super::{Filter, Name, Ready, Refusal};
use crate::happening::{Happening, NodeChange};
use crate::model::Pod;
use crate::storage::{class_of, is_bound};
use crate::world::World;

pub(crate) struct VolumeBinding {
    /// How long a pod that has its node waits for its volumes.
    pub patience: Duration,
}

impl Default for VolumeBinding {
    fn default() -> VolumeBinding {
        VolumeBinding {
            patience: Duration::from_secs(600),
        }
    }
}

/// The claims of a pod.
#[derive(Clone, Default)]
struct Claims {
    bound: Vec<Arc<Object>>,
    /// Those that wait for a pod before they get their volumes.
    waiting: Vec<Arc<Object>>,
}

impl Filter for VolumeBinding {
    fn name(&self) -> Name {
        Name::VolumeBinding
    }

    fn prepare(&self, pod: &Arc<Pod>, world: &mut World) -> Ready {
        let refuse = |reason: String| Ready::Refuse(Refusal::for_good(Name::VolumeBinding, reason));
        if pod.volumes.claims.is_empty() {
            return Ready::Skip;
        }
        let objects = match usable(pod, world) {
            Ok(objects) => objects,
            Err(reason) => return refuse(reason),
        };
        let mut claims = Claims::default();
        for claim in objects {
            if is_bound(&claim) {
                claims.bound.push(claim);
                continue;
            }
            match waits(&claim, world) {
                Err(error) => return Ready::Fail(error),
                Ok(true) if claim["spec"]["volumeName"].str().is_empty() => {
                    claims.waiting.push(claim)
                }
                Ok(_) => return refuse("pod has unbound immediate PersistentVolumeClaims".into()),
            }
        }
        Ready::Check(Box::new(check::Reach::of(claims, self.patience, world)))
    }

    fn wakes(&self, pod: &Pod, happening: &Happening, _world: &World) -> bool {
        match happening {
            Happening::StorageClass {
                old,
                new: Some(new),
            } => old.is_none_or(|old| old["allowedTopologies"] != new["allowedTopologies"]),
            Happening::Claim {
                new: Some(claim), ..
            } => {
                let uses = |name: &str| pod.volumes.claims.iter().any(|one| one.name == name);
                claim.namespace() == pod.namespace && uses(claim.name())
            }
            Happening::Volume { new: Some(_), .. } => true,
            Happening::Node {
                new: Some(_),
                change,
                ..
            } => change.has(NodeChange::ADD | NodeChange::LABEL),
            Happening::CsiNode {
                old,
                new: Some(new),
            } => {
                let migrated = |node: &Object| {
                    node.annotation("storage.alpha.kubernetes.io/migrated-plugins")
                        .map(String::from)
                };
                old.is_none_or(|old| migrated(old) != migrated(new))
            }
            Happening::CsiDriver {
                old: Some(old),
                new: Some(new),
            } => {
                let limits = |driver: &Object| driver["spec"]["storageCapacity"].bool();
                limits(old) && !limits(new)
            }
            Happening::Capacity {
                old,
                new: Some(new),
            } => {
                let now = limit(new);
                old.is_none_or(|old| now.is_some() && now > limit(old))
            }
            _ => false,
        }
    }
}

/// The claims of a pod, if all can be used.
fn usable(pod: &Pod, world: &World) -> Result<Vec<Arc<Object>>, String> {
    let claims = pod.volumes.claims.iter().map(|used| {
        let name = &used.name;
        let claim = world.storage.claim(&pod.namespace, name).ok_or_else(|| match used.ephemeral {
            true => format!(
                "waiting for ephemeral volume controller to create the persistentvolumeclaim \"{name}\""
            ),
            false => format!("persistentvolumeclaim \"{name}\" not found"),
        })?;
        if claim["status"]["phase"].str() == "Lost" {
            let volume = claim["spec"]["volumeName"].str();
            return Err(format!(
                "persistentvolumeclaim \"{name}\" bound to non-existent persistentvolume \"{volume}\""
            ));
        }
        if claim.is_going() {
            return Err(format!("persistentvolumeclaim \"{name}\" is being deleted"));
        }
        if used.ephemeral && !claim.is_controlled_by(&pod.uid) {
            let Pod { namespace, name: pod_name, .. } = pod;
            return Err(format!(
                "PVC {namespace}/{name} was not created for pod {namespace}/{pod_name} (pod is not owner)"
            ));
        }
        Ok(claim.clone())
    });
    claims.collect()
}

/// Whether a claim waits for a pod before it gets its volume.
fn waits(claim: &Object, world: &World) -> Result<bool, String> {
    let name = class_of(claim);
    let Some(class) = world.storage.classes.get(name) else {
        return Ok(false);
    };
    match class["volumeBindingMode"].str() {
        "" => Err(format!(
            "VolumeBindingMode not set for StorageClass \"{name}\""
        )),
        mode => Ok(mode == "WaitForFirstConsumer"),
    }
}

/// The largest volume that can be made where a capacity says.
fn limit(capacity: &Object) -> Option<i64> {
    let largest = capacity["maximumVolumeSize"]
        .as_str()
        .or_else(|| capacity["capacity"].as_str())?;
    Some(Quantity::of(largest).value())
}

/// How much a claim asks for.
fn size(claim: &Object) -> Quantity {
    Quantity::of(claim["spec"]["resources"]["requests"]["storage"].str())
}
