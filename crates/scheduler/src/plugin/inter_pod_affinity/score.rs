//! The Score of InterPodAffinity.

use crate::cache::{NO_DOMAIN, SchedulerCache, Slot, TermKind};
use crate::cluster_state::ClusterState;
use crate::model::{AffinityTerm, PodInfo};
use crate::plugin::{MAX_NODE_SCORE, NodeScorer};

use super::{by_domain, matcher};

/// The weighted number of matching pods per topology domain, by topology.
pub(super) struct AffinityScorer(Vec<(usize, Vec<i64>)>);

impl AffinityScorer {
    /// `None` if no term applies to the pod.
    pub(super) fn new(
        pod: &PodInfo,
        cache: &mut SchedulerCache,
        hard_weight: i64,
    ) -> Option<AffinityScorer> {
        let mut wishes = AffinityScorer(Vec::new());
        for (weight, term) in &pod.affinity.preferred {
            wishes.add_own(cache, term, *weight);
        }
        for (weight, term) in &pod.affinity.preferred_anti {
            wishes.add_own(cache, term, -weight);
        }
        for carried in cache.matching_terms(pod) {
            let weight = match carried.kind {
                TermKind::RequiredAnti => continue,
                TermKind::Required => hard_weight,
                TermKind::NodeAffinityScorer(weight) => weight,
            };
            let counts = carried.by_domain.iter().map(|count| i64::from(*count));
            wishes.add(
                carried.topology,
                cache.domains(carried.topology).n_domains(),
                counts,
                weight,
            );
        }
        (!wishes.0.is_empty()).then_some(wishes)
    }

    fn add_own(&mut self, cache: &mut SchedulerCache, term: &AffinityTerm, weight: i64) {
        let matcher = matcher(cache, std::iter::once(term));
        let (counted, topology) = (
            cache.count_matching(&matcher),
            cache.topology_index(&term.topology_key),
        );
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

    fn score(&self, slot: Slot, cluster: &ClusterState) -> i64 {
        let near = |(topology, domain_counts): &(usize, Vec<i64>)| {
            let number = cluster.cache.domains(*topology).domain_of(slot);
            if number == NO_DOMAIN {
                0
            } else {
                domain_counts
                    .get(number as usize)
                    .copied()
                    .unwrap_or_default()
            }
        };
        self.0.iter().map(near).sum()
    }
}

impl NodeScorer for AffinityScorer {
    fn score_nodes(&self, cluster: &ClusterState, nodes: &[Slot]) -> Vec<i64> {
        let mut scores: Vec<i64> = nodes
            .iter()
            .map(|slot| self.score(*slot, cluster))
            .collect();
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
            *score = (MAX_NODE_SCORE as f64 * share) as i64;
        }
        scores
    }
}
