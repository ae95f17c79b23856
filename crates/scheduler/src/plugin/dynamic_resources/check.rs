//! Can a pod have its devices on one node?

use std::sync::Arc;

use mizzen_sdk::Object;
use mizzen_value::{Str, Value};

use super::allocation::allocation;
use super::pool::pools;
use super::search::{Failure, Search};
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
    pub(super) fn of(
        pod: &Arc<Pod>,
        claims: Vec<Arc<Object>>,
        world: &World,
    ) -> Result<Claimed, String> {
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
        let taken = if waiting.is_empty() {
            Taken::default()
        } else {
            world.devices.taken()
        };
        Ok(Claimed(Arc::new(Inner {
            pod: pod.clone(),
            allocated,
            waiting,
            wishes,
            taken,
        })))
    }

    /// Whether a choice is left between better and worse.
    pub(super) fn has_alternatives(&self) -> bool {
        let has = |claim: &Arc<Object>| {
            let requests = claim["spec"]["devices"]["requests"].list();
            requests
                .iter()
                .any(|request| !request["firstAvailable"].is_empty())
        };
        self.0.waiting.iter().any(has)
    }

    /// The claims that have no devices, with what each gets on a node.
    pub(super) fn allocate(&self, node: &Node, world: &World) -> Result<Allocated<'_>, Failure> {
        if self.0.waiting.is_empty() {
            return Ok(Vec::new());
        }
        let pools = pools(node, &world.devices, &self.0.taken);
        let got = Search::run(&self.0.wishes, &pools, &self.0.taken)?;
        let claims = self.0.waiting.iter().zip(&self.0.wishes).zip(&got);
        let allocated = claims.map(|((claim, (_, wishes)), got)| {
            (
                claim,
                allocation(claim, wishes, got, node.name(), &world.devices),
            )
        });
        Ok(allocated.collect())
    }
}

impl Check for Claimed {
    fn check(&self, node: &Node, world: &World) -> Option<Refusal> {
        let refuse = |reason: &'static str| Some(Refusal::for_good(Name::DynamicResources, reason));
        let fail = |error: String| Some(Refusal::error(Name::DynamicResources, error));
        let elsewhere = |rule: &NodeRule| !rule.allows(node.name(), &node.facts.labels);
        if self
            .0
            .allocated
            .iter()
            .any(|(_, rule)| rule.as_ref().is_some_and(elsewhere))
        {
            return refuse("resourceclaim not available on the node");
        }
        match self.allocate(node, world) {
            Ok(_) => None,
            Err(Failure::Unfit(reason)) => refuse(reason),
            Err(Failure::Late) => fail(format!(
                "node {}: timed out trying to allocate devices",
                node.name()
            )),
            Err(Failure::Error(error)) => fail(error),
        }
    }

    fn reserve(&self, node: &Node, world: &World) -> Result<Vec<Step>, String> {
        // It was possible when the node was checked.
        let allocations = self
            .allocate(node, world)
            .map_err(|failure| format!("{failure:?}"))?;
        let step = |claim: &Arc<Object>, allocation: Option<Value>| Step::Claim {
            claim: claim.key(),
            uid: claim.uid().into(),
            allocation,
            pod: self.0.pod.clone(),
        };
        let had = self.0.allocated.iter().map(|(claim, _)| step(claim, None));
        let new = allocations
            .into_iter()
            .map(|(claim, allocation)| step(claim, Some(allocation)));
        Ok(had.chain(new).collect())
    }

    fn copy(&self) -> Box<dyn Check> {
        Box::new(self.clone())
    }
}
