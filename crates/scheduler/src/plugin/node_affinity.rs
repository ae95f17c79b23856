//! Does the node have the labels that the pod wants?

use std::sync::Arc;

use mizzen_kinds::node_affinity::NodeSelectorTerm;
use mizzen_value::Value;

use super::normalize::normalize;
use super::{Check, Filter, Name, Rank, Ready, Refusal, Score};
use crate::cache::{Node, Slot};
use crate::happening::{Happening, NodeChange};
use crate::model::{NodeFacts, NodeRule, Pod};
use crate::world::World;

/// What the configuration demands of nodes for every pod.
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

/// What is said of each node.
#[derive(Clone)]
struct Allowed {
    added: Option<Box<[bool]>>,
    own: Option<Box<[bool]>>,
}

struct Preferred(Vec<(i64, NodeSelectorTerm)>);

fn allows(rule: &NodeRule, node: &NodeFacts) -> bool {
    rule.allows(&node.name, &node.labels)
}

impl Filter for NodeAffinity {
    fn name(&self) -> Name {
        Name::NodeAffinity
    }

    fn prepare(&self, pod: &Arc<Pod>, world: &mut World) -> Ready {
        if pod.node_rule.is_none() && self.added.is_none() {
            return Ready::Skip;
        }
        let mut learn = |rule: &NodeRule| {
            world.cache.learn(rule);
            world.cache.answers(rule).into()
        };
        let check = Box::new(Allowed {
            added: self.added.as_ref().map(&mut learn),
            own: pod.node_rule.as_deref().map(&mut learn),
        });
        match pod.node_rule.as_ref().and_then(|rule| rule.named()) {
            Some(names) if names.is_empty() => Ready::Refuse(Refusal::for_good(
                Name::NodeAffinity,
                "pod affinity terms conflict",
            )),
            Some(names) => Ready::Only(names, check),
            None => Ready::Check(check),
        }
    }

    fn wakes(&self, pod: &Pod, happening: &Happening, _world: &World) -> bool {
        let Happening::Node {
            old,
            new: Some(new),
            change,
        } = happening
        else {
            return false;
        };
        let own = |node: &NodeFacts| pod.node_rule.as_ref().is_none_or(|rule| allows(rule, node));
        change.has(NodeChange::ADD | NodeChange::LABEL)
            && self.added.as_ref().is_none_or(|rule| allows(rule, new))
            && own(new)
            && old.is_none_or(|old| !own(old))
    }
}

impl Check for Allowed {
    fn check(&self, node: &Node, _world: &World) -> Option<Refusal> {
        let refuses = |answers: &Option<Box<[bool]>>| {
            answers
                .as_ref()
                .is_some_and(|answers| answers.get(node.slot as usize) != Some(&true))
        };
        let refuse = |reason| Some(Refusal::for_good(Name::NodeAffinity, reason));
        if refuses(&self.added) {
            return refuse("node(s) didn't match scheduler-enforced node affinity");
        }
        if refuses(&self.own) {
            return refuse("node(s) didn't match Pod's node affinity/selector");
        }
        None
    }

    fn copy(&self) -> Box<dyn Check> {
        Box::new(self.clone())
    }
}

impl Score for NodeAffinity {
    fn prepare(
        &self,
        pod: &Arc<Pod>,
        _world: &mut World,
        _nodes: &[Slot],
    ) -> Option<Box<dyn Rank>> {
        let terms: Vec<_> = self
            .added_preferred
            .iter()
            .chain(&pod.preferred_nodes)
            .cloned()
            .collect();
        if terms.is_empty() {
            None
        } else {
            Some(Box::new(Preferred(terms)))
        }
    }
}

impl Rank for Preferred {
    fn rank(&self, world: &World, nodes: &[Slot]) -> Vec<i64> {
        let score = |slot: &Slot| {
            let facts = &world.cache.node(*slot).facts;
            let holding = self
                .0
                .iter()
                .filter(|(_, term)| term.matches(&facts.name, |key| facts.labels.get(key)));
            holding.map(|(weight, _)| weight).sum()
        };
        let mut scores: Vec<i64> = nodes.iter().map(score).collect();
        normalize(&mut scores, false);
        scores
    }
}
