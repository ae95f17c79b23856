//! NodeDeclaredFeatures: the node declares the features that the pod requires.

use std::sync::Arc;

use mizzen_value::Value;

use super::{FilterPlugin, Name, NodeFilter, PreFilterResult, Rejection};
use crate::cache::NodeInfo;
use crate::cluster_event::{ClusterEvent, NodeAction};
use crate::cluster_state::ClusterState;
use crate::model::{NodeFacts, PodInfo};

pub(crate) struct DeclaredFeatures;

#[derive(Clone)]
struct FeatureFilter(Vec<&'static str>);

impl FeatureFilter {
    fn from_pod(pod: &PodInfo) -> FeatureFilter {
        let Ok(object) = pod.entry.object() else {
            return FeatureFilter(Vec::new());
        };
        let spec = &object["spec"];
        let host_network = spec["hostNetwork"].bool() && spec["hostUsers"].as_bool() == Some(false);
        let containers = spec["containers"]
            .list()
            .iter()
            .chain(spec["initContainers"].list());
        let restarts_all = |container: &Value| {
            let rules = container["restartPolicyRules"].list();
            rules
                .iter()
                .any(|rule| rule["action"].str() == "RestartAllContainers")
        };
        let needs = [
            (host_network, "UserNamespacesHostNetworkSupport"),
            (
                containers.into_iter().any(restarts_all),
                "RestartAllContainersOnContainerExits",
            ),
        ];
        FeatureFilter(
            needs
                .into_iter()
                .filter(|(needed, _)| *needed)
                .map(|(_, feature)| feature)
                .collect(),
        )
    }

    fn are_met(&self, node: &NodeFacts) -> bool {
        self.0
            .iter()
            .all(|feature| node.declared_features.iter().any(|known| known == feature))
    }
}

impl FilterPlugin for DeclaredFeatures {
    fn name(&self) -> Name {
        Name::NodeDeclaredFeatures
    }

    fn pre_filter(&self, pod: &Arc<PodInfo>, _world: &mut ClusterState) -> PreFilterResult {
        if !pod.may_need_features {
            return PreFilterResult::Skip;
        }
        let needs = FeatureFilter::from_pod(pod);
        if needs.0.is_empty() {
            PreFilterResult::Skip
        } else {
            PreFilterResult::Filter(Box::new(needs))
        }
    }

    fn queueing_hint(&self, pod: &PodInfo, event: &ClusterEvent, _world: &ClusterState) -> bool {
        match event {
            ClusterEvent::Node {
                old,
                new: Some(new),
                change,
            } => {
                let needs = FeatureFilter::from_pod(pod);
                change.has(NodeAction::ADD | NodeAction::FEATURE)
                    && needs.are_met(new)
                    && old.is_none_or(|old| !needs.are_met(old))
            }
            _ => false,
        }
    }
}

impl NodeFilter for FeatureFilter {
    fn filter(&self, node: &NodeInfo, _world: &ClusterState) -> Option<Rejection> {
        let reason = "node(s) didn't match Pod's required features";
        (!self.are_met(&node.facts))
            .then(|| Rejection::unresolvable(Name::NodeDeclaredFeatures, reason))
    }

    fn copy(&self) -> Box<dyn NodeFilter> {
        Box::new(self.clone())
    }
}
