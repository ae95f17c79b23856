//! How good are the devices that a pod gets on a node? The better the alternatives, the better the node.

use std::sync::Arc;

use mizzen_sdk::Object;
use mizzen_value::Value;

use super::check::Claimed;
use super::wish::alternatives;
use crate::cache::Slot;
use crate::plugin::Rank;
use crate::plugin::normalize::normalize;
use crate::world::World;

/// How many alternatives a request can have.
const MOST_ALTERNATIVES: usize = 8;

impl Rank for Claimed {
    fn rank(&self, world: &World, nodes: &[Slot]) -> Vec<i64> {
        let score = |slot: &Slot| {
            let allocations = self
                .allocate(world.cache.node(*slot), world)
                .unwrap_or_default();
            allocations
                .iter()
                .map(|(claim, allocation)| score(claim, allocation))
                .sum()
        };
        let mut scores: Vec<i64> = nodes.iter().map(score).collect();
        normalize(&mut scores, false);
        scores
    }
}

fn score(claim: &Arc<Object>, allocation: &Value) -> i64 {
    let results = allocation["devices"]["results"].list();
    let is_had = |name: &str| results.iter().any(|result| result["request"].str() == name);
    let rank = |request: &Value| {
        let alternatives = alternatives(request);
        let had = alternatives
            .iter()
            .position(|(name, _)| name.contains('/') && is_had(name));
        had.map_or(0, |at| MOST_ALTERNATIVES.saturating_sub(at) as i64)
    };
    claim["spec"]["devices"]["requests"]
        .list()
        .iter()
        .map(rank)
        .sum()
}
