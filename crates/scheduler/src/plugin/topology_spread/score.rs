//! The Score of PodTopologySpread.

use super::{ConstraintScope, HOSTNAME};
use crate::HashSet;
use crate::cache::{NO_DOMAIN, PodMatcher, SchedulerCache, Slot};
use crate::cluster_state::ClusterState;
use crate::model::{PodInfo, SpreadConstraint};
use crate::plugin::{MAX_NODE_SCORE, NodeScorer};

/// A constraint, and the number of pods per domain.
struct WeightedConstraint {
    constraint: SpreadConstraint,
    topology: usize,
    counted: usize,
    /// `None` for the hostname key, where each node is its own domain.
    counts: Option<Vec<i64>>,
    /// Normalizes by the number of domains (upstream: topologyNormalizingWeight).
    weight: f64,
}

/// The counts of all constraints of a pod.
pub(super) struct SpreadScorer {
    weighted: Vec<WeightedConstraint>,
    /// Nodes that lack a topology key and get the lowest score.
    ignored: HashSet<Slot>,
}

impl SpreadScorer {
    pub(super) fn new(
        pod: &PodInfo,
        constraints: Vec<SpreadConstraint>,
        needs_all: bool,
        nodes: &[Slot],
        cache: &mut SchedulerCache,
    ) -> SpreadScorer {
        let counting = ConstraintScope::new(pod, &constraints, cache);
        let lacks = |slot: &&Slot| needs_all && !counting.has_all_keys(**slot, cache);
        let ignored: HashSet<Slot> = nodes.iter().filter(lacks).copied().collect();
        let looked_at: Vec<Slot> = nodes
            .iter()
            .filter(|slot| !ignored.contains(slot))
            .copied()
            .collect();
        let scope = ScoringScope {
            counting: &counting,
            needs_all,
            nodes: &looked_at,
        };
        let weighted = constraints.into_iter().zip(&counting.topologies);
        let weighted = weighted
            .map(|(constraint, topology)| {
                let matcher = PodMatcher::in_namespace(&pod.namespace, &constraint.selector);
                let counted = cache.count_matching(&matcher);
                scope.weigh(constraint, *topology, counted, cache)
            })
            .collect();
        SpreadScorer { weighted, ignored }
    }

    fn score(&self, slot: Slot, cache: &SchedulerCache) -> i64 {
        let score = |one: &WeightedConstraint| {
            let number = cache.domains(one.topology).domain_of(slot);
            if number == NO_DOMAIN {
                return 0.0;
            }
            let count = match &one.counts {
                Some(counts) => counts.get(number as usize).copied().unwrap_or_default(),
                None if one.constraint.selector.is_empty() => 0,
                None => i64::from(cache.pod_counts(one.counted).count_on(slot)),
            };
            count as f64 * one.weight + (one.constraint.max_skew - 1) as f64
        };
        self.weighted.iter().map(score).sum::<f64>().round() as i64
    }
}

/// The nodes that constraints are counted on.
struct ScoringScope<'a> {
    counting: &'a ConstraintScope,
    /// Whether only nodes with all topology keys count.
    needs_all: bool,
    /// The nodes to score.
    nodes: &'a [Slot],
}

impl ScoringScope<'_> {
    fn weigh(
        &self,
        constraint: SpreadConstraint,
        topology: usize,
        counted: usize,
        cache: &SchedulerCache,
    ) -> WeightedConstraint {
        let weight = |size: usize| (size as f64 + 2.0).ln();
        if constraint.topology_key == HOSTNAME {
            return WeightedConstraint {
                weight: weight(self.nodes.len()),
                constraint,
                topology,
                counted,
                counts: None,
            };
        }
        let domains = cache.domains(topology);
        let mut wanted = vec![false; domains.n_domains()];
        let mut size = 0;
        let mut any_lacks = false;
        for slot in self.nodes {
            match wanted.get_mut(domains.domain_of(*slot) as usize) {
                Some(wanted) => size += usize::from(!std::mem::replace(wanted, true)),
                None => any_lacks = true,
            }
        }
        let mut counts = vec![0; domains.n_domains()];
        let pods = cache.pod_counts(counted);
        if pods.total > 0 && !constraint.selector.is_empty() {
            for slot in cache.node_order() {
                let number = domains.domain_of(*slot) as usize;
                let counts_here = wanted.get(number) == Some(&true)
                    && (!self.needs_all || self.counting.has_all_keys(*slot, cache))
                    && self.counting.counts(&constraint, *slot, cache);
                if counts_here {
                    counts[number] += i64::from(pods.count_on(*slot));
                }
            }
        }
        // Kubernetes: nodes without the label are one more domain (podtopologyspread/scoring.go).
        let weight = weight(size + usize::from(any_lacks));
        WeightedConstraint {
            weight,
            constraint,
            topology,
            counted,
            counts: Some(counts),
        }
    }
}

impl NodeScorer for SpreadScorer {
    fn score_nodes(&self, cluster: &ClusterState, nodes: &[Slot]) -> Vec<i64> {
        let score =
            |slot: &Slot| (!self.ignored.contains(slot)).then(|| self.score(*slot, &cluster.cache));
        let scores: Vec<Option<i64>> = nodes.iter().map(score).collect();
        let least = scores.iter().flatten().min().copied().unwrap_or_default();
        let most = scores.iter().flatten().max().copied().unwrap_or_default();
        let scaled = |score: Option<i64>| match score {
            None => 0,
            Some(_) if most == 0 => MAX_NODE_SCORE,
            Some(score) => MAX_NODE_SCORE * (most + least - score) / most,
        };
        scores.into_iter().map(scaled).collect()
    }
}
