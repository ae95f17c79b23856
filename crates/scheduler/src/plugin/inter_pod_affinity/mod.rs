//! Are the pods near that a pod wants near it, and those far that it wants far, and the other way round?

mod check;
mod rank;

use std::sync::Arc;

use super::{Filter, Name, Rank, Ready, Score};
use crate::cache::{Cache, Matcher, NOWHERE, Slot};
use crate::happening::{Happening, NodeChange, PodChange};
use crate::model::{NodeFacts, Pod, Term};
use crate::world::World;

/// How much others' demands count when nodes are compared.
#[derive(Debug, Clone)]
pub(crate) struct InterPodAffinity {
    /// What a pod counts that another pod must have near.
    pub hard_weight: i64,
    /// Whether others' wishes do not count for pods that have none.
    pub ignore_others_wishes: bool,
}

impl Default for InterPodAffinity {
    fn default() -> InterPodAffinity {
        InterPodAffinity {
            hard_weight: 1,
            ignore_others_wishes: false,
        }
    }
}

/// What some terms mean, with the namespaces in which they look.
fn matcher<'a>(cache: &Cache, terms: impl Iterator<Item = &'a Term>) -> Matcher {
    let all = terms
        .map(|term| (cache.resolve(term), term.selector.clone()))
        .collect();
    Matcher {
        all,
        staying: false,
    }
}

/// So many pods of what is counted are near each value of a label.
fn by_domain(cache: &Cache, counted: usize, topology: usize) -> Vec<i64> {
    let (counted, domains) = (cache.counted(counted), cache.domains(topology));
    let mut sums = vec![0; domains.bound()];
    if counted.total == 0 {
        return sums;
    }
    for slot in cache.order() {
        let number = domains.of(*slot);
        if number != NOWHERE {
            sums[number as usize] += i64::from(counted.of(*slot));
        }
    }
    sums
}

impl Filter for InterPodAffinity {
    fn name(&self) -> Name {
        Name::InterPodAffinity
    }

    fn prepare(&self, pod: &Arc<Pod>, world: &mut World) -> Ready {
        match check::Near::of(pod, &mut world.cache) {
            Some(near) => Ready::Check(Box::new(near)),
            None => Ready::Skip,
        }
    }

    fn wakes(&self, pod: &Pod, happening: &Happening, world: &World) -> bool {
        match happening {
            Happening::Pod { old, new, change } => {
                change.has(PodChange::ADD | PodChange::LABEL | PodChange::DELETE)
                    && pod_helps(pod, *old, *new, &world.cache)
            }
            Happening::Node {
                old,
                new: Some(new),
                change,
            } => change.has(NodeChange::ADD | NodeChange::LABEL) && node_helps(pod, *old, new),
            _ => false,
        }
    }
}

impl Score for InterPodAffinity {
    fn prepare(&self, pod: &Arc<Pod>, world: &mut World, _nodes: &[Slot]) -> Option<Box<dyn Rank>> {
        if self.ignore_others_wishes && !pod.affinity.has_preferred() {
            return None;
        }
        rank::Wishes::of(pod, &mut world.cache, self.hard_weight)
            .map(|wishes| Box::new(wishes) as _)
    }
}

/// Whether a pod is meant by all of some terms; by none if there is none.
fn means_all(terms: &[Term], pod: &Pod, cache: &Cache) -> bool {
    !terms.is_empty()
        && terms
            .iter()
            .all(|term| term.means(pod, cache.namespace_labels(&pod.namespace)))
}

fn pod_helps(pod: &Pod, old: Option<&Pod>, new: Option<&Pod>, cache: &Cache) -> bool {
    if old.is_some() && new.is_some_and(|new| new.uid == pod.uid) {
        return true;
    }
    if [old, new]
        .into_iter()
        .flatten()
        .any(|other| !other.has_prospect())
    {
        return false;
    }
    let (near, far) = (&pod.affinity.required, &pod.affinity.required_anti);
    match (old, new) {
        (Some(old), Some(new)) => {
            (!means_all(near, old, cache) && means_all(near, new, cache))
                || (means_all(far, old, cache) && !means_all(far, new, cache))
        }
        (None, Some(new)) => means_all(near, new, cache),
        (Some(old), None) => {
            means_all(far, old, cache) || means_all(&old.affinity.required_anti, pod, cache)
        }
        (None, None) => false,
    }
}

fn node_helps(pod: &Pod, old: Option<&NodeFacts>, new: &NodeFacts) -> bool {
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

/// Whether a resolved matcher means a pod.
fn is_meant(matcher: &Matcher, pod: &Pod) -> bool {
    !matcher.all.is_empty() && matcher.means(pod)
}
