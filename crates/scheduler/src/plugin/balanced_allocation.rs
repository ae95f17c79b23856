//! NodeResourcesBalancedAllocation: prefers nodes whose resources are used evenly.

use std::sync::Arc;

use super::scoring_strategy::{ResourceKind, ResourceSpec};
use super::{MAX_NODE_SCORE, NodeScorer, ScorePlugin};
use crate::cache::{NodeInfo, Slot};
use crate::cluster_state::ClusterState;
use crate::model::PodInfo;

/// The plugin, with the resources that it balances.
pub(crate) struct BalancedAllocation {
    pub resources: Vec<ResourceSpec>,
}

/// Each resource with the pod's request.
struct BalanceScorer(Vec<(ResourceKind, i64)>);

impl ScorePlugin for BalancedAllocation {
    fn pre_score(
        &self,
        pod: &Arc<PodInfo>,
        _world: &mut ClusterState,
        _nodes: &[Slot],
    ) -> Option<Box<dyn NodeScorer>> {
        let want = |resource: &ResourceSpec| {
            let which = ResourceKind::from_name(&resource.name);
            let want = which.amount(&pod.requests.stated);
            which.matters(want).then_some((which, want))
        };
        let wants: Vec<_> = self.resources.iter().filter_map(want).collect();
        // Pods without requests would all get the same node.
        if wants.iter().all(|(_, want)| *want == 0) {
            None
        } else {
            Some(Box::new(BalanceScorer(wants)))
        }
    }
}

impl BalanceScorer {
    /// Scores the change that the pod causes, not the balance itself.
    fn score(&self, node: &NodeInfo) -> i64 {
        let share = |(which, want): &(ResourceKind, i64), times: i64| {
            let (have, used) = (
                which.amount(&node.allocatable),
                which.amount(&node.requested),
            );
            (have != 0).then(|| ((used + want * times) as f64 / have as f64).min(1.0))
        };
        let before = balance_score(self.0.iter().filter_map(|one| share(one, 0)));
        let after = balance_score(self.0.iter().filter_map(|one| share(one, 1)));
        MAX_NODE_SCORE / 2 + (MAX_NODE_SCORE / 2 + after - before) / 2
    }
}

impl NodeScorer for BalanceScorer {
    fn score_nodes(&self, cluster: &ClusterState, nodes: &[Slot]) -> Vec<i64> {
        nodes
            .iter()
            .map(|slot| self.score(cluster.cache.node(*slot)))
            .collect()
    }
}

/// 100 minus the standard deviation of the shares, in percent.
fn balance_score(shares: impl Iterator<Item = f64> + Clone) -> i64 {
    let (n, sum) = shares
        .clone()
        .fold((0, 0.0), |(n, sum), share| (n + 1, sum + share));
    let mean = sum / f64::from(n.max(1));
    let squares = || {
        shares
            .clone()
            .map(|share| (share - mean) * (share - mean))
            .sum::<f64>()
    };
    let at = |index| shares.clone().nth(index).unwrap_or_default();
    let deviation = match n {
        0 | 1 => 0.0,
        2 => ((at(0) - at(1)) / 2.0).abs(),
        _ => (squares() / f64::from(n)).sqrt(),
    };
    ((1.0 - deviation) * MAX_NODE_SCORE as f64) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(shares: &[f64], score: i64) {
        assert_eq!(balance_score(shares.iter().copied()), score, "{shares:?}");
    }

    #[test]
    fn equal_shares_are_best() {
        check(&[0.5, 0.5], 100);
        check(&[0.5, 0.0], 75);
        check(&[1.0, 0.0], 50);
        check(&[0.25, 0.5, 0.75], 79);
        check(&[0.25], 100);
    }
}
