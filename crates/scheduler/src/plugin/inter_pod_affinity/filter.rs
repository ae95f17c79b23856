//! The Filter of InterPodAffinity.

use std::sync::Arc;

use mizzen_value::Str;

use super::{by_domain, matcher, matches_some};
use crate::cache::{NO_DOMAIN, NodeInfo, PodMatcher, SchedulerCache, TermKind};
use crate::cluster_state::ClusterState;
use crate::model::{Labels, PodInfo};
use crate::plugin::{Name, NodeFilter, Rejection};

/// The number of matching pods per topology domain.
#[derive(Clone)]
struct DomainCounts {
    key: Str,
    /// `None` if no assigned pod is counted by this key.
    topology: Option<usize>,
    counts: Arc<Vec<i64>>,
    /// Changes by simulated pods, by label value.
    simulated: Vec<(Str, i64)>,
}

impl DomainCounts {
    fn new(key: &Str, topology: Option<usize>, counts: Vec<i64>) -> DomainCounts {
        DomainCounts {
            key: key.clone(),
            topology,
            counts: Arc::new(counts),
            simulated: Vec::new(),
        }
    }

    /// The number of pods in a node's domain; `None` if it lacks the label.
    fn count_near(&self, node: &NodeInfo, cluster: &ClusterState) -> Option<i64> {
        let counted = match self
            .topology
            .map(|topology| cluster.cache.domains(topology).domain_of(node.slot))
        {
            Some(NO_DOMAIN) => return None,
            Some(number) => self
                .counts
                .get(number as usize)
                .copied()
                .unwrap_or_default(),
            None => 0,
        };
        if self.simulated.is_empty() {
            return Some(counted);
        }
        let value = node.facts.labels.get(&self.key)?;
        let simulated = self.simulated.iter().filter(|(known, _)| known == value);
        Some(counted + simulated.map(|(_, by)| by).sum::<i64>())
    }

    fn simulate_pod(&mut self, node: &NodeInfo, by: i64) {
        if let Some(value) = node.facts.labels.get(&self.key) {
            self.simulated.push((value.into(), by));
        }
    }

    fn is_empty(&self) -> bool {
        self.counts.iter().sum::<i64>() + self.simulated.iter().map(|(_, by)| by).sum::<i64>() == 0
    }
}

/// The counts that decide about one pod.
#[derive(Clone)]
pub(super) struct InterPodAffinityFilter {
    pod: Arc<PodInfo>,
    namespace_labels: Labels,
    /// Pods that match all of the pod's required affinity terms, per term.
    affinity_counts: Vec<DomainCounts>,
    affinity_matcher: PodMatcher,
    /// Pods that match each of the pod's required anti-affinity terms.
    anti_affinity_counts: Vec<(PodMatcher, DomainCounts)>,
    /// Existing pods whose anti-affinity matches this pod.
    existing_anti_affinity: Vec<DomainCounts>,
}

impl InterPodAffinityFilter {
    /// `None` if neither the pod nor an existing pod has a required term.
    pub(super) fn new(
        pod: &Arc<PodInfo>,
        cache: &mut SchedulerCache,
    ) -> Option<InterPodAffinityFilter> {
        let existing_anti_affinity = existing_anti_affinity(pod, cache);
        let affinity = &pod.affinity;
        if existing_anti_affinity.is_empty()
            && affinity.required.is_empty()
            && affinity.required_anti.is_empty()
        {
            return None;
        }
        let affinity_matcher = matcher(cache, affinity.required.iter());
        let affinity_counts = affinity
            .required
            .iter()
            .map(|term| domain_counts(cache, &affinity_matcher, &term.topology_key));
        let affinity_counts = affinity_counts.collect();
        let anti_affinity_counts = affinity.required_anti.iter().map(|term| {
            let matcher = matcher(cache, std::iter::once(term));
            let domain_counts = domain_counts(cache, &matcher, &term.topology_key);
            (matcher, domain_counts)
        });
        Some(InterPodAffinityFilter {
            anti_affinity_counts: anti_affinity_counts.collect(),
            affinity_counts,
            affinity_matcher,
            existing_anti_affinity,
            namespace_labels: cache.namespace_labels(&pod.namespace).clone(),
            pod: pod.clone(),
        })
    }

    /// Whether required affinity is satisfied. The first pod of a group that matches its own terms
    /// may go to any domain.
    fn satisfies_affinity(&self, node: &NodeInfo, cluster: &ClusterState) -> bool {
        let mut found = true;
        for domain_counts in &self.affinity_counts {
            match domain_counts.count_near(node, cluster) {
                None => return false,
                Some(count) => found &= count > 0,
            }
        }
        found
            || (self.affinity_counts.iter().all(DomainCounts::is_empty)
                && matches_some(&self.affinity_matcher, &self.pod))
    }
}

fn domain_counts(cache: &mut SchedulerCache, matcher: &PodMatcher, key: &Str) -> DomainCounts {
    let (counted, topology) = (cache.count_matching(matcher), cache.topology_index(key));
    DomainCounts::new(key, Some(topology), by_domain(cache, counted, topology))
}

/// Existing pods whose required anti-affinity matches this pod, by topology key.
fn existing_anti_affinity(pod: &PodInfo, cache: &SchedulerCache) -> Vec<DomainCounts> {
    let mut domain_counts: Vec<(&Str, usize, Vec<i64>)> = Vec::new();
    for carried in cache
        .matching_terms(pod)
        .filter(|carried| carried.kind == TermKind::RequiredAnti)
    {
        let known = domain_counts
            .iter()
            .position(|(_, topology, _)| *topology == carried.topology);
        let at = known.unwrap_or(domain_counts.len());
        if known.is_none() {
            let counts = vec![0; cache.domains(carried.topology).n_domains()];
            domain_counts.push((&carried.term.topology_key, carried.topology, counts));
        }
        for (sum, count) in domain_counts[at].2.iter_mut().zip(&carried.by_domain) {
            *sum += i64::from(*count);
        }
    }
    domain_counts
        .into_iter()
        .map(|(key, topology, counts)| DomainCounts::new(key, Some(topology), counts))
        .collect()
}

impl NodeFilter for InterPodAffinityFilter {
    fn filter(&self, node: &NodeInfo, cluster: &ClusterState) -> Option<Rejection> {
        let name = Name::InterPodAffinity;
        let some = |domain_counts: &DomainCounts| {
            domain_counts
                .count_near(node, cluster)
                .is_some_and(|count| count > 0)
        };
        if !self.satisfies_affinity(node, cluster) {
            return Some(Rejection::unresolvable(
                name,
                "node(s) didn't match pod affinity rules",
            ));
        }
        if self
            .anti_affinity_counts
            .iter()
            .any(|(_, domain_counts)| some(domain_counts))
        {
            return Some(Rejection::unschedulable(
                name,
                "node(s) didn't match pod anti-affinity rules",
            ));
        }
        if self.existing_anti_affinity.iter().any(some) {
            return Some(Rejection::unschedulable(
                name,
                "node(s) didn't satisfy existing pods anti-affinity rules",
            ));
        }
        None
    }

    fn simulate_pod(&mut self, pod: &PodInfo, node: &NodeInfo, by: i64, _world: &ClusterState) {
        if matches_some(&self.affinity_matcher, pod) {
            self.affinity_counts
                .iter_mut()
                .for_each(|domain_counts| domain_counts.simulate_pod(node, by));
        }
        for (matcher, domain_counts) in &mut self.anti_affinity_counts {
            if matches_some(matcher, pod) {
                domain_counts.simulate_pod(node, by);
            }
        }
        for term in &pod.affinity.required_anti {
            if !term.matches(&self.pod, &self.namespace_labels) {
                continue;
            }
            match self
                .existing_anti_affinity
                .iter_mut()
                .find(|domain_counts| domain_counts.key == term.topology_key)
            {
                Some(domain_counts) => domain_counts.simulate_pod(node, by),
                None => {
                    let mut domain_counts = DomainCounts::new(&term.topology_key, None, Vec::new());
                    domain_counts.simulate_pod(node, by);
                    self.existing_anti_affinity.push(domain_counts);
                }
            }
        }
    }

    fn copy(&self) -> Box<dyn NodeFilter> {
        Box::new(self.clone())
    }
}
