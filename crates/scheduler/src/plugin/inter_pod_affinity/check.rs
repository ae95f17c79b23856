//! May a pod be on a node, by what it and others demand of their neighbours?

use std::sync::Arc;

use mizzen_value::Str;

use super::{by_domain, is_meant, matcher};
use crate::cache::{Cache, Matcher, NOWHERE, Node, Sort};
use crate::model::{Labels, Pod};
use crate::plugin::{Check, Name, Refusal};
use crate::world::World;

/// So many pods are near each value of a label.
#[derive(Clone)]
struct Sums {
    key: Str,
    /// None while nobody who is placed counts by the label.
    topology: Option<usize>,
    counts: Arc<Vec<i64>>,
    /// Pods that are imagined near a value.
    imagined: Vec<(Str, i64)>,
}

impl Sums {
    fn new(key: &Str, topology: Option<usize>, counts: Vec<i64>) -> Sums {
        Sums {
            key: key.clone(),
            topology,
            counts: Arc::new(counts),
            imagined: Vec::new(),
        }
    }

    /// How many are near a node; none if it does not have the label.
    fn near(&self, node: &Node, world: &World) -> Option<i64> {
        let counted = match self
            .topology
            .map(|topology| world.cache.domains(topology).of(node.slot))
        {
            Some(NOWHERE) => return None,
            Some(number) => self
                .counts
                .get(number as usize)
                .copied()
                .unwrap_or_default(),
            None => 0,
        };
        if self.imagined.is_empty() {
            return Some(counted);
        }
        let value = node.facts.labels.get(&self.key)?;
        let imagined = self.imagined.iter().filter(|(known, _)| known == value);
        Some(counted + imagined.map(|(_, by)| by).sum::<i64>())
    }

    fn imagine(&mut self, node: &Node, by: i64) {
        if let Some(value) = node.facts.labels.get(&self.key) {
            self.imagined.push((value.into(), by));
        }
    }

    fn is_empty(&self) -> bool {
        self.counts.iter().sum::<i64>() + self.imagined.iter().map(|(_, by)| by).sum::<i64>() == 0
    }
}

/// What is known of a pod's neighbours.
#[derive(Clone)]
pub(super) struct Near {
    pod: Arc<Pod>,
    namespace_labels: Labels,
    /// Pods that are meant by all of the pod's terms, once for each term.
    wanted: Vec<Sums>,
    wanted_matcher: Matcher,
    /// Pods that are meant by one of the pod's terms, for each.
    unwanted: Vec<(Matcher, Sums)>,
    /// Pods that do not want this one near.
    unwilling: Vec<Sums>,
}

impl Near {
    /// What is known of a pod's neighbours; none if nobody demands anything.
    pub(super) fn of(pod: &Arc<Pod>, cache: &mut Cache) -> Option<Near> {
        let unwilling = unwilling(pod, cache);
        let affinity = &pod.affinity;
        if unwilling.is_empty() && affinity.required.is_empty() && affinity.required_anti.is_empty()
        {
            return None;
        }
        let wanted_matcher = matcher(cache, affinity.required.iter());
        let wanted = affinity
            .required
            .iter()
            .map(|term| sums(cache, &wanted_matcher, &term.topology_key));
        let wanted = wanted.collect();
        let unwanted = affinity.required_anti.iter().map(|term| {
            let matcher = matcher(cache, std::iter::once(term));
            let sums = sums(cache, &matcher, &term.topology_key);
            (matcher, sums)
        });
        Some(Near {
            unwanted: unwanted.collect(),
            wanted,
            wanted_matcher,
            unwilling,
            namespace_labels: cache.namespace_labels(&pod.namespace).clone(),
            pod: pod.clone(),
        })
    }

    /// Whether the pods are near that must be. The first of a group that wants to be together may be anywhere.
    fn is_wanted(&self, node: &Node, world: &World) -> bool {
        let mut found = true;
        for sums in &self.wanted {
            match sums.near(node, world) {
                None => return false,
                Some(count) => found &= count > 0,
            }
        }
        found
            || (self.wanted.iter().all(Sums::is_empty) && is_meant(&self.wanted_matcher, &self.pod))
    }
}

fn sums(cache: &mut Cache, matcher: &Matcher, key: &Str) -> Sums {
    let (counted, topology) = (cache.count(matcher), cache.topology(key));
    Sums::new(key, Some(topology), by_domain(cache, counted, topology))
}

/// Pods that do not want this one near, by label.
fn unwilling(pod: &Pod, cache: &Cache) -> Vec<Sums> {
    let mut sums: Vec<(&Str, usize, Vec<i64>)> = Vec::new();
    for carried in cache
        .terms_meaning(pod)
        .filter(|carried| carried.sort == Sort::RequiredAnti)
    {
        let known = sums
            .iter()
            .position(|(_, topology, _)| *topology == carried.topology);
        let at = known.unwrap_or(sums.len());
        if known.is_none() {
            let counts = vec![0; cache.domains(carried.topology).bound()];
            sums.push((&carried.term.topology_key, carried.topology, counts));
        }
        for (sum, count) in sums[at].2.iter_mut().zip(&carried.of) {
            *sum += i64::from(*count);
        }
    }
    sums.into_iter()
        .map(|(key, topology, counts)| Sums::new(key, Some(topology), counts))
        .collect()
}

impl Check for Near {
    fn check(&self, node: &Node, world: &World) -> Option<Refusal> {
        let name = Name::InterPodAffinity;
        let some = |sums: &Sums| sums.near(node, world).is_some_and(|count| count > 0);
        if !self.is_wanted(node, world) {
            return Some(Refusal::for_good(
                name,
                "node(s) didn't match pod affinity rules",
            ));
        }
        if self.unwanted.iter().any(|(_, sums)| some(sums)) {
            return Some(Refusal::for_now(
                name,
                "node(s) didn't match pod anti-affinity rules",
            ));
        }
        if self.unwilling.iter().any(some) {
            return Some(Refusal::for_now(
                name,
                "node(s) didn't satisfy existing pods anti-affinity rules",
            ));
        }
        None
    }

    fn imagine(&mut self, pod: &Pod, node: &Node, by: i64, _world: &World) {
        if is_meant(&self.wanted_matcher, pod) {
            self.wanted
                .iter_mut()
                .for_each(|sums| sums.imagine(node, by));
        }
        for (matcher, sums) in &mut self.unwanted {
            if is_meant(matcher, pod) {
                sums.imagine(node, by);
            }
        }
        for term in &pod.affinity.required_anti {
            if !term.means(&self.pod, &self.namespace_labels) {
                continue;
            }
            match self
                .unwilling
                .iter_mut()
                .find(|sums| sums.key == term.topology_key)
            {
                Some(sums) => sums.imagine(node, by),
                None => {
                    let mut sums = Sums::new(&term.topology_key, None, Vec::new());
                    sums.imagine(node, by);
                    self.unwilling.push(sums);
                }
            }
        }
    }

    fn copy(&self) -> Box<dyn Check> {
        Box::new(self.clone())
    }
}
