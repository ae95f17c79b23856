//! NodeUnschedulable: the node is not cordoned.

use std::sync::Arc;

use mizzen_component_helpers::tolerations::{Taint, any_tolerates};

use super::{FilterPlugin, Name, NodeFilter, PreFilterResult, Rejection};
use crate::cache::NodeInfo;
use crate::cluster_event::{ClusterEvent, NodeAction, PodAction};
use crate::cluster_state::ClusterState;
use crate::model::PodInfo;

pub(crate) struct NodeUnschedulable;

struct UnschedulableFilter;

/// The taint that a cordoned node has, or is about to get.
fn unschedulable_taint() -> Taint {
    Taint {
        key: "node.kubernetes.io/unschedulable".into(),
        value: "".into(),
        effect: "NoSchedule".into(),
    }
}

impl FilterPlugin for NodeUnschedulable {
    fn name(&self) -> Name {
        Name::NodeUnschedulable
    }

    fn pre_filter(&self, pod: &Arc<PodInfo>, _world: &mut ClusterState) -> PreFilterResult {
        if any_tolerates(&pod.tolerations, &unschedulable_taint()) {
            PreFilterResult::Skip
        } else {
            PreFilterResult::Filter(Box::new(UnschedulableFilter))
        }
    }

    fn queueing_hint(&self, pod: &PodInfo, event: &ClusterEvent, _world: &ClusterState) -> bool {
        match event {
            ClusterEvent::Node {
                old,
                new: Some(new),
                change,
            } => {
                change.has(NodeAction::ADD | NodeAction::TAINT)
                    && !new.unschedulable
                    && old.is_none_or(|old| old.unschedulable)
            }
            ClusterEvent::Pod {
                new: Some(new),
                change,
                ..
            } => {
                change.has(PodAction::TOLERATION)
                    && new.uid == pod.uid
                    && any_tolerates(&new.tolerations, &unschedulable_taint())
            }
            _ => false,
        }
    }
}

impl NodeFilter for UnschedulableFilter {
    fn filter(&self, node: &NodeInfo, _world: &ClusterState) -> Option<Rejection> {
        let refuse =
            || Rejection::unresolvable(Name::NodeUnschedulable, "node(s) were unschedulable");
        node.facts.unschedulable.then(refuse)
    }

    fn copy(&self) -> Box<dyn NodeFilter> {
        Box::new(UnschedulableFilter)
    }
}
