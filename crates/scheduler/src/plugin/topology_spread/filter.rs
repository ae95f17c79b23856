//! The Filter of PodTopologySpread.

use std::sync::Arc;

use mizzen_value::Str;

use super::ConstraintScope;
use crate::cache::{NO_DOMAIN, NodeInfo, PodMatcher, SchedulerCache};
use crate::cluster_state::ClusterState;
use crate::model::{NodeRule, PodInfo, SpreadConstraint};
use crate::plugin::{Name, NodeFilter, Rejection};

/// The count of a domain without an eligible node.
const ABSENT: i64 = -1;

/// The counts of one constraint.
#[derive(Clone)]
struct ConstraintCounts {
    constraint: Arc<SpreadConstraint>,
    topology: usize,
    /// The number of matching pods per domain.
    counts: Arc<Vec<i64>>,
    n_domains: i64,
    /// The two domains with the fewest pods: if one gets more, the other has the minimum (upstream:
    /// criticalPaths).
    fewest: [(u32, i64); 2],
    /// Changes by simulated pods, by domain.
    simulated: Vec<(u32, i64)>,
    counts_itself: bool,
}

impl ConstraintCounts {
    fn count_in(&self, number: u32) -> i64 {
        let counted = self
            .counts
            .get(number as usize)
            .copied()
            .unwrap_or_default()
            .max(0);
        let simulated = self.simulated.iter().filter(|(known, _)| *known == number);
        counted + simulated.map(|(_, by)| by).sum::<i64>()
    }

    fn min_count(&self) -> i64 {
        if self.n_domains < self.constraint.min_domains {
            0
        } else {
            self.fewest[0].1
        }
    }

    fn update_fewest(&mut self, number: u32, count: i64) {
        let [first, second] = &mut self.fewest;
        if first.0 == number {
            first.1 = count;
        } else if second.0 == number {
            second.1 = count;
        } else if count < first.1 {
            (*second, *first) = (*first, (number, count));
        } else if count < second.1 {
            *second = (number, count);
        }
        if first.1 > second.1 {
            std::mem::swap(first, second);
        }
    }
}

/// The counts of all constraints of a pod.
#[derive(Clone)]
pub(super) struct SpreadFilter {
    namespace: Str,
    rule: Option<Arc<NodeRule>>,
    untolerated: Arc<[bool]>,
    constraint_counts: Vec<ConstraintCounts>,
}

impl SpreadFilter {
    pub(super) fn new(
        pod: &PodInfo,
        constraints: Vec<SpreadConstraint>,
        cache: &mut SchedulerCache,
    ) -> SpreadFilter {
        let counting = ConstraintScope::new(pod, &constraints, cache);
        let constraint_counts = constraints.into_iter().enumerate();
        let constraint_counts = constraint_counts
            .map(|(at, constraint)| count_constraint(pod, constraint, at, &counting, cache))
            .collect();
        SpreadFilter {
            namespace: pod.namespace.clone(),
            rule: pod.node_rule.clone(),
            untolerated: counting.untolerated.into(),
            constraint_counts,
        }
    }

    /// Whether a simulated pod counts for a constraint.
    fn counts(&self, constraint: &SpreadConstraint, pod: &PodInfo, node: &NodeInfo) -> bool {
        let facts = &node.facts;
        let allowed = || {
            self.rule
                .as_ref()
                .is_none_or(|rule| rule.allows(&facts.name, &facts.labels))
        };
        let untolerated = || self.untolerated.get(node.taints as usize) == Some(&true);
        pod.labels.match_selector(&constraint.selector)
            && (!constraint.honor_affinity || allowed())
            && !(constraint.honor_taints && untolerated())
    }
}

fn count_constraint(
    pod: &PodInfo,
    constraint: SpreadConstraint,
    at: usize,
    counting: &ConstraintScope,
    cache: &mut SchedulerCache,
) -> ConstraintCounts {
    let topology = counting.topologies[at];
    let counted = cache.count_matching(&PodMatcher::in_namespace(
        &pod.namespace,
        &constraint.selector,
    ));
    let (counted, domains) = (cache.pod_counts(counted), cache.domains(topology));
    // Kubernetes: an empty selector counts no pods, but matches all (podtopologyspread/common.go).
    let is_empty = constraint.selector.is_empty();
    let mut counts = vec![ABSENT; domains.n_domains()];
    for slot in cache.node_order() {
        if counting.has_all_keys(*slot, cache) && counting.counts(&constraint, *slot, cache) {
            let count = &mut counts[domains.domain_of(*slot) as usize];
            *count = (*count).max(0)
                + if is_empty {
                    0
                } else {
                    i64::from(counted.count_on(*slot))
                };
        }
    }
    let mut count_constraint = ConstraintCounts {
        counts_itself: pod.labels.match_selector(&constraint.selector),
        constraint: Arc::new(constraint),
        topology,
        n_domains: counts.iter().filter(|count| **count != ABSENT).count() as i64,
        fewest: [(NO_DOMAIN, i32::MAX.into()); 2],
        counts: Arc::new(counts),
        simulated: Vec::new(),
    };
    let counts = count_constraint.counts.clone();
    for (number, count) in counts
        .iter()
        .enumerate()
        .filter(|(_, count)| **count != ABSENT)
    {
        count_constraint.update_fewest(number as u32, *count);
    }
    count_constraint
}

impl NodeFilter for SpreadFilter {
    fn filter(&self, node: &NodeInfo, cluster: &ClusterState) -> Option<Rejection> {
        for count_constraint in &self.constraint_counts {
            let number = cluster
                .cache
                .domains(count_constraint.topology)
                .domain_of(node.slot);
            let reason = "node(s) didn't match pod topology spread constraints";
            if number == NO_DOMAIN {
                let reason =
                    "node(s) didn't match pod topology spread constraints (missing required label)";
                return Some(Rejection::unresolvable(Name::PodTopologySpread, reason));
            }
            let skew = count_constraint.count_in(number)
                + i64::from(count_constraint.counts_itself)
                - count_constraint.min_count();
            if skew > count_constraint.constraint.max_skew {
                return Some(Rejection::unschedulable(Name::PodTopologySpread, reason));
            }
        }
        None
    }

    fn simulate_pod(&mut self, pod: &PodInfo, node: &NodeInfo, by: i64, cluster: &ClusterState) {
        let labels = &node.facts.labels;
        let has_all_keys = self
            .constraint_counts
            .iter()
            .all(|one| labels.get(&one.constraint.topology_key).is_some());
        if pod.namespace != self.namespace || !has_all_keys {
            return;
        }
        for at in 0..self.constraint_counts.len() {
            if !self.counts(&self.constraint_counts[at].constraint.clone(), pod, node) {
                continue;
            }
            let count_constraint = &mut self.constraint_counts[at];
            let number = cluster
                .cache
                .domains(count_constraint.topology)
                .domain_of(node.slot);
            count_constraint.simulated.push((number, by));
            count_constraint.update_fewest(number, count_constraint.count_in(number));
        }
    }

    fn copy(&self) -> Box<dyn NodeFilter> {
        Box::new(self.clone())
    }
}
