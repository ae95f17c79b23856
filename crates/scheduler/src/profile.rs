//! Profiles: the plugins for the pods of one scheduler name.

use mizzen_value::Str;

use crate::cluster_state::ClusterState;
use crate::model::PodInfo;
use crate::plugin::{FilterPlugin, Name, ScorePlugin};
use crate::preemption::CandidateLimits;

/// The plugins for one scheduler name.
pub(crate) struct Profile {
    pub name: Str,
    pub filters: Vec<Box<dyn FilterPlugin>>,
    pub scores: Vec<(Box<dyn ScorePlugin>, i64)>,
    /// SchedulingGates at PreEnqueue.
    pub scheduling_gates: bool,
    /// DynamicResources at PreEnqueue: pods wait for their ResourceClaims.
    pub awaits_claims: bool,
    /// DynamicResources at PostFilter: claims that do not fit are deallocated.
    pub deallocates_claims: bool,
    /// DefaultPreemption at PostFilter.
    pub preemption: Option<CandidateLimits>,
    /// `percentageOfNodesToScore`.
    pub percentage_of_nodes_to_score: Option<usize>,
}

impl Profile {
    /// Runs PreEnqueue. Returns the plugin that gates the pod.
    pub(crate) fn run_pre_enqueue(&self, pod: &PodInfo, cluster: &ClusterState) -> Option<Name> {
        let has_claims =
            || pod.resource_claims.is_empty() || cluster.devices.pod_claims(pod).is_ok();
        if self.scheduling_gates && pod.has_gates {
            Some(Name::SchedulingGates)
        } else if self.awaits_claims && !has_claims() {
            Some(Name::DynamicResources)
        } else {
            None
        }
    }
}
