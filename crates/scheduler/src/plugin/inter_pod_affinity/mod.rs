//! InterPodAffinity: affinity and anti-affinity between pods.

mod filter;
mod score;

use std::sync::Arc;

use super::{FilterPlugin, Name, NodeScorer, PreFilterResult, ScorePlugin};
use crate::cache::{NO_DOMAIN, PodMatcher, SchedulerCache, Slot};
use crate::cluster_event::{ClusterEvent, NodeAction, PodAction};
use crate::cluster_state::ClusterState;
use crate::model::{AffinityTerm, NodeFacts, PodInfo};

/// The arguments of the plugin.
#[derive(Debug, Clone)]
pub(crate) struct InterPodAffinity {
    /// `hardPodAffinityWeight`: the weight of required affinity terms of existing pods.
    pub hard_weight: i64,
    /// `ignorePreferredTermsOfExistingPods`.
    pub ignore_preferred_terms_of_existing_pods: bool,
}

impl Default for InterPodAffinity {
    fn default() -> InterPodAffinity {
        InterPodAffinity {
            hard_weight: 1,
            ignore_preferred_terms_of_existing_pods: false,
        }
    }
}

/// A matcher for pods that match all of the terms.
fn matcher<'a>(
    cache: &SchedulerCache,
    terms: impl Iterator<Item = &'a AffinityTerm>,
) -> PodMatcher {
    let all = terms
        .map(|term| (cache.resolve_namespaces(term), term.selector.clone()))
        .collect();
    PodMatcher {
        all,
        exclude_terminating: false,
    }
}

/// The counted pods per topology domain.
fn by_domain(cache: &SchedulerCache, counted: usize, topology: usize) -> Vec<i64> {
    let (counted, domains) = (cache.pod_counts(counted), cache.domains(topology));
    let mut domain_counts = vec![0; domains.n_domains()];
    if counted.total == 0 {
        return domain_counts;
    }
    for slot in cache.node_order() {
        let number = domains.domain_of(*slot);
        if number != NO_DOMAIN {
            domain_counts[number as usize] += i64::from(counted.count_on(*slot));
        }
    }
    domain_counts
}

impl FilterPlugin for InterPodAffinity {
    fn name(&self) -> Name {
        Name::InterPodAffinity
    }

    fn pre_filter(&self, pod: &Arc<PodInfo>, cluster: &mut ClusterState) -> PreFilterResult {
        match filter::InterPodAffinityFilter::new(pod, &mut cluster.cache) {
            Some(near) => PreFilterResult::Filter(Box::new(near)),
            None => PreFilterResult::Skip,
        }
    }

    fn queueing_hint(&self, pod: &PodInfo, event: &ClusterEvent, cluster: &ClusterState) -> bool {
        match event {
            ClusterEvent::Pod { old, new, change } => {
                change.has(PodAction::ADD | PodAction::LABEL | PodAction::DELETE)
                    && is_schedulable_after_pod_change(pod, *old, *new, &cluster.cache)
            }
            ClusterEvent::Node {
                old,
                new: Some(new),
                change,
            } => {
                change.has(NodeAction::ADD | NodeAction::LABEL)
                    && is_schedulable_after_node_change(pod, *old, new)
            }
            _ => false,
        }
    }
}

impl ScorePlugin for InterPodAffinity {
    fn pre_score(
        &self,
        pod: &Arc<PodInfo>,
        cluster: &mut ClusterState,
        _nodes: &[Slot],
    ) -> Option<Box<dyn NodeScorer>> {
        if self.ignore_preferred_terms_of_existing_pods && !pod.affinity.has_preferred() {
            return None;
        }
        score::AffinityScorer::new(pod, &mut cluster.cache, self.hard_weight)
            .map(|wishes| Box::new(wishes) as _)
    }
}

/// Whether a pod matches all of the terms; false if there are none.
fn matches_all(terms: &[AffinityTerm], pod: &PodInfo, cache: &SchedulerCache) -> bool {
    !terms.is_empty()
        && terms
            .iter()
            .all(|term| term.matches(pod, cache.namespace_labels(&pod.namespace)))
}

fn is_schedulable_after_pod_change(
    pod: &PodInfo,
    old: Option<&PodInfo>,
    new: Option<&PodInfo>,
    cache: &SchedulerCache,
) -> bool {
    if old.is_some() && new.is_some_and(|new| new.uid == pod.uid) {
        return true;
    }
    if [old, new]
        .into_iter()
        .flatten()
        .any(|other| !other.is_assigned_or_nominated())
    {
        return false;
    }
    let (near, far) = (&pod.affinity.required, &pod.affinity.required_anti);
    match (old, new) {
        (Some(old), Some(new)) => {
            (!matches_all(near, old, cache) && matches_all(near, new, cache))
                || (matches_all(far, old, cache) && !matches_all(far, new, cache))
        }
        (None, Some(new)) => matches_all(near, new, cache),
        (Some(old), None) => {
            matches_all(far, old, cache) || matches_all(&old.affinity.required_anti, pod, cache)
        }
        (None, None) => false,
    }
}

fn is_schedulable_after_node_change(
    pod: &PodInfo,
    old: Option<&NodeFacts>,
    new: &NodeFacts,
) -> bool {
    let moved = |key: &str, old: &NodeFacts| {
        let (before, after) = (old.labels.get(key), new.labels.get(key));
        before.is_some() && after.is_some() && before != after
    };
    let near = pod.affinity.required.iter().any(|term| {
        let key = &term.topology_key;
        let is_there = new.labels.get(key).is_some();
        old.map_or(is_there, |old| {
            (old.labels.get(key).is_none() && is_there) || moved(key, old)
        })
    });
    let far = pod.affinity.required_anti.iter().any(|term| {
        let key = &term.topology_key;
        old.is_none_or(|old| {
            (old.labels.get(key).is_some() && new.labels.get(key).is_none()) || moved(key, old)
        })
    });
    near || far
}

/// Whether a resolved matcher matches a pod.
fn matches_some(matcher: &PodMatcher, pod: &PodInfo) -> bool {
    !matcher.all.is_empty() && matcher.matches(pod)
}
