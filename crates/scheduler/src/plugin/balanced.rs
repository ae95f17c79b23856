//! Would the node's resources be used evenly?

use std::sync::Arc;

use super::strategy::{Weighted, is_beside_the_point};
use super::{BEST, Rank, Score};
use crate::cache::{Node, Slot};
use crate::model::Pod;
use crate::world::World;

/// Which resources shall be used evenly.
pub(crate) struct Balanced {
    pub resources: Vec<Weighted>,
}

/// Each resource with what the pod wants of it.
struct Evenness(Vec<(Weighted, i64)>);

impl Score for Balanced {
    fn prepare(&self, pod: &Arc<Pod>, _world: &mut World, _nodes: &[Slot]) -> Option<Box<dyn Rank>> {
        let want = |resource: &Weighted| (resource.clone(), pod.requests.stated.get(&resource.name));
        let wants: Vec<_> = self.resources.iter().map(want).collect();
        // Pods that want nothing would all end on one node.
        if wants.iter().all(|(_, want)| *want == 0) { None } else { Some(Box::new(Evenness(wants))) }
    }
}

impl Evenness {
    /// Whether the pod makes it better or worse counts, not how it is.
    fn score(&self, node: &Node) -> i64 {
        let (mut before, mut after) = (Spread::default(), Spread::default());
        for (resource, want) in &self.0 {
            if is_beside_the_point(&resource.name, *want) {
                continue;
            }
            let (have, used) =
                (node.facts.allocatable.get(&resource.name), node.requested.get(&resource.name));
            if have != 0 {
                before.add(used, have);
                after.add(used + want, have);
            }
        }
        BEST / 2 + (BEST / 2 + after.score() - before.score()) / 2
    }
}

impl Rank for Evenness {
    fn rank(&self, world: &World, nodes: &[Slot]) -> Vec<i64> {
        nodes.iter().map(|slot| self.score(world.cache.node(*slot))).collect()
    }
}

/// How far shares are from each other.
#[derive(Default)]
struct Spread {
    n: usize,
    sum: f64,
    squares: f64,
    first: f64,
}

impl Spread {
    fn add(&mut self, used: i64, have: i64) {
        let share = (used as f64 / have as f64).min(1.0);
        if self.n == 0 {
            self.first = share;
        }
        self.n += 1;
        self.sum += share;
        self.squares += share * share;
    }

    fn score(&self) -> i64 {
        let n = self.n as f64;
        let deviation = match self.n {
            0 | 1 => 0.0,
            2 => ((self.first - (self.sum - self.first)) / 2.0).abs(),
            _ => (self.squares / n - (self.sum / n) * (self.sum / n)).max(0.0).sqrt(),
        };
        ((1.0 - deviation) * BEST as f64) as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(shares: &[(i64, i64)], score: i64) {
        let mut spread = Spread::default();
        shares.iter().for_each(|(used, have)| spread.add(*used, *have));
        assert_eq!(spread.score(), score, "{shares:?}");
    }

    #[test]
    fn equal_shares_are_best() {
        check(&[(1, 2), (2, 4)], 100);
        check(&[(1, 2), (0, 4)], 75);
        check(&[(9, 2), (0, 4)], 50);
        check(&[(1, 4), (2, 4), (3, 4)], 79);
        check(&[(1, 4)], 100);
    }
}
