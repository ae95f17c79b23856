//! PodTopologySpread: pods are spread evenly over topology domains.

mod filter;
mod score;

use std::sync::Arc;

use mizzen_component_helpers::tolerations::first_untolerated;
use mizzen_object::select::LabelSelector;

use super::{FilterPlugin, Name, NodeScorer, PreFilterResult, ScorePlugin};
use crate::cache::{NO_DOMAIN, SchedulerCache, Slot};
use crate::cluster_event::{ClusterEvent, NodeAction, PodAction};
use crate::cluster_state::ClusterState;
use crate::model::{NodeFacts, PodInfo, SpreadConstraint};

/// The topology key of nodes.
const HOSTNAME: &str = "kubernetes.io/hostname";
/// The topology key of zones.
const ZONE: &str = "topology.kubernetes.io/zone";

/// The plugin, with the default constraints.
#[derive(Debug, Clone)]
pub(crate) struct TopologySpread {
    defaults: Vec<SpreadConstraint>,
    /// Whether the defaults are the system's (`defaultingType: System`).
    is_system: bool,
}

impl Default for TopologySpread {
    fn default() -> TopologySpread {
        let soft = |topology_key: &str, max_skew| SpreadConstraint {
            max_skew,
            topology_key: topology_key.into(),
            hard: false,
            selector: LabelSelector::default(),
            min_domains: 1,
            honor_affinity: true,
            honor_taints: false,
        };
        TopologySpread {
            defaults: vec![soft(HOSTNAME, 3), soft(ZONE, 5)],
            is_system: true,
        }
    }
}

impl TopologySpread {
    /// With a list of default constraints.
    pub(crate) fn with_defaults(defaults: Vec<SpreadConstraint>) -> TopologySpread {
        TopologySpread {
            defaults,
            is_system: false,
        }
    }

    /// The constraints of a pod: its own, or the defaults with its default selector.
    fn constraints(
        &self,
        pod: &PodInfo,
        cache: &SchedulerCache,
        hard: bool,
    ) -> Vec<SpreadConstraint> {
        if !pod.spread.is_empty() {
            return pod
                .spread
                .iter()
                .filter(|constraint| constraint.hard == hard)
                .cloned()
                .collect();
        }
        let defaults = self
            .defaults
            .iter()
            .filter(|constraint| constraint.hard == hard);
        let defaults: Vec<&SpreadConstraint> = defaults.collect();
        if defaults.is_empty() {
            return Vec::new();
        }
        let selector = cache.default_selectors.for_pod(pod);
        if selector.is_empty() {
            return Vec::new();
        }
        let with_selector = |constraint| SpreadConstraint {
            selector: selector.clone(),
            ..SpreadConstraint::clone(constraint)
        };
        defaults.into_iter().map(with_selector).collect()
    }
}

/// Which nodes are eligible for the constraints of a pod.
struct ConstraintScope {
    /// The indexes of the constraints' topology keys.
    topologies: Vec<usize>,
    /// Whether each node matches the pod's node affinity, if it has one.
    allowed: Option<Box<[bool]>>,
    /// Whether each taint list has an untolerated taint.
    untolerated: Box<[bool]>,
}

impl ConstraintScope {
    fn new(
        pod: &PodInfo,
        constraints: &[SpreadConstraint],
        cache: &mut SchedulerCache,
    ) -> ConstraintScope {
        let topologies = constraints
            .iter()
            .map(|constraint| cache.topology_index(&constraint.topology_key))
            .collect();
        let allowed = pod.node_rule.as_ref().map(|rule| {
            cache.evaluate_rule(rule);
            cache.rule_matches(rule).into()
        });
        let lists = cache.taint_lists().iter();
        let untolerated = lists
            .map(|taints| first_untolerated(taints, &pod.tolerations).is_some())
            .collect();
        ConstraintScope {
            topologies,
            allowed,
            untolerated,
        }
    }

    /// Whether a node has all topology keys.
    fn has_all_keys(&self, slot: Slot, cache: &SchedulerCache) -> bool {
        self.topologies
            .iter()
            .all(|topology| cache.domains(*topology).domain_of(slot) != NO_DOMAIN)
    }

    /// Whether a node counts for a constraint.
    fn counts(&self, constraint: &SpreadConstraint, slot: Slot, cache: &SchedulerCache) -> bool {
        let allowed = || {
            self.allowed
                .as_ref()
                .is_none_or(|allowed| allowed.get(slot as usize) == Some(&true))
        };
        let untolerated = || self.untolerated.get(cache.node(slot).taints as usize) == Some(&true);
        (!constraint.honor_affinity || allowed()) && !(constraint.honor_taints && untolerated())
    }
}

impl FilterPlugin for TopologySpread {
    fn name(&self) -> Name {
        Name::PodTopologySpread
    }

    fn pre_filter(&self, pod: &Arc<PodInfo>, cluster: &mut ClusterState) -> PreFilterResult {
        let constraints = self.constraints(pod, &cluster.cache, true);
        if constraints.is_empty() {
            return PreFilterResult::Skip;
        }
        PreFilterResult::Filter(Box::new(filter::SpreadFilter::new(
            pod,
            constraints,
            &mut cluster.cache,
        )))
    }

    fn queueing_hint(&self, pod: &PodInfo, event: &ClusterEvent, cluster: &ClusterState) -> bool {
        let constraints = || self.constraints(pod, &cluster.cache, true);
        match event {
            ClusterEvent::Pod { old, new, change } => {
                let matters =
                    PodAction::ADD | PodAction::LABEL | PodAction::TOLERATION | PodAction::DELETE;
                change.has(matters)
                    && is_schedulable_after_pod_change(pod, &constraints(), *old, *new)
            }
            ClusterEvent::Node { old, new, change } => {
                let matters =
                    NodeAction::ADD | NodeAction::DELETE | NodeAction::LABEL | NodeAction::TAINT;
                change.has(matters) && is_schedulable_after_node_change(&constraints(), *old, *new)
            }
            _ => false,
        }
    }
}

impl ScorePlugin for TopologySpread {
    fn pre_score(
        &self,
        pod: &Arc<PodInfo>,
        cluster: &mut ClusterState,
        nodes: &[Slot],
    ) -> Option<Box<dyn NodeScorer>> {
        let constraints = self.constraints(pod, &cluster.cache, false);
        if constraints.is_empty() {
            return None;
        }
        let needs_all = !pod.spread.is_empty() || !self.is_system;
        Some(Box::new(score::SpreadScorer::new(
            pod,
            constraints,
            needs_all,
            nodes,
            &mut cluster.cache,
        )))
    }
}

fn is_schedulable_after_pod_change(
    pod: &PodInfo,
    constraints: &[SpreadConstraint],
    old: Option<&PodInfo>,
    new: Option<&PodInfo>,
) -> bool {
    let involved = |other: &PodInfo| {
        other.uid == pod.uid
            || (other.is_assigned_or_nominated() && other.namespace == pod.namespace)
    };
    if ![old, new].into_iter().flatten().all(involved) {
        return false;
    }
    let matches = |constraint: &SpreadConstraint, other: &PodInfo| {
        other.labels.match_selector(&constraint.selector)
    };
    match (old, new) {
        (Some(old), Some(new)) => {
            let tolerates = new.uid == pod.uid && old.tolerations != new.tolerations;
            (tolerates && constraints.iter().any(|constraint| constraint.honor_taints))
                || constraints
                    .iter()
                    .any(|constraint| matches(constraint, old) != matches(constraint, new))
        }
        (only, other) => only
            .or(other)
            .is_some_and(|it| constraints.iter().any(|constraint| matches(constraint, it))),
    }
}

fn is_schedulable_after_node_change(
    constraints: &[SpreadConstraint],
    old: Option<&NodeFacts>,
    new: Option<&NodeFacts>,
) -> bool {
    let has_all_keys = |node: &NodeFacts| {
        constraints
            .iter()
            .all(|one| node.labels.get(&one.topology_key).is_some())
    };
    match (old, new) {
        (Some(old), Some(new)) => {
            let differs = |one: &SpreadConstraint| {
                old.labels.get(&one.topology_key) != new.labels.get(&one.topology_key)
            };
            has_all_keys(old) != has_all_keys(new)
                || (has_all_keys(new)
                    && (constraints.iter().any(differs) || old.taints != new.taints))
        }
        (only, other) => only.or(other).is_some_and(has_all_keys),
    }
}
