//! VolumeRestrictions: volumes that conflict with those of other pods.

use std::sync::Arc;

use mizzen_value::Str;

use super::{FilterPlugin, Name, NodeFilter, PreFilterResult, Rejection};
use crate::cache::NodeInfo;
use crate::cluster_event::ClusterEvent;
use crate::cluster_state::ClusterState;
use crate::model::{PodInfo, RestrictedDisk};

pub(crate) struct VolumeRestrictions;

/// Volumes that only one pod can use.
#[derive(Clone)]
struct VolumeRestrictionsFilter {
    namespace: Str,
    disks: Box<[RestrictedDisk]>,
    /// Claims with ReadWriteOncePod.
    claims: Vec<Str>,
    /// The number of other pods that use them.
    n_claim_users: i64,
}

impl FilterPlugin for VolumeRestrictions {
    fn name(&self) -> Name {
        Name::VolumeRestrictions
    }

    fn pre_filter(&self, pod: &Arc<PodInfo>, cluster: &mut ClusterState) -> PreFilterResult {
        let mut claims = Vec::new();
        for claim in pod.volumes.claims.iter().filter(|claim| !claim.ephemeral) {
            let Some(object) = cluster.storage.claim(&pod.namespace, &claim.name) else {
                let reason = format!("persistentvolumeclaim \"{}\" not found", claim.name);
                return PreFilterResult::Reject(Rejection::unresolvable(
                    Name::VolumeRestrictions,
                    reason,
                ));
            };
            let modes = object["spec"]["accessModes"].list();
            if modes.iter().any(|mode| mode.str() == "ReadWriteOncePod") {
                claims.push(claim.name.clone());
            }
        }
        let used = claims
            .iter()
            .filter(|claim| cluster.cache.n_claim_users(&pod.namespace, claim) > 0);
        let n_claim_users = used.count() as i64;
        if pod.volumes.disks.is_empty() && n_claim_users == 0 {
            return PreFilterResult::Skip;
        }
        let (namespace, disks) = (pod.namespace.clone(), pod.volumes.disks.clone());
        PreFilterResult::Filter(Box::new(VolumeRestrictionsFilter {
            namespace,
            disks,
            claims,
            n_claim_users,
        }))
    }

    fn queueing_hint(&self, pod: &PodInfo, event: &ClusterEvent, _world: &ClusterState) -> bool {
        match event {
            ClusterEvent::Node {
                old: None,
                new: Some(_),
                ..
            } => true,
            ClusterEvent::PersistentVolumeClaim {
                old: None,
                new: Some(claim),
            } => {
                let uses = |name: &str| {
                    pod.volumes
                        .claims
                        .iter()
                        .any(|one| !one.ephemeral && one.name == name)
                };
                claim.namespace() == pod.namespace && uses(claim.name())
            }
            ClusterEvent::Pod {
                old: Some(gone),
                new: None,
                ..
            } => {
                let shares = gone.volumes.claims.iter().filter(|one| !one.ephemeral);
                let mut shares = shares.filter(|one| pod.volumes.claims.contains(one));
                gone.namespace == pod.namespace
                    && (any_conflict(&pod.volumes.disks, &gone.volumes.disks)
                        || shares.next().is_some())
            }
            _ => false,
        }
    }
}

fn any_conflict(disks: &[RestrictedDisk], others: &[RestrictedDisk]) -> bool {
    disks
        .iter()
        .any(|disk| others.iter().any(|other| disk.conflicts_with(other)))
}

impl NodeFilter for VolumeRestrictionsFilter {
    fn filter(&self, node: &NodeInfo, _world: &ClusterState) -> Option<Rejection> {
        let name = Name::VolumeRestrictions;
        if !self.disks.is_empty()
            && node
                .pods
                .iter()
                .any(|pod| any_conflict(&self.disks, &pod.volumes.disks))
        {
            return Some(Rejection::unschedulable(
                name,
                "node(s) had no available disk",
            ));
        }
        let reason = "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod";
        (self.n_claim_users > 0).then(|| Rejection::unschedulable(name, reason))
    }

    fn simulate_pod(&mut self, pod: &PodInfo, _node: &NodeInfo, by: i64, _world: &ClusterState) {
        let uses = pod
            .volumes
            .claims
            .iter()
            .filter(|claim| !claim.ephemeral && self.claims.contains(&claim.name));
        if pod.namespace == self.namespace {
            self.n_claim_users += by * uses.count() as i64;
        }
    }

    fn copy(&self) -> Box<dyn NodeFilter> {
        Box::new(self.clone())
    }
}
