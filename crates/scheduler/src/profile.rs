//! Which plugins decide about the pods of a scheduler's name?

use mizzen_value::Str;

use crate::model::Pod;
use crate::plugin::{Filter, Name, Score};
use crate::preempt::Breadth;
use crate::world::World;

/// The plugins for one scheduler's name.
pub(crate) struct Profile {
    pub name: Str,
    pub filters: Vec<Box<dyn Filter>>,
    pub scores: Vec<(Box<dyn Score>, i64)>,
    /// Whether pods wait for their gates.
    pub gates: bool,
    /// Whether pods wait for their claims of devices.
    pub awaits_claims: bool,
    /// Whether devices are given back for a pod that cannot be where they are.
    pub frees_devices: bool,
    /// How room is made; none if it is not.
    pub preemption: Option<Breadth>,
    /// Of how many nodes in a hundred the best is chosen.
    pub share: Option<usize>,
}

impl Profile {
    /// Who does not let a pod be tried.
    pub(crate) fn gate(&self, pod: &Pod, world: &World) -> Option<Name> {
        let has_claims = || pod.resource_claims.is_empty() || world.devices.claims_of(pod).is_ok();
        if self.gates && pod.has_gates {
            Some(Name::SchedulingGates)
        } else if self.awaits_claims && !has_claims() {
            Some(Name::DynamicResources)
        } else {
            None
        }
    }
}
