//! VolumeBinding: the pod's volumes can be used on the node, or be provisioned there.

mod filter;
mod matching;

use std::sync::Arc;
use std::time::Duration;

use mizzen_sdk::Object;
use mizzen_value::quantity::Quantity;

use super::{FilterPlugin, Name, PreFilterResult, Rejection};
use crate::cluster_event::{ClusterEvent, NodeAction};
use crate::cluster_state::ClusterState;
use crate::model::PodInfo;
use crate::storage::{is_bound, storage_class};

pub(crate) struct VolumeBinding {
    /// How long PreBind waits for the volumes (`bindTimeoutSeconds`).
    pub bind_timeout: Duration,
}

impl Default for VolumeBinding {
    fn default() -> VolumeBinding {
        VolumeBinding {
            bind_timeout: Duration::from_secs(600),
        }
    }
}

/// The claims of a pod (upstream: PodVolumeClaims).
#[derive(Clone, Default)]
struct PodVolumeClaims {
    bound: Vec<Arc<Object>>,
    /// Unbound claims of classes with WaitForFirstConsumer.
    unbound: Vec<Arc<Object>>,
}

impl FilterPlugin for VolumeBinding {
    fn name(&self) -> Name {
        Name::VolumeBinding
    }

    fn pre_filter(&self, pod: &Arc<PodInfo>, cluster: &mut ClusterState) -> PreFilterResult {
        let refuse = |reason: String| {
            PreFilterResult::Reject(Rejection::unresolvable(Name::VolumeBinding, reason))
        };
        if pod.volumes.claims.is_empty() {
            return PreFilterResult::Skip;
        }
        let objects = match usable_claims(pod, cluster) {
            Ok(objects) => objects,
            Err(reason) => return refuse(reason),
        };
        let mut claims = PodVolumeClaims::default();
        for claim in objects {
            if is_bound(&claim) {
                claims.bound.push(claim);
                continue;
            }
            match is_binding_delayed(&claim, cluster) {
                Err(error) => return PreFilterResult::Error(error),
                Ok(true) if claim["spec"]["volumeName"].str().is_empty() => {
                    claims.unbound.push(claim)
                }
                Ok(_) => return refuse("pod has unbound immediate PersistentVolumeClaims".into()),
            }
        }
        PreFilterResult::Filter(Box::new(filter::VolumeBindingFilter::new(
            claims,
            self.bind_timeout,
            cluster,
        )))
    }

    fn queueing_hint(&self, pod: &PodInfo, event: &ClusterEvent, _world: &ClusterState) -> bool {
        match event {
            ClusterEvent::StorageClass {
                old,
                new: Some(new),
            } => old.is_none_or(|old| old["allowedTopologies"] != new["allowedTopologies"]),
            ClusterEvent::PersistentVolumeClaim {
                new: Some(claim), ..
            } => {
                let uses = |name: &str| pod.volumes.claims.iter().any(|one| one.name == name);
                claim.namespace() == pod.namespace && uses(claim.name())
            }
            ClusterEvent::PersistentVolume { new: Some(_), .. } => true,
            ClusterEvent::Node {
                new: Some(_),
                change,
                ..
            } => change.has(NodeAction::ADD | NodeAction::LABEL),
            ClusterEvent::CsiNode {
                old,
                new: Some(new),
            } => {
                let migrated = |node: &Object| {
                    node.annotation("storage.alpha.kubernetes.io/migrated-plugins")
                        .map(String::from)
                };
                old.is_none_or(|old| migrated(old) != migrated(new))
            }
            ClusterEvent::CsiDriver {
                old: Some(old),
                new: Some(new),
            } => {
                let limits = |driver: &Object| driver["spec"]["storageCapacity"].bool();
                limits(old) && !limits(new)
            }
            ClusterEvent::CsiStorageCapacity {
                old,
                new: Some(new),
            } => {
                let now = max_volume_size(new);
                old.is_none_or(|old| now.is_some() && now > max_volume_size(old))
            }
            _ => false,
        }
    }
}

/// The claims of a pod, if all can be used.
fn usable_claims(pod: &PodInfo, cluster: &ClusterState) -> Result<Vec<Arc<Object>>, String> {
    let claims = pod.volumes.claims.iter().map(|used| {
        let name = &used.name;
        let claim = cluster.storage.claim(&pod.namespace, name).ok_or_else(|| match used.ephemeral {
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
        if claim.is_terminating() {
            return Err(format!("persistentvolumeclaim \"{name}\" is being deleted"));
        }
        if used.ephemeral && !claim.is_controlled_by(&pod.uid) {
            let PodInfo { namespace, name: pod_name, .. } = pod;
            return Err(format!(
                "PVC {namespace}/{name} was not created for pod {namespace}/{pod_name} (pod is not owner)"
            ));
        }
        Ok(claim.clone())
    });
    claims.collect()
}

/// Whether the binding of a claim is delayed until it has a consumer.
fn is_binding_delayed(claim: &Object, cluster: &ClusterState) -> Result<bool, String> {
    let name = storage_class(claim);
    let Some(class) = cluster.storage.classes.get(name) else {
        return Ok(false);
    };
    match class["volumeBindingMode"].str() {
        "" => Err(format!(
            "VolumeBindingMode not set for StorageClass \"{name}\""
        )),
        mode => Ok(mode == "WaitForFirstConsumer"),
    }
}

/// The largest volume that a CSIStorageCapacity allows.
fn max_volume_size(capacity: &Object) -> Option<i64> {
    let largest = capacity["maximumVolumeSize"]
        .as_str()
        .or_else(|| capacity["capacity"].as_str())?;
    Some(Quantity::parse_or_zero(largest).value())
}

/// The requested storage.
fn requested_storage(claim: &Object) -> Quantity {
    Quantity::parse_or_zero(claim["spec"]["resources"]["requests"]["storage"].str())
}
