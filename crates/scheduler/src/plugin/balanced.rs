//! Would the node's resources be used evenly?

use std::sync::Arc;

use super::strategy::{Weighted, Which};
use super::{BEST, Rank, Score};
use crate::cache::{Node, Slot};
use crate::model::Pod;
use crate::world::World;

/// Which resources shall be used evenly.
pub(crate) struct Balanced {
    pub resources: Vec<Weighted>,
}

/// Each resource with what the pod wants of it.
struct Evenness(Vec<(Which, i64)>);

impl Score for Balanced {
    fn prepare(
        &self,
        pod: &Arc<Pod>,
        _world: &mut World,
        _nodes: &[Slot],
    ) -> Option<Box<dyn Rank>> {
        let want = |resource: &Weighted| {
            let which = Which::of(&resource.name);
            let want = which.amount(&pod.requests.stated);
            which.matters(want).then_some((which, want))
        };
        let wants: Vec<_> = self.resources.iter().filter_map(want).collect();
        // Pods that want nothing would all end on one node.
        if wants.iter().all(|(_, want)| *want == 0) {
            None
        } else {
            Some(Box::new(Evenness(wants)))
        }
    }
}

impl Evenness {
    /// Whether the pod makes it better or worse counts, not how it is.
    fn score(&self, node: &Node) -> i64 {
        let share = |(which, want): &(Which, i64), times: i64| {
            let (have, used) = (
                which.amount(&node.allocatable),
                which.amount(&node.requested),
            );
            (have != 0).then(|| ((used + want * times) as f64 / have as f64).min(1.0))
        };
        let before = evenness(self.0.iter().filter_map(|one| share(one, 0)));
        let after = evenness(self.0.iter().filter_map(|one| share(one, 1)));
        BEST / 2 + (BEST / 2 + after - before) / 2
    }
}

impl Rank for Evenness {
    fn rank(&self, world: &World, nodes: &[Slot]) -> Vec<i64> {
        nodes
            .iter()
            .map(|slot| self.score(world.cache.node(*slot)))
            .collect()
    }
}

/// How near shares are to each other: the less they deviate from their mean the better.
fn evenness(shares: impl Iterator<Item = f64> + Clone) -> i64 {
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
    ((1.0 - deviation) * BEST as f64) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(shares: &[f64], score: i64) {
        assert_eq!(evenness(shares.iter().copied()), score, "{shares:?}");
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
