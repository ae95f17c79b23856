//! Does the pod tolerate the node's taints?

use std::sync::Arc;

use mizzen_kinds::tolerations::{Taint, Toleration, any_tolerates, first_untolerated};

use super::normalize::normalize;
use super::{Check, Filter, Name, Rank, Ready, Refusal, Score};
use crate::cache::{Node, Slot};
use crate::happening::{Happening, NodeChange, PodChange};
use crate::model::{NodeFacts, Pod};
use crate::world::World;

pub(crate) struct TaintToleration;

/// Whether each list of taints keeps the pod away.
#[derive(Clone)]
struct Away(Box<[bool]>);

/// How many taints of each list the pod would rather avoid.
struct Avoid(Box<[i64]>);

impl Filter for TaintToleration {
    fn name(&self) -> Name {
        Name::TaintToleration
    }

    fn prepare(&self, pod: &Arc<Pod>, world: &mut World) -> Ready {
        let lists = world.cache.taint_lists().iter();
        let away: Box<[bool]> = lists
            .map(|taints| first_untolerated(taints, &pod.tolerations).is_some())
            .collect();
        if away.contains(&true) {
            Ready::Check(Box::new(Away(away)))
        } else {
            Ready::Skip
        }
    }

    fn wakes(&self, pod: &Pod, happening: &Happening, _world: &World) -> bool {
        let away = |node: &NodeFacts| first_untolerated(&node.taints, &pod.tolerations).is_some();
        match happening {
            Happening::Node {
                old,
                new: Some(new),
                change,
            } => {
                change.has(NodeChange::ADD | NodeChange::TAINT)
                    && !away(new)
                    && old.is_none_or(away)
            }
            Happening::Pod {
                new: Some(new),
                change,
                ..
            } => change.has(PodChange::TOLERATION) && new.uid == pod.uid,
            _ => false,
        }
    }
}

impl Check for Away {
    fn check(&self, node: &Node, _world: &World) -> Option<Refusal> {
        let refuse =
            || Refusal::for_good(Name::TaintToleration, "node(s) had untolerated taint(s)");
        self.0[node.taints as usize].then(refuse)
    }

    fn copy(&self) -> Box<dyn Check> {
        Box::new(self.clone())
    }
}

impl Score for TaintToleration {
    fn prepare(&self, pod: &Arc<Pod>, world: &mut World, _nodes: &[Slot]) -> Option<Box<dyn Rank>> {
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
        let avoid: Box<[i64]> = world
            .cache
            .taint_lists()
            .iter()
            .map(|taints| avoid(taints))
            .collect();
        Some(Box::new(Avoid(avoid)))
    }
}

impl Rank for Avoid {
    fn rank(&self, world: &World, nodes: &[Slot]) -> Vec<i64> {
        let mut scores: Vec<i64> = nodes
            .iter()
            .map(|slot| self.0[world.cache.node(*slot).taints as usize])
            .collect();
        normalize(&mut scores, true);
        scores
    }
}
