//! Does the pod name its node itself?

use std::sync::Arc;

use mizzen_value::Str;

use super::{Check, Filter, Name, Ready, Refusal};
use crate::cache::Node;
use crate::happening::Happening;
use crate::model::Pod;
use crate::world::World;

pub(crate) struct NodeName;

struct Named(Str);

impl Filter for NodeName {
    fn name(&self) -> Name {
        Name::NodeName
    }

    fn prepare(&self, pod: &Arc<Pod>, _world: &mut World) -> Ready {
        if pod.node.is_empty() {
            Ready::Skip
        } else {
            Ready::Check(Box::new(Named(pod.node.clone())))
        }
    }

    fn wakes(&self, _pod: &Pod, happening: &Happening, _world: &World) -> bool {
        matches!(
            happening,
            Happening::Node {
                old: None,
                new: Some(_),
                ..
            }
        )
    }
}

impl Check for Named {
    fn check(&self, node: &Node, _world: &World) -> Option<Refusal> {
        let refuse = || {
            Refusal::for_good(
                Name::NodeName,
                "node(s) didn't match the requested node name",
            )
        };
        (node.name() != &self.0).then(refuse)
    }

    fn copy(&self) -> Box<dyn Check> {
        Box::new(Named(self.0.clone()))
    }
}
