//! Can a pod have its devices on one node?

use std::sync::Arc;

use mizzen_object::{Str, Value};
use mizzen_sdk::Object;

use super::allocation::allocation;
use super::pool::pools;
use super::search::Search;
use super::wish::Wishes;
use crate::cache::Node;
use crate::devices::Taken;
use crate::model::{NodeRule, Pod};
use crate::plugin::{Check, Name, Refusal};
use crate::reserve::Step;
use crate::world::World;

/// Claims, and what each gets.
type Allocated<'a> = Vec<(&'a Arc<Object>, Value)>;

/// What a pod claims.
#[derive(Clone)]
pub(super) struct Claimed(Arc<Inner>);

struct Inner {
    pod: Arc<Pod>,
    /// Claims that have their devices, and where those can be used.
    allocated: Vec<(Arc<Object>, Option<NodeRule>)>,
    /// Claims that have none.
    waiting: Vec<Arc<Object>>,
    /// What they ask for, with their names.
    wishes: Vec<(Str, Wishes)>,
    taken: Taken,
}

impl Claimed {
    pub fn of(pod: &Arc<Pod>, claims: Vec<Arc<Object>>, world: &World) -> Result<Claimed, String> {
        let (mut allocated, mut waiting, mut wishes) = (Vec::new(), Vec::new(), Vec::new());
        for claim in claims {
            let allocation = &claim["status"]["allocation"];
            if allocation.is_null() {
                let name = format!("{}/{}", claim.namespace(), claim.name());
                wishes.push((name.into(), Wishes::of(&claim, &world.devices)?));
                waiting.push(claim);
            } else {
                let rule = NodeRule::new(&Value::Null, &allocation["nodeSelector"]);
                allocated.push((claim, rule));
            }
        }
        let taken = if waiting.is_empty() { Taken::default() } else { world.devices.taken() };
        Ok(Claimed(Arc::new(Inner { pod: pod.clone(), allocated, waiting, wishes, taken })))
    }

    /// Whether a choice is left between better and worse.
    pub fn has_alternatives(&self) -> bool {
        let has = |claim: &Arc<Object>| {
            let requests = claim["spec"]["devices"]["requests"].list();
            requests.iter().any(|request| !request["firstAvailable"].is_empty())
        };
        self.0.waiting.iter().any(has)
    }

    /// The claims that have no devices, with what each gets on a node; none if there are too few.
    pub fn allocate(&self, node: &Node, world: &World) -> Result<Option<Allocated<'_>>, String> {
        if self.0.waiting.is_empty() {
            return Ok(Some(Vec::new()));
        }
        let pools = pools(node, &world.devices, &self.0.taken);
        let Some(got) = Search::run(&self.0.wishes, &pools, &self.0.taken)? else { return Ok(None) };
        let claims = self.0.waiting.iter().zip(&self.0.wishes).zip(&got);
        let allocated = claims.map(|((claim, (_, wishes)), got)| {
            (claim, allocation(claim, wishes, got, node.name(), &world.devices))
        });
        Ok(Some(allocated.collect()))
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
        let new = allocations.into_iter().map(|(claim, allocation)| step(claim, Some(allocation)));
        Ok(had.chain(new).collect())
    }

    fn copy(&self) -> Box<dyn Check> {
        Box::new(self.clone())
    }
}
