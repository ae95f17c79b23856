//! Are pods that belong together spread evenly?

mod check;
mod rank;

use std::sync::Arc;

use mizzen_kinds::tolerations::first_untolerated;
use mizzen_object::select::LabelSelector;

use super::{Filter, Name, Rank, Ready, Score};
use crate::cache::{Cache, NOWHERE, Slot};
use crate::happening::{Happening, NodeChange, PodChange};
use crate::model::{Constraint, NodeFacts, Pod};
use crate::world::World;

/// The label by which nodes are told apart.
const HOSTNAME: &str = "kubernetes.io/hostname";
/// The label by which zones are told apart.
const ZONE: &str = "topology.kubernetes.io/zone";

/// How pods are spread that do not say how.
#[derive(Debug, Clone)]
pub(crate) struct TopologySpread {
    defaults: Vec<Constraint>,
    /// Whether nobody said how.
    is_system: bool,
}

impl Default for TopologySpread {
    fn default() -> TopologySpread {
        let soft = |topology_key: &str, max_skew| Constraint {
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
    /// With other defaults.
    pub(crate) fn with_defaults(defaults: Vec<Constraint>) -> TopologySpread {
        TopologySpread {
            defaults,
            is_system: false,
        }
    }

    /// The constraints of a pod: its own, or the defaults for those that belong together with it.
    fn constraints(&self, pod: &Pod, cache: &Cache, hard: bool) -> Vec<Constraint> {
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
        let defaults: Vec<&Constraint> = defaults.collect();
        if defaults.is_empty() {
            return Vec::new();
        }
        let selector = cache.owners.selector(pod);
        if selector.is_empty() {
            return Vec::new();
        }
        let with_selector = |constraint| Constraint {
            selector: selector.clone(),
            ..Constraint::clone(constraint)
        };
        defaults.into_iter().map(with_selector).collect()
    }
}

/// Which nodes count for which constraint.
struct Counting {
    /// The places of the constraints' labels.
    topologies: Vec<usize>,
    /// What the pod's rule says of each node, if it has one.
    allowed: Option<Box<[bool]>>,
    /// Whether each list of taints keeps the pod away.
    away: Box<[bool]>,
}

impl Counting {
    fn of(pod: &Pod, constraints: &[Constraint], cache: &mut Cache) -> Counting {
        let topologies = constraints
            .iter()
            .map(|constraint| cache.topology(&constraint.topology_key))
            .collect();
        let allowed = pod.node_rule.as_ref().map(|rule| {
            cache.learn(rule);
            cache.answers(rule).into()
        });
        let lists = cache.taint_lists().iter();
        let away = lists
            .map(|taints| first_untolerated(taints, &pod.tolerations).is_some())
            .collect();
        Counting {
            topologies,
            allowed,
            away,
        }
    }

    /// Whether a node has all labels.
    fn has_all(&self, slot: Slot, cache: &Cache) -> bool {
        self.topologies
            .iter()
            .all(|topology| cache.domains(*topology).of(slot) != NOWHERE)
    }

    /// Whether a node counts for a constraint.
    fn counts(&self, constraint: &Constraint, slot: Slot, cache: &Cache) -> bool {
        let allowed = || {
            self.allowed
                .as_ref()
                .is_none_or(|allowed| allowed.get(slot as usize) == Some(&true))
        };
        let away = || self.away.get(cache.node(slot).taints as usize) == Some(&true);
        (!constraint.honor_affinity || allowed()) && !(constraint.honor_taints && away())
    }
}

impl Filter for TopologySpread {
    fn name(&self) -> Name {
        Name::PodTopologySpread
    }

    fn prepare(&self, pod: &Arc<Pod>, world: &mut World) -> Ready {
        let constraints = self.constraints(pod, &world.cache, true);
        if constraints.is_empty() {
            return Ready::Skip;
        }
        Ready::Check(Box::new(check::Evenly::of(
            pod,
            constraints,
            &mut world.cache,
        )))
    }

    fn wakes(&self, pod: &Pod, happening: &Happening, world: &World) -> bool {
        let constraints = || self.constraints(pod, &world.cache, true);
        match happening {
            Happening::Pod { old, new, change } => {
                let matters =
                    PodChange::ADD | PodChange::LABEL | PodChange::TOLERATION | PodChange::DELETE;
                change.has(matters) && pod_helps(pod, &constraints(), *old, *new)
            }
            Happening::Node { old, new, change } => {
                let matters =
                    NodeChange::ADD | NodeChange::DELETE | NodeChange::LABEL | NodeChange::TAINT;
                change.has(matters) && node_helps(&constraints(), *old, *new)
            }
            _ => false,
        }
    }
}

impl Score for TopologySpread {
    fn prepare(&self, pod: &Arc<Pod>, world: &mut World, nodes: &[Slot]) -> Option<Box<dyn Rank>> {
        let constraints = self.constraints(pod, &world.cache, false);
        if constraints.is_empty() {
            return None;
        }
        let needs_all = !pod.spread.is_empty() || !self.is_system;
        Some(Box::new(rank::Evenness::of(
            pod,
            constraints,
            needs_all,
            nodes,
            &mut world.cache,
        )))
    }
}

fn pod_helps(pod: &Pod, constraints: &[Constraint], old: Option<&Pod>, new: Option<&Pod>) -> bool {
    let involved = |other: &Pod| {
        other.uid == pod.uid || (other.has_prospect() && other.namespace == pod.namespace)
    };
    if ![old, new].into_iter().flatten().all(involved) {
        return false;
    }
    let means =
        |constraint: &Constraint, other: &Pod| other.labels.match_selector(&constraint.selector);
    match (old, new) {
        (Some(old), Some(new)) => {
            let tolerates = new.uid == pod.uid && old.tolerations != new.tolerations;
            (tolerates && constraints.iter().any(|constraint| constraint.honor_taints))
                || constraints
                    .iter()
                    .any(|constraint| means(constraint, old) != means(constraint, new))
        }
        (only, other) => only
            .or(other)
            .is_some_and(|it| constraints.iter().any(|constraint| means(constraint, it))),
    }
}

fn node_helps(
    constraints: &[Constraint],
    old: Option<&NodeFacts>,
    new: Option<&NodeFacts>,
) -> bool {
    let has_all = |node: &NodeFacts| {
        constraints
            .iter()
            .all(|one| node.labels.get(&one.topology_key).is_some())
    };
    match (old, new) {
        (Some(old), Some(new)) => {
            let differs = |one: &Constraint| {
                old.labels.get(&one.topology_key) != new.labels.get(&one.topology_key)
            };
            has_all(old) != has_all(new)
                || (has_all(new) && (constraints.iter().any(differs) || old.taints != new.taints))
        }
        (only, other) => only.or(other).is_some_and(has_all),
    }
}
