//! A plugin of which a profile wants only a part: that it looks at pods but at no nodes, or that it gets nothing done
//! before pods are bound.

use std::sync::Arc;

use super::{Check, Filter, Name, Ready, Refusal};
use crate::cache::Node;
use crate::happening::Happening;
use crate::model::Pod;
use crate::reserve::Step;
use crate::world::World;

/// A plugin, and what is wanted of it.
pub(crate) struct Partial {
    pub whole: Box<dyn Filter>,
    pub wanted: Wanted,
}

/// What is wanted of a plugin besides that it looks at pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Whether it checks nodes.
    pub checks: bool,
    /// Whether it gets things done.
    pub reserves: bool,
}

impl Filter for Partial {
    fn name(&self) -> Name {
        self.whole.name()
    }

    fn prepare(&self, pod: &Arc<Pod>, world: &mut World) -> Ready {
        let part = |whole: Box<dyn Check>| {
            Box::new(Part {
                whole,
                wanted: self.wanted,
            })
        };
        match self.whole.prepare(pod, world) {
            Ready::Check(check) => Ready::Check(part(check)),
            Ready::Only(names, check) => Ready::Only(names, part(check)),
            other => other,
        }
    }

    fn wakes(&self, pod: &Pod, happening: &Happening, world: &World) -> bool {
        self.whole.wakes(pod, happening, world)
    }
}

struct Part {
    whole: Box<dyn Check>,
    wanted: Wanted,
}

impl Check for Part {
    fn check(&self, node: &Node, world: &World) -> Option<Refusal> {
        self.wanted
            .checks
            .then(|| self.whole.check(node, world))
            .flatten()
    }

    fn imagine(&mut self, pod: &Pod, node: &Node, by: i64, world: &World) {
        self.whole.imagine(pod, node, by, world);
    }

    fn reserve(&self, node: &Node, world: &World) -> Result<Vec<Step>, String> {
        if self.wanted.reserves {
            self.whole.reserve(node, world)
        } else {
            Ok(Vec::new())
        }
    }

    fn copy(&self) -> Box<dyn Check> {
        Box::new(Part {
            whole: self.whole.copy(),
            wanted: self.wanted,
        })
    }
}
