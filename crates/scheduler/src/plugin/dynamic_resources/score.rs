//! The Score of DynamicResources: subrequests that come earlier score higher.

use std::sync::Arc;

use mizzen_sdk::Object;
use mizzen_value::Value;

use super::filter::ClaimsFilter;
use super::request::subrequests;
use crate::cache::Slot;
use crate::cluster_state::ClusterState;
use crate::plugin::NodeScorer;
use crate::plugin::normalize::normalize;

/// The most subrequests of a request (upstream: FirstAvailableDeviceRequestMaxSize).
const MAX_SUBREQUESTS: usize = 8;

impl NodeScorer for ClaimsFilter {
    fn score_nodes(&self, cluster: &ClusterState, nodes: &[Slot]) -> Vec<i64> {
        let score = |slot: &Slot| {
            let allocations = self
                .allocate(cluster.cache.node(*slot), cluster)
                .unwrap_or_default();
            allocations
                .iter()
                .map(|(claim, allocation)| claim_score(claim, allocation))
                .sum()
        };
        let mut scores: Vec<i64> = nodes.iter().map(score).collect();
        normalize(&mut scores, false);
        scores
    }
}

fn claim_score(claim: &Arc<Object>, allocation: &Value) -> i64 {
    let results = allocation["devices"]["results"].list();
    let is_had = |name: &str| results.iter().any(|result| result["request"].str() == name);
    let rank = |request: &Value| {
        let subrequests = subrequests(request);
        let had = subrequests
            .iter()
            .position(|(name, _)| name.contains('/') && is_had(name));
        had.map_or(0, |at| MAX_SUBREQUESTS.saturating_sub(at) as i64)
    };
    claim["spec"]["devices"]["requests"]
        .list()
        .iter()
        .map(rank)
        .sum()
}
