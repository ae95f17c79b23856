//! DynamicResources: the devices of a pod's ResourceClaims.
//!
//! `request` has the requests of a claim, `constraint` what must hold between its devices, `pool`
//! the devices that drivers publish for a node, `capacity` the shares of devices. `allocator`
//! searches for an allocation, `allocation` writes its result, `score` rates it.
//!
//! Devices with binding conditions are never allocated.

mod allocation;
mod allocator;
mod capacity;
mod constraint;
mod filter;
mod pool;
mod request;
mod score;
mod selector;

use std::sync::Arc;

use mizzen_sdk::Object;

use super::{FilterPlugin, Name, NodeScorer, PreFilterResult, Rejection, ScorePlugin};
use crate::cache::Slot;
use crate::cluster_event::{ClusterEvent, PodAction};
use crate::cluster_state::ClusterState;
use crate::model::PodInfo;
use request::subrequests;

/// The most consumers of a claim (upstream: ResourceClaimReservedForMaxSize).
const MAX_CONSUMERS: usize = 256;

pub(crate) struct DynamicResources;

impl FilterPlugin for DynamicResources {
    fn name(&self) -> Name {
        Name::DynamicResources
    }

    fn pre_filter(&self, pod: &Arc<PodInfo>, cluster: &mut ClusterState) -> PreFilterResult {
        if pod.resource_claims.iter().all(|used| used.not_needed) {
            return PreFilterResult::Skip;
        }
        let refuse = |reason: String| {
            PreFilterResult::Reject(Rejection::unresolvable(Name::DynamicResources, reason))
        };
        let claims: Vec<Arc<Object>> = match cluster.devices.pod_claims(pod) {
            Ok(claims) => claims.into_iter().cloned().collect(),
            Err(reason) => return refuse(reason),
        };
        for claim in &claims {
            if let Err(reason) = check_claim_usable(pod, claim, cluster) {
                return refuse(reason);
            }
        }
        match filter::ClaimsFilter::new(pod, claims, cluster) {
            Ok(claimed) => PreFilterResult::Filter(Box::new(claimed)),
            Err(error) => PreFilterResult::Error(error),
        }
    }

    fn queueing_hint(&self, pod: &PodInfo, event: &ClusterEvent, cluster: &ClusterState) -> bool {
        match event {
            ClusterEvent::ResourceClaim {
                old,
                new: Some(new),
            } => {
                let uses = cluster
                    .devices
                    .pod_claims(pod)
                    .is_ok_and(|claims| claims.iter().any(|one| one.uid() == new.uid()));
                let freed = |old: &Object| {
                    !old["status"]["allocation"].is_null() && new["status"]["allocation"].is_null()
                };
                let changed = |old: &Object| {
                    old["status"]["allocation"] != new["status"]["allocation"]
                        || old["status"]["reservedFor"] != new["status"]["reservedFor"]
                };
                match old {
                    Some(old) => freed(old) || (uses && changed(old)),
                    None => uses,
                }
            }
            // Deleting an allocated claim frees its devices.
            ClusterEvent::ResourceClaim {
                old: Some(old),
                new: None,
            } => !old["status"]["allocation"].is_null(),
            ClusterEvent::ResourceSlice { new: Some(_), .. }
            | ClusterEvent::DeviceClass { new: Some(_), .. } => true,
            ClusterEvent::Pod {
                new: Some(new),
                change,
                ..
            } => {
                change.has(PodAction::CLAIM)
                    && new.uid == pod.uid
                    && cluster.devices.pod_claims(new).is_ok()
            }
            ClusterEvent::Node { new: Some(_), .. } => true,
            _ => false,
        }
    }
}

impl ScorePlugin for DynamicResources {
    fn pre_score(
        &self,
        pod: &Arc<PodInfo>,
        cluster: &mut ClusterState,
        _nodes: &[Slot],
    ) -> Option<Box<dyn NodeScorer>> {
        let claims: Vec<Arc<Object>> = cluster
            .devices
            .pod_claims(pod)
            .ok()?
            .into_iter()
            .cloned()
            .collect();
        let claimed = filter::ClaimsFilter::new(pod, claims, cluster).ok()?;
        claimed.has_subrequests().then(|| Box::new(claimed) as _)
    }
}

/// Why a pod cannot use a claim.
fn check_claim_usable(pod: &PodInfo, claim: &Object, cluster: &ClusterState) -> Result<(), String> {
    let consumers = claim["status"]["reservedFor"].list();
    let is_ours = consumers
        .iter()
        .any(|consumer| consumer["uid"].str() == pod.uid);
    if !claim["status"]["allocation"].is_null() {
        let has_room = is_ours || consumers.len() < MAX_CONSUMERS;
        return if has_room {
            Ok(())
        } else {
            Err("resourceclaim in use".into())
        };
    }
    let name = format!("{}/{}", claim.namespace(), claim.name());
    if cluster.devices.is_assumed(claim) {
        return Err(format!(
            "resource claim {name} is in the process of being allocated"
        ));
    }
    for request in claim["spec"]["devices"]["requests"].list() {
        for (qualified, one) in subrequests(request) {
            let class = one["deviceClassName"].str();
            if class.is_empty() {
                return Err(format!(
                    "resource claim {name}, request {qualified}: unknown request type"
                ));
            }
            if !cluster.devices.classes.contains_key(class) {
                return Err(format!(
                    "request {qualified}: device class {class} does not exist"
                ));
            }
        }
    }
    Ok(())
}
