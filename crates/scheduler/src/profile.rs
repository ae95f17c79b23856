//! Profiles: the plugins for the pods of one scheduler name.

use std::sync::Arc;

use mizzen_value::Str;

use crate::cluster_state::ClusterState;
use crate::framework::CustomPlugin;
use crate::framework_metrics::FrameworkMetrics;
use crate::model::PodInfo;
use crate::plugin::{FilterPlugin, Name, ScorePlugin};
use crate::preemption::CandidateLimits;

/// The plugins for one scheduler name.
pub(crate) struct Profile {
    pub name: Str,
    pub metrics: Arc<FrameworkMetrics>,
    pub filters: Vec<Box<dyn FilterPlugin>>,
    /// Score plugins with their weights.
    pub scores: Vec<(Name, Box<dyn ScorePlugin>, i64)>,
    /// SchedulingGates at PreEnqueue.
    pub scheduling_gates: bool,
    /// DynamicResources at PreEnqueue: pods wait for their ResourceClaims.
    pub awaits_claims: bool,
    /// The plugins at PostFilter, in order.
    pub post_filters: Vec<PostFilterPlugin>,
    /// The plugins out of tree at Score, and their weights.
    pub custom_scores: Vec<(CustomPlugin, i64)>,
    /// The plugins out of tree at Reserve.
    pub reserves: Vec<CustomPlugin>,
    /// The plugins at Permit; none is in tree.
    pub permits: Vec<CustomPlugin>,
    /// The plugins out of tree at PreBind.
    pub pre_binds: Vec<CustomPlugin>,
    /// `percentageOfNodesToScore`.
    pub percentage_of_nodes_to_score: Option<usize>,
}

/// A plugin at PostFilter.
pub(crate) enum PostFilterPlugin {
    /// DynamicResources: claims that do not fit are deallocated.
    DeallocateClaims,
    /// DefaultPreemption.
    Preemption(CandidateLimits),
    /// A plugin out of tree.
    Custom(CustomPlugin),
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
