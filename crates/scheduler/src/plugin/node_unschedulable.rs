//! Was the node closed?

use std::sync::Arc;

use mizzen_kinds::tolerations::{Taint, any_tolerates};

use super::{Check, Filter, Name, Ready, Refusal};
use crate::cache::Node;
use crate::happening::{Happening, NodeChange, PodChange};
use crate::model::Pod;
use crate::world::World;

pub(crate) struct NodeUnschedulable;

struct Open;

/// The taint that a closed node has, or soon will have.
fn closed() -> Taint {
    Taint {
        key: "node.kubernetes.io/unschedulable".into(),
        value: "".into(),
        effect: "NoSchedule".into(),
    }
}

impl Filter for NodeUnschedulable {
    fn name(&self) -> Name {
        Name::NodeUnschedulable
    }

    fn prepare(&self, pod: &Arc<Pod>, _world: &mut World) -> Ready {
        if any_tolerates(&pod.tolerations, &closed()) {
            Ready::Skip
        } else {
            Ready::Check(Box::new(Open))
        }
    }

    fn wakes(&self, pod: &Pod, happening: &Happening, _world: &World) -> bool {
        match happening {
            Happening::Node {
                old,
                new: Some(new),
                change,
            } => {
                change.has(NodeChange::ADD | NodeChange::TAINT)
                    && !new.unschedulable
                    && old.is_none_or(|old| old.unschedulable)
            }
            Happening::Pod {
                new: Some(new),
                change,
                ..
            } => {
                change.has(PodChange::TOLERATION)
                    && new.uid == pod.uid
                    && any_tolerates(&new.tolerations, &closed())
            }
            _ => false,
        }
    }
}

impl Check for Open {
    fn check(&self, node: &Node, _world: &World) -> Option<Refusal> {
        let refuse = || Refusal::for_good(Name::NodeUnschedulable, "node(s) were unschedulable");
        node.facts.unschedulable.then(refuse)
    }

    fn copy(&self) -> Box<dyn Check> {
        Box::new(Open)
    }
}
