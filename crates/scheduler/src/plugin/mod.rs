//! What speaks against a node, and what for it? A file per plugin.
//!
//! A plugin looks at a pod once and makes a [`Check`] (may it be on this node?) or a [`Rank`] (how good is this node?) that
//! has everything parsed and summed up, so that looking at one more node costs a few comparisons.

mod balanced;
mod declared_features;
mod dynamic_resources;
mod fit;
mod image_locality;
mod inter_pod_affinity;
mod name;
mod node_affinity;
mod node_name;
mod node_ports;
mod node_unschedulable;
mod normalize;
mod partial;
mod strategy;
mod taint_toleration;
mod topology_spread;
mod volume_binding;
mod volume_limits;
mod volume_restrictions;
mod volume_zone;

use std::borrow::Cow;
use std::sync::Arc;

use mizzen_value::Str;

use crate::cache::{Node, Slot};
use crate::happening::Happening;
use crate::model::Pod;
use crate::reserve::Step;
use crate::world::World;

pub(crate) use balanced::Balanced;
pub(crate) use declared_features::DeclaredFeatures;
pub(crate) use dynamic_resources::DynamicResources;
pub(crate) use fit::Fit;
pub(crate) use image_locality::ImageLocality;
pub(crate) use inter_pod_affinity::InterPodAffinity;
pub(crate) use name::{Name, Names};
pub(crate) use node_affinity::NodeAffinity;
pub(crate) use node_name::NodeName;
pub(crate) use node_ports::NodePorts;
pub(crate) use node_unschedulable::NodeUnschedulable;
pub(crate) use partial::{Partial, Wanted};
pub(crate) use strategy::{Measure, Strategy, Weighted};
pub(crate) use taint_toleration::TaintToleration;
pub(crate) use topology_spread::TopologySpread;
pub(crate) use volume_binding::VolumeBinding;
pub(crate) use volume_limits::VolumeLimits;
pub(crate) use volume_restrictions::VolumeRestrictions;
pub(crate) use volume_zone::VolumeZone;

/// The best that a node can be.
pub(crate) const BEST: i64 = 100;

/// A text for people; most never change.
pub(crate) type Text = Cow<'static, str>;

/// Why a pod cannot be on a node, or on any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// Who says so.
    pub plugin: Name,
    pub reasons: Reasons,
    /// Whether it could be if other pods went.
    pub resolvable: bool,
}

/// One reason or several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reasons {
    One(Text),
    Several(Vec<Text>),
    /// It cannot be known, so that the pod is not placed anywhere.
    Error(Text),
}

impl Reasons {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Text> {
        match self {
            Reasons::One(reason) | Reasons::Error(reason) => std::slice::from_ref(reason).iter(),
            Reasons::Several(reasons) => reasons.iter(),
        }
    }

    /// All of them in one line.
    pub(crate) fn text(&self) -> String {
        self.iter()
            .map(AsRef::as_ref)
            .collect::<Vec<&str>>()
            .join(", ")
    }
}

impl Refusal {
    /// It could be if other pods went.
    pub(crate) fn for_now(plugin: Name, reason: impl Into<Text>) -> Refusal {
        Refusal {
            plugin,
            reasons: Reasons::One(reason.into()),
            resolvable: true,
        }
    }

    /// It could not be even if other pods went.
    pub(crate) fn for_good(plugin: Name, reason: impl Into<Text>) -> Refusal {
        Refusal {
            resolvable: false,
            ..Refusal::for_now(plugin, reason)
        }
    }

    /// Nobody can say whether it could be.
    pub(crate) fn error(plugin: Name, error: impl Into<Text>) -> Refusal {
        Refusal {
            plugin,
            reasons: Reasons::Error(error.into()),
            resolvable: false,
        }
    }
}

/// What a plugin makes of a pod.
pub(crate) enum Ready {
    /// It has nothing to say.
    Skip,
    /// Nodes are to be checked.
    Check(Box<dyn Check>),
    /// Nodes are to be checked, but only those of these names.
    Only(Vec<Str>, Box<dyn Check>),
    /// No node will do.
    Refuse(Refusal),
    /// Something is wrong; try again.
    Fail(String),
}

/// Decides whether pods may be on nodes.
pub(crate) trait Filter: Send + Sync {
    fn name(&self) -> Name;

    /// Looks at a pod.
    fn prepare(&self, pod: &Arc<Pod>, world: &mut World) -> Ready;

    /// Whether something that happened can make a pod schedulable that this plugin refused.
    fn wakes(&self, pod: &Pod, happening: &Happening, world: &World) -> bool;
}

/// Whether one pod may be on a node.
pub(crate) trait Check: Send + Sync {
    /// Why not; none if it may.
    fn check(&self, node: &Node, world: &World) -> Option<Refusal>;

    /// Another pod is imagined on a node, or away from it.
    fn imagine(&mut self, _pod: &Pod, _node: &Node, _by: i64, _world: &World) {}

    /// What must be done before the pod is bound to a node.
    fn reserve(&self, _node: &Node, _world: &World) -> Result<Vec<Step>, String> {
        Ok(Vec::new())
    }

    /// A copy for imagining.
    fn copy(&self) -> Box<dyn Check>;
}

/// Decides how good nodes are for pods.
pub(crate) trait Score: Send + Sync {
    /// Looks at a pod that may be on these nodes; none if it is all the same on which.
    fn prepare(&self, pod: &Arc<Pod>, world: &mut World, nodes: &[Slot]) -> Option<Box<dyn Rank>>;
}

/// How good nodes are for one pod.
pub(crate) trait Rank: Send {
    /// From 0 to [`BEST`] for each node.
    fn rank(&self, world: &World, nodes: &[Slot]) -> Vec<i64>;
}

#[cfg(test)]
mod tests;
