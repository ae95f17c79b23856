//! NodeAffinity: node selector and node affinity.

use std::sync::Arc;

use mizzen_component_helpers::node_affinity::NodeSelectorTerm;
use mizzen_value::Value;

use super::normalize::normalize;
use super::{FilterPlugin, Name, NodeFilter, NodeScorer, PreFilterResult, Rejection, ScorePlugin};
use crate::cache::{NodeInfo, Slot};
use crate::cluster_event::{ClusterEvent, NodeAction};
use crate::cluster_state::ClusterState;
use crate::model::{NodeFacts, NodeRule, PodInfo};

/// The plugin, with the `addedAffinity` of its profile.
#[derive(Default)]
pub(crate) struct NodeAffinity {
    added: Option<NodeRule>,
    added_preferred: Vec<(i64, NodeSelectorTerm)>,
}

impl NodeAffinity {
    /// From a profile's `addedAffinity`.
    pub(crate) fn new(added: &Value) -> NodeAffinity {
        let preferred = added["preferredDuringSchedulingIgnoredDuringExecution"]
            .list()
            .iter();
        NodeAffinity {
            added: NodeRule::new(
                &Value::Null,
                &added["requiredDuringSchedulingIgnoredDuringExecution"],
            ),
            added_preferred: preferred
                .map(|term| {
                    (
                        term["weight"].int(),
                        NodeSelectorTerm::new(&term["preference"]),
                    )
                })
                .collect(),
        }
    }
}

/// Whether each node matches, by slot.
#[derive(Clone)]
struct NodeAffinityFilter {
    added: Option<Box<[bool]>>,
    own: Option<Box<[bool]>>,
}

struct NodeAffinityScorer(Vec<(i64, NodeSelectorTerm)>);

fn allows(rule: &NodeRule, node: &NodeFacts) -> bool {
    rule.allows(&node.name, &node.labels)
}

impl FilterPlugin for NodeAffinity {
    fn name(&self) -> Name {
        Name::NodeAffinity
    }

    fn pre_filter(&self, pod: &Arc<PodInfo>, cluster: &mut ClusterState) -> PreFilterResult {
        if pod.node_rule.is_none() && self.added.is_none() {
            return PreFilterResult::Skip;
        }
        let mut learn = |rule: &NodeRule| {
            cluster.cache.evaluate_rule(rule);
            cluster.cache.rule_matches(rule).into()
        };
        let check = Box::new(NodeAffinityFilter {
            added: self.added.as_ref().map(&mut learn),
            own: pod.node_rule.as_deref().map(&mut learn),
        });
        match pod.node_rule.as_ref().and_then(|rule| rule.node_names()) {
            Some(names) if names.is_empty() => PreFilterResult::Reject(Rejection::unresolvable(
                Name::NodeAffinity,
                "pod affinity terms conflict",
            )),
            Some(names) => PreFilterResult::FilterOnly(names, check),
            None => PreFilterResult::Filter(check),
        }
    }

    fn queueing_hint(&self, pod: &PodInfo, event: &ClusterEvent, _world: &ClusterState) -> bool {
        let ClusterEvent::Node {
            old,
            new: Some(new),
            change,
        } = event
        else {
            return false;
        };
        let own = |node: &NodeFacts| pod.node_rule.as_ref().is_none_or(|rule| allows(rule, node));
        change.has(NodeAction::ADD | NodeAction::LABEL)
            && self.added.as_ref().is_none_or(|rule| allows(rule, new))
            && own(new)
            && old.is_none_or(|old| !own(old))
    }
}

impl NodeFilter for NodeAffinityFilter {
    fn filter(&self, node: &NodeInfo, _world: &ClusterState) -> Option<Rejection> {
        let refuses = |matches: &Option<Box<[bool]>>| {
            matches
                .as_ref()
                .is_some_and(|matches| matches.get(node.slot as usize) != Some(&true))
        };
        let refuse = |reason| Some(Rejection::unresolvable(Name::NodeAffinity, reason));
        if refuses(&self.added) {
            return refuse("node(s) didn't match scheduler-enforced node affinity");
        }
        if refuses(&self.own) {
            return refuse("node(s) didn't match Pod's node affinity/selector");
        }
        None
    }

    fn copy(&self) -> Box<dyn NodeFilter> {
        Box::new(self.clone())
    }
}

impl ScorePlugin for NodeAffinity {
    fn pre_score(
        &self,
        pod: &Arc<PodInfo>,
        _world: &mut ClusterState,
        _nodes: &[Slot],
    ) -> Option<Box<dyn NodeScorer>> {
        let terms: Vec<_> = self
            .added_preferred
            .iter()
            .chain(&pod.preferred_nodes)
            .cloned()
            .collect();
        if terms.is_empty() {
            None
        } else {
            Some(Box::new(NodeAffinityScorer(terms)))
        }
    }
}

impl NodeScorer for NodeAffinityScorer {
    fn score_nodes(&self, cluster: &ClusterState, nodes: &[Slot]) -> Vec<i64> {
        let score = |slot: &Slot| {
            let facts = &cluster.cache.node(*slot).facts;
            let preemptors = self
                .0
                .iter()
                .filter(|(_, term)| term.matches(&facts.name, |key| facts.labels.get(key)));
            preemptors.map(|(weight, _)| weight).sum()
        };
        let mut scores: Vec<i64> = nodes.iter().map(score).collect();
        normalize(&mut scores, false);
        scores
    }
}
