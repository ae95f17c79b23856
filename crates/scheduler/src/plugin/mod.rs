//! The plugins of the scheduling framework, one file each.
//!
//! PreFilter looks at a pod once and returns a [`NodeFilter`] that has everything parsed and summed
//! up, so that filtering one more node costs a few comparisons. PreScore returns a [`NodeScorer`]
//! in the same way.

mod balanced_allocation;
mod declared_features;
mod dynamic_resources;
mod fit;
mod image_locality;
mod inter_pod_affinity;
mod node_affinity;
mod node_name;
mod node_ports;
mod node_unschedulable;
mod normalize;
mod plugin_name;
mod restricted_plugin;
mod scoring_strategy;
mod taint_toleration;
mod topology_spread;
mod volume_binding;
mod volume_limits;
mod volume_restrictions;
mod volume_zone;

use std::borrow::Cow;
use std::sync::Arc;

use mizzen_value::Str;

use crate::cache::{NodeInfo, Slot};
use crate::cluster_event::ClusterEvent;
use crate::cluster_state::ClusterState;
use crate::framework;
use crate::framework_metrics::StatusCode;
use crate::model::PodInfo;
use crate::reserve::PreBindStep;

pub(crate) use balanced_allocation::BalancedAllocation;
pub(crate) use declared_features::DeclaredFeatures;
pub(crate) use dynamic_resources::DynamicResources;
pub(crate) use fit::Fit;
pub(crate) use image_locality::ImageLocality;
pub(crate) use inter_pod_affinity::InterPodAffinity;
pub(crate) use node_affinity::NodeAffinity;
pub(crate) use node_name::NodeName;
pub(crate) use node_ports::NodePorts;
pub(crate) use node_unschedulable::NodeUnschedulable;
pub(crate) use plugin_name::{Name, PluginNames};
pub(crate) use restricted_plugin::{EnabledPhases, RestrictedPlugin};
pub(crate) use scoring_strategy::{ResourceSpec, ScoringStrategy, ScoringStrategyType};
pub(crate) use taint_toleration::TaintToleration;
pub(crate) use topology_spread::TopologySpread;
pub(crate) use volume_binding::VolumeBinding;
pub(crate) use volume_limits::VolumeLimits;
pub(crate) use volume_restrictions::VolumeRestrictions;
pub(crate) use volume_zone::VolumeZone;

/// The highest score of a node (upstream: MaxNodeScore).
pub(crate) const MAX_NODE_SCORE: i64 = 100;

/// A reason in a message; most are constant.
pub(crate) type Text = Cow<'static, str>;

/// Why a node, or every node, is rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rejection {
    pub plugin: Name,
    pub reasons: Reasons,
    /// Whether preemption could help.
    pub resolvable: bool,
}

/// One reason or several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reasons {
    One(Text),
    Several(Vec<Text>),
    /// An internal error: the pod is not scheduled in this cycle.
    Error(Text),
}

impl Reasons {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Text> {
        match self {
            Reasons::One(reason) | Reasons::Error(reason) => std::slice::from_ref(reason).iter(),
            Reasons::Several(reasons) => reasons.iter(),
        }
    }

    /// All reasons in one line.
    pub(crate) fn text(&self) -> String {
        self.iter()
            .map(AsRef::as_ref)
            .collect::<Vec<&str>>()
            .join(", ")
    }
}

impl Rejection {
    /// Unschedulable: preemption could help.
    pub(crate) fn unschedulable(plugin: Name, reason: impl Into<Text>) -> Rejection {
        Rejection {
            plugin,
            reasons: Reasons::One(reason.into()),
            resolvable: true,
        }
    }

    /// UnschedulableAndUnresolvable: preemption cannot help.
    pub(crate) fn unresolvable(plugin: Name, reason: impl Into<Text>) -> Rejection {
        Rejection {
            resolvable: false,
            ..Rejection::unschedulable(plugin, reason)
        }
    }

    pub(crate) fn code(&self) -> StatusCode {
        match self.reasons {
            Reasons::Error(_) => StatusCode::Error,
            _ if self.resolvable => StatusCode::Unschedulable,
            _ => StatusCode::UnschedulableAndUnresolvable,
        }
    }

    /// An internal error of a plugin.
    pub(crate) fn error(plugin: Name, error: impl Into<Text>) -> Rejection {
        Rejection {
            plugin,
            reasons: Reasons::Error(error.into()),
            resolvable: false,
        }
    }
}

/// The result of PreFilter.
pub(crate) enum PreFilterResult {
    /// The plugin has nothing to filter.
    Skip,
    /// Nodes are filtered.
    Filter(Box<dyn NodeFilter>),
    /// Only the nodes with these names are filtered.
    FilterOnly(Vec<Str>, Box<dyn NodeFilter>),
    /// No node fits.
    Reject(Rejection),
    /// An internal error; the pod is retried.
    Error(String),
}

impl PreFilterResult {
    pub(crate) fn code(&self) -> StatusCode {
        match self {
            PreFilterResult::Skip => StatusCode::Skip,
            PreFilterResult::Filter(_) | PreFilterResult::FilterOnly(..) => StatusCode::Success,
            PreFilterResult::Reject(rejection) => rejection.code(),
            PreFilterResult::Error(_) => StatusCode::Error,
        }
    }
}

/// A plugin at PreFilter and Filter.
pub(crate) trait FilterPlugin: Send + Sync {
    fn name(&self) -> Name;

    /// Runs PreFilter.
    fn pre_filter(&self, pod: &Arc<PodInfo>, cluster: &mut ClusterState) -> PreFilterResult;

    /// Whether an event may make a pod schedulable that this plugin rejected: Queue or QueueSkip.
    fn queueing_hint(&self, pod: &PodInfo, event: &ClusterEvent, cluster: &ClusterState) -> bool;
}

/// The Filter of one pod.
pub(crate) trait NodeFilter: Send + Sync {
    /// `None` if the pod fits.
    fn filter(&self, node: &NodeInfo, cluster: &ClusterState) -> Option<Rejection>;

    /// Adds a pod to a simulated node (`by` is 1), or removes it (-1).
    fn simulate_pod(&mut self, _pod: &PodInfo, _node: &NodeInfo, _by: i64, _world: &ClusterState) {}

    /// The steps to run before the pod is bound to a node.
    fn reserve(&self, _node: &NodeInfo, _world: &ClusterState) -> Result<Vec<PreBindStep>, String> {
        Ok(Vec::new())
    }

    /// A copy for a simulation.
    fn copy(&self) -> Box<dyn NodeFilter>;

    /// The state of a plugin out of tree.
    fn custom_state(&self) -> Option<(Name, &framework::CycleState)> {
        None
    }
}

/// A plugin at PreScore and Score.
pub(crate) trait ScorePlugin: Send + Sync {
    /// Runs PreScore with the nodes that fit. `None` if all nodes are equal.
    fn pre_score(
        &self,
        pod: &Arc<PodInfo>,
        cluster: &mut ClusterState,
        nodes: &[Slot],
    ) -> Option<Box<dyn NodeScorer>>;
}

/// The Score of one pod.
pub(crate) trait NodeScorer: Send {
    /// From 0 to [`MAX_NODE_SCORE`] for each node.
    fn score_nodes(&self, cluster: &ClusterState, nodes: &[Slot]) -> Vec<i64>;
}

#[cfg(test)]
mod tests;
