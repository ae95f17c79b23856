//! NodeName: the pod names its node.

use std::sync::Arc;

use mizzen_value::Str;

use super::{FilterPlugin, Name, NodeFilter, PreFilterResult, Rejection};
use crate::cache::NodeInfo;
use crate::cluster_event::ClusterEvent;
use crate::cluster_state::ClusterState;
use crate::model::PodInfo;

pub(crate) struct NodeName;

struct NodeNameFilter(Str);

impl FilterPlugin for NodeName {
    fn name(&self) -> Name {
        Name::NodeName
    }

    fn pre_filter(&self, pod: &Arc<PodInfo>, _world: &mut ClusterState) -> PreFilterResult {
        if pod.node.is_empty() {
            PreFilterResult::Skip
        } else {
            PreFilterResult::Filter(Box::new(NodeNameFilter(pod.node.clone())))
        }
    }

    fn queueing_hint(&self, _pod: &PodInfo, event: &ClusterEvent, _world: &ClusterState) -> bool {
        matches!(
            event,
            ClusterEvent::Node {
                old: None,
                new: Some(_),
                ..
            }
        )
    }
}

impl NodeFilter for NodeNameFilter {
    fn filter(&self, node: &NodeInfo, _world: &ClusterState) -> Option<Rejection> {
        let refuse = || {
            Rejection::unresolvable(
                Name::NodeName,
                "node(s) didn't match the requested node name",
            )
        };
        (node.name() != &self.0).then(refuse)
    }

    fn copy(&self) -> Box<dyn NodeFilter> {
        Box::new(NodeNameFilter(self.0.clone()))
    }
}
