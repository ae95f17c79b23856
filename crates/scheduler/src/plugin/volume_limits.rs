//! NodeVolumeLimits: the node can attach one more volume.

use std::sync::Arc;

use mizzen_sdk::Object;
use mizzen_value::Str;

use super::{FilterPlugin, Name, NodeFilter, PreFilterResult, Rejection};
use crate::HashMap;
use crate::cache::NodeInfo;
use crate::cluster_event::ClusterEvent;
use crate::cluster_state::ClusterState;
use crate::model::PodInfo;
use crate::storage::storage_class;

pub(crate) struct VolumeLimits;

/// The pod's volumes: a unique name and the driver of each.
#[derive(Clone)]
struct VolumeLimitsFilter(HashMap<Str, Str>);

impl FilterPlugin for VolumeLimits {
    fn name(&self) -> Name {
        Name::NodeVolumeLimits
    }

    fn pre_filter(&self, pod: &Arc<PodInfo>, cluster: &mut ClusterState) -> PreFilterResult {
        let csi_volumes = csi_volumes(pod, cluster);
        if csi_volumes.is_empty() {
            PreFilterResult::Skip
        } else {
            PreFilterResult::Filter(Box::new(VolumeLimitsFilter(csi_volumes)))
        }
    }

    fn queueing_hint(&self, pod: &PodInfo, event: &ClusterEvent, _world: &ClusterState) -> bool {
        match event {
            ClusterEvent::CsiNode {
                old,
                new: Some(new),
            } => old.is_none_or(|old| {
                let old = driver_limits(old);
                driver_limits(new)
                    .into_iter()
                    .any(|(driver, limit)| limit > old.get(driver).copied().unwrap_or_default())
            }),
            ClusterEvent::Pod {
                old: Some(gone),
                new: None,
                ..
            } => gone.is_assigned_or_nominated() && !gone.volumes.claims.is_empty(),
            ClusterEvent::PersistentVolumeClaim {
                old: None,
                new: Some(claim),
            } => {
                let uses = |name: &str| pod.volumes.claims.iter().any(|one| one.name == name);
                claim.namespace() == pod.namespace && uses(claim.name())
            }
            ClusterEvent::VolumeAttachment { new: None, .. } => {
                pod.volumes.claims.iter().any(|claim| !claim.ephemeral)
            }
            _ => false,
        }
    }
}

/// The CSI volumes of a pod.
fn csi_volumes(pod: &PodInfo, cluster: &ClusterState) -> HashMap<Str, Str> {
    let claims = pod.volumes.claims.iter();
    let claims = claims.filter_map(|claim| cluster.storage.claim(&pod.namespace, &claim.name));
    claims
        .filter_map(|claim| csi_volume(claim, cluster))
        .collect()
}

/// The unique name and the driver of a claim's volume. A volume that is not provisioned yet is
/// named by its claim.
fn csi_volume(claim: &Object, cluster: &ClusterState) -> Option<(Str, Str)> {
    let csi_volume = cluster.storage.volume(claim["spec"]["volumeName"].str());
    let (driver, id): (Str, Str) = match csi_volume {
        Some(csi_volume) => {
            let csi = &csi_volume.object["spec"]["csi"];
            (
                csi["driver"].as_str()?.into(),
                csi["volumeHandle"].str().into(),
            )
        }
        None => {
            let class = cluster.storage.classes.get(storage_class(claim))?;
            let driver: Str = class["provisioner"].str().into();
            // Only CSI drivers have limits.
            cluster.storage.csi_drivers.get(&driver)?;
            (
                driver,
                format!("{}/{}", claim.namespace(), claim.name()).into(),
            )
        }
    };
    Some((format!("{driver}/{id}").into(), driver))
}

fn driver_limits(csi_node: &Object) -> HashMap<&str, i64> {
    let drivers = csi_node["spec"]["drivers"].list().iter();
    drivers
        .filter_map(|one| Some((one["name"].str(), one["allocatable"]["count"].as_int()?)))
        .collect()
}

impl NodeFilter for VolumeLimitsFilter {
    fn filter(&self, node: &NodeInfo, cluster: &ClusterState) -> Option<Rejection> {
        let driver_limits = driver_limits(cluster.storage.csi_nodes.get(node.name())?);
        if driver_limits.is_empty() {
            return None;
        }
        let mut there: HashMap<Str, Str> = HashMap::default();
        node.pods
            .iter()
            .for_each(|pod| there.extend(csi_volumes(pod, cluster)));
        there.extend(attached_volumes(node.name(), cluster));
        let count = |driver: &str, csi_volumes: &mut dyn Iterator<Item = &Str>| {
            csi_volumes.filter(|one| *one == driver).count()
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
        let refuse =
            || Rejection::unschedulable(Name::NodeVolumeLimits, "node(s) exceed max volume count");
        driver_limits.into_iter().any(exceeds).then(refuse)
    }

    fn copy(&self) -> Box<dyn NodeFilter> {
        Box::new(self.clone())
    }
}

/// The volumes of the VolumeAttachments of a node.
fn attached_volumes(node: &str, cluster: &ClusterState) -> HashMap<Str, Str> {
    let there = cluster
        .storage
        .attachments
        .values()
        .filter(|one| one["spec"]["nodeName"].str() == node);
    let csi_volume = |attachment: &Arc<Object>| {
        let name = attachment["spec"]["source"]["persistentVolumeName"].as_str()?;
        let csi = &cluster.storage.volume(name)?.object["spec"]["csi"];
        let driver: Str = csi["driver"].as_str()?.into();
        Some((
            format!("{driver}/{}", csi["volumeHandle"].str()).into(),
            driver,
        ))
    };
    there.filter_map(csi_volume).collect()
}
