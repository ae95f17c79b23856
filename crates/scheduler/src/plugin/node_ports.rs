//! NodePorts: the host ports of the pod are free on the node.

use std::sync::Arc;

use mizzen_component_helpers::host_ports::HostPort;

use super::{FilterPlugin, Name, NodeFilter, PreFilterResult, Rejection};
use crate::cache::NodeInfo;
use crate::cluster_event::ClusterEvent;
use crate::cluster_state::ClusterState;
use crate::model::PodInfo;

pub(crate) struct NodePorts;

#[derive(Clone)]
struct HostPortsFilter(Box<[HostPort]>);

impl FilterPlugin for NodePorts {
    fn name(&self) -> Name {
        Name::NodePorts
    }

    fn pre_filter(&self, pod: &Arc<PodInfo>, _world: &mut ClusterState) -> PreFilterResult {
        if pod.host_ports.is_empty() {
            PreFilterResult::Skip
        } else {
            PreFilterResult::Filter(Box::new(HostPortsFilter(pod.host_ports.clone())))
        }
    }

    fn queueing_hint(&self, pod: &PodInfo, event: &ClusterEvent, _world: &ClusterState) -> bool {
        match event {
            ClusterEvent::Node {
                old: None,
                new: Some(_),
                ..
            } => true,
            ClusterEvent::Pod {
                old: Some(gone),
                new: None,
                ..
            } => {
                let freed =
                    |port: &HostPort| gone.host_ports.iter().any(|freed| freed.conflicts(port));
                gone.is_assigned_or_nominated() && pod.host_ports.iter().any(freed)
            }
            _ => false,
        }
    }
}

impl NodeFilter for HostPortsFilter {
    fn filter(&self, node: &NodeInfo, _world: &ClusterState) -> Option<Rejection> {
        let reason = "node(s) didn't have free ports for the requested pod ports";
        let taken = self.0.iter().any(|port| node.is_port_in_use(port));
        taken.then(|| Rejection::unschedulable(Name::NodePorts, reason))
    }

    fn copy(&self) -> Box<dyn NodeFilter> {
        Box::new(self.clone())
    }
}
