//! TaintToleration: the pod tolerates the node's taints.

use std::sync::Arc;

use mizzen_component_helpers::tolerations::{Taint, Toleration, any_tolerates, first_untolerated};

use super::normalize::normalize;
use super::{FilterPlugin, Name, NodeFilter, NodeScorer, PreFilterResult, Rejection, ScorePlugin};
use crate::cache::{NodeInfo, Slot};
use crate::cluster_event::{ClusterEvent, NodeAction, PodAction};
use crate::cluster_state::ClusterState;
use crate::model::{NodeFacts, PodInfo};

pub(crate) struct TaintToleration;

/// Whether each taint list has an untolerated taint.
#[derive(Clone)]
struct TaintFilter(Box<[bool]>);

/// The number of untolerated PreferNoSchedule taints of each list.
struct TaintScorer(Box<[i64]>);

impl FilterPlugin for TaintToleration {
    fn name(&self) -> Name {
        Name::TaintToleration
    }

    fn pre_filter(&self, pod: &Arc<PodInfo>, cluster: &mut ClusterState) -> PreFilterResult {
        let lists = cluster.cache.taint_lists().iter();
        let away: Box<[bool]> = lists
            .map(|taints| first_untolerated(taints, &pod.tolerations).is_some())
            .collect();
        if away.contains(&true) {
            PreFilterResult::Filter(Box::new(TaintFilter(away)))
        } else {
            PreFilterResult::Skip
        }
    }

    fn queueing_hint(&self, pod: &PodInfo, event: &ClusterEvent, _world: &ClusterState) -> bool {
        let away = |node: &NodeFacts| first_untolerated(&node.taints, &pod.tolerations).is_some();
        match event {
            ClusterEvent::Node {
                old,
                new: Some(new),
                change,
            } => {
                change.has(NodeAction::ADD | NodeAction::TAINT)
                    && !away(new)
                    && old.is_none_or(away)
            }
            ClusterEvent::Pod {
                new: Some(new),
                change,
                ..
            } => change.has(PodAction::TOLERATION) && new.uid == pod.uid,
            _ => false,
        }
    }
}

impl NodeFilter for TaintFilter {
    fn filter(&self, node: &NodeInfo, _world: &ClusterState) -> Option<Rejection> {
        let refuse =
            || Rejection::unresolvable(Name::TaintToleration, "node(s) had untolerated taint(s)");
        self.0[node.taints as usize].then(refuse)
    }

    fn copy(&self) -> Box<dyn NodeFilter> {
        Box::new(self.clone())
    }
}

impl ScorePlugin for TaintToleration {
    fn pre_score(
        &self,
        pod: &Arc<PodInfo>,
        cluster: &mut ClusterState,
        _nodes: &[Slot],
    ) -> Option<Box<dyn NodeScorer>> {
        let soft = |toleration: &&Toleration| {
            toleration.effect.is_empty() || toleration.effect == "PreferNoSchedule"
        };
        let soft: Vec<Toleration> = pod.tolerations.iter().filter(soft).cloned().collect();
        let avoid = |taints: &[Taint]| {
            let soft_taints = taints
                .iter()
                .filter(|taint| taint.effect == "PreferNoSchedule");
            soft_taints
                .filter(|taint| !any_tolerates(&soft, taint))
                .count() as i64
        };
        let avoid: Box<[i64]> = cluster
            .cache
            .taint_lists()
            .iter()
            .map(|taints| avoid(taints))
            .collect();
        Some(Box::new(TaintScorer(avoid)))
    }
}

impl NodeScorer for TaintScorer {
    fn score_nodes(&self, cluster: &ClusterState, nodes: &[Slot]) -> Vec<i64> {
        let mut scores: Vec<i64> = nodes
            .iter()
            .map(|slot| self.0[cluster.cache.node(*slot).taints as usize])
            .collect();
        normalize(&mut scores, true);
        scores
    }
}
