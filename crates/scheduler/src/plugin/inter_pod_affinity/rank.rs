//! How well do a pod and its neighbours get on?

use crate::cache::{Cache, NOWHERE, Slot, Sort};
use crate::model::{Pod, Term};
use crate::plugin::{BEST, Rank};
use crate::world::World;

use super::{by_domain, matcher};

/// How welcome the pod is near each value of each label.
pub(super) struct Wishes(Vec<(usize, Vec<i64>)>);

impl Wishes {
    /// What the pod and others wish; none if nobody wishes anything.
    pub(super) fn of(pod: &Pod, cache: &mut Cache, hard_weight: i64) -> Option<Wishes> {
        let mut wishes = Wishes(Vec::new());
        for (weight, term) in &pod.affinity.preferred {
            wishes.add_own(cache, term, *weight);
        }
        for (weight, term) in &pod.affinity.preferred_anti {
            wishes.add_own(cache, term, -weight);
        }
        for carried in cache.terms_meaning(pod) {
            let weight = match carried.sort {
                Sort::RequiredAnti => continue,
                Sort::Required => hard_weight,
                Sort::Preferred(weight) => weight,
            };
            let counts = carried.of.iter().map(|count| i64::from(*count));
            wishes.add(
                carried.topology,
                cache.domains(carried.topology).bound(),
                counts,
                weight,
            );
        }
        (!wishes.0.is_empty()).then_some(wishes)
    }

    fn add_own(&mut self, cache: &mut Cache, term: &Term, weight: i64) {
        let matcher = matcher(cache, std::iter::once(term));
        let (counted, topology) = (cache.count(&matcher), cache.topology(&term.topology_key));
        let counts = by_domain(cache, counted, topology);
        self.add(topology, counts.len(), counts.iter().copied(), weight);
    }

    fn add(
        &mut self,
        topology: usize,
        bound: usize,
        counts: impl Iterator<Item = i64> + Clone,
        weight: i64,
    ) {
        if weight == 0 || counts.clone().all(|count| count == 0) {
            return;
        }
        let known = self.0.iter().position(|(known, _)| *known == topology);
        let at = known.unwrap_or(self.0.len());
        if known.is_none() {
            self.0.push((topology, vec![0; bound]));
        }
        self.0[at]
            .1
            .iter_mut()
            .zip(counts)
            .for_each(|(sum, count)| *sum += count * weight);
    }

    fn score(&self, slot: Slot, world: &World) -> i64 {
        let near = |(topology, sums): &(usize, Vec<i64>)| {
            let number = world.cache.domains(*topology).of(slot);
            if number == NOWHERE {
                0
            } else {
                sums.get(number as usize).copied().unwrap_or_default()
            }
        };
        self.0.iter().map(near).sum()
    }
}

impl Rank for Wishes {
    fn rank(&self, world: &World, nodes: &[Slot]) -> Vec<i64> {
        let mut scores: Vec<i64> = nodes.iter().map(|slot| self.score(*slot, world)).collect();
        let (least, most) = (scores.iter().min().copied(), scores.iter().max().copied());
        let (Some(least), Some(most)) = (least, most) else {
            return scores;
        };
        for score in &mut scores {
            let share = if most > least {
                (*score - least) as f64 / (most - least) as f64
            } else {
                0.0
            };
            *score = (BEST as f64 * share) as i64;
        }
        scores
    }
}
