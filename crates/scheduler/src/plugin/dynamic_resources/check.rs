//! Can a pod have its devices on one node?

use std::sync::Arc;

use mizzen_object::Value;
use mizzen_sdk::Object;

use super::allocate::{Wishes, offers};
use crate::HashSet;
use crate::cache::Node;
use crate::devices::DeviceId;
use crate::model::{NodeRule, Pod};
use crate::plugin::{Check, Name, Refusal};
use crate::reserve::Step;
use crate::world::World;

/// What a pod claims.
#[derive(Clone)]
pub(super) struct Claimed(Arc<Inner>);

struct Inner {
    pod: Arc<Pod>,
    /// Claims that have their devices, and where those can be used.
    allocated: Vec<(Arc<Object>, Option<NodeRule>)>,
    /// Claims that have none, and what they ask for.
    waiting: Vec<(Arc<Object>, Wishes)>,
    taken: HashSet<DeviceId>,
}

impl Claimed {
    pub fn of(pod: &Arc<Pod>, claims: Vec<Arc<Object>>, world: &World) -> Result<Claimed, String> {
        let (mut allocated, mut waiting) = (Vec::new(), Vec::new());
        for claim in claims {
            let allocation = &claim["status"]["allocation"];
            if allocation.is_null() {
                let wishes = Wishes::of(&claim, world)?;
                waiting.push((claim, wishes));
            } else {
                let rule = NodeRule::new(&Value::Null, &allocation["nodeSelector"]);
                allocated.push((claim, rule));
            }
        }
        let taken = if waiting.is_empty() { HashSet::default() } else { world.devices.taken() };
        Ok(Claimed(Arc::new(Inner { pod: pod.clone(), allocated, waiting, taken })))
    }

    /// What the claims that have no devices get on a node; none if there are too few.
    fn allocate(&self, node: &Node, world: &World) -> Result<Option<Vec<Value>>, String> {
        if self.0.waiting.is_empty() {
            return Ok(Some(Vec::new()));
        }
        let (offers, mut taken) = (offers(node, world), self.0.taken.clone());
        let wishes = self.0.waiting.iter();
        let allocations = wishes.map(|(claim, wishes)| wishes.take(claim, &offers, &mut taken, world));
        allocations.collect()
    }
}

impl Check for Claimed {
    fn check(&self, node: &Node, world: &World) -> Option<Refusal> {
        let refuse = |reason: String| Some(Refusal::for_good(Name::DynamicResources, reason));
        let elsewhere = |rule: &NodeRule| !rule.allows(node.name(), &node.facts.labels);
        if self.0.allocated.iter().any(|(_, rule)| rule.as_ref().is_some_and(elsewhere)) {
            return refuse("resourceclaim not available on the node".into());
        }
        match self.allocate(node, world) {
            Ok(Some(_)) => None,
            Ok(None) => refuse("cannot allocate all claims".into()),
            Err(error) => refuse(error),
        }
    }

    fn reserve(&self, node: &Node, world: &World) -> Result<Vec<Step>, String> {
        let allocations = self.allocate(node, world)?.ok_or("cannot allocate all claims")?;
        let step = |claim: &Arc<Object>, allocation: Option<Value>| Step::Claim {
            claim: claim.key(),
            uid: claim.uid().into(),
            allocation,
            pod: self.0.pod.clone(),
        };
        let had = self.0.allocated.iter().map(|(claim, _)| step(claim, None));
        let new = self.0.waiting.iter().zip(allocations);
        let new = new.map(|((claim, _), allocation)| step(claim, Some(allocation)));
        Ok(had.chain(new).collect())
    }

    fn copy(&self) -> Box<dyn Check> {
        Box::new(self.clone())
    }
}
