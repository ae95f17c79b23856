//! Which terms do pods carry that are already somewhere, and where?
//!
//! Pods made from one template carry the same terms; a new pod is compared with each term once, not with each pod.

use mizzen_value::Str;

use crate::HashMap;
use crate::model::{Labels, Pod, Term};

/// What a term is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sort {
    /// Pods that it means must not come near.
    RequiredAnti,
    /// Pods that it means must be near.
    Required,
    /// Pods that it means should be near, or far if it is negative.
    Preferred(i64),
}

/// A term that pods carry.
#[derive(Debug)]
pub(crate) struct Carried {
    pub term: Term,
    pub sort: Sort,
    /// The place of its label among topologies.
    pub topology: usize,
    /// How many pods carry it, by the number of their nodes' value.
    pub of: Vec<u32>,
    /// How many pods carry it at all.
    n_pods: u32,
}

/// All terms that pods carry.
#[derive(Debug, Default)]
pub(super) struct Terms {
    by_text: HashMap<(u8, Str), usize>,
    /// By the one namespace in which they look, or by none.
    by_namespace: HashMap<Option<Str>, Vec<usize>>,
    terms: HashMap<usize, Carried>,
    next: usize,
}

impl Terms {
    /// Counts the terms of a pod that came or went. `domain` has the place of a label, and the number of the node there.
    pub(super) fn change(
        &mut self,
        pod: &Pod,
        by: i32,
        mut domain: impl FnMut(&Str) -> (usize, u32),
    ) {
        for (sort, term) in terms(pod) {
            let (topology, number) = domain(&term.topology_key);
            let at = self.place(sort, term, topology);
            let Some(carried) = self.terms.get_mut(&at) else {
                continue;
            };
            carried.count(number, by);
            if carried.n_pods == 0 {
                self.forget(at);
            }
        }
    }

    fn place(&mut self, sort: Sort, term: &Term, topology: usize) -> usize {
        let key = (sort.number(), term.text.clone());
        if let Some(at) = self.by_text.get(&key) {
            return *at;
        }
        let at = self.next;
        self.next += 1;
        self.by_text.insert(key, at);
        self.by_namespace
            .entry(term.only_namespace().cloned())
            .or_default()
            .push(at);
        self.terms.insert(
            at,
            Carried {
                term: term.clone(),
                sort,
                topology,
                of: Vec::new(),
                n_pods: 0,
            },
        );
        at
    }

    fn forget(&mut self, at: usize) {
        let Some(carried) = self.terms.remove(&at) else {
            return;
        };
        self.by_text
            .remove(&(carried.sort.number(), carried.term.text.clone()));
        let namespace = carried.term.only_namespace().cloned();
        if let Some(places) = self.by_namespace.get_mut(&namespace) {
            places.retain(|place| *place != at);
            if places.is_empty() {
                self.by_namespace.remove(&namespace);
            }
        }
    }

    /// The terms that mean a pod.
    pub(super) fn meaning<'a>(
        &'a self,
        pod: &'a Pod,
        namespace_labels: &'a Labels,
    ) -> impl Iterator<Item = &'a Carried> {
        let places = [None, Some(pod.namespace.clone())];
        let places = places
            .into_iter()
            .filter_map(|namespace| self.by_namespace.get(&namespace))
            .flatten();
        let carried = places.filter_map(|at| self.terms.get(at));
        carried.filter(|carried| carried.term.means(pod, namespace_labels))
    }
}

impl Carried {
    fn count(&mut self, number: u32, by: i32) {
        self.n_pods = self.n_pods.saturating_add_signed(by);
        if number == super::NOWHERE {
            return;
        }
        let at = number as usize;
        if at >= self.of.len() {
            self.of.resize(at + 1, 0);
        }
        self.of[at] = self.of[at].saturating_add_signed(by);
    }
}

impl Sort {
    fn number(self) -> u8 {
        match self {
            Sort::RequiredAnti => 0,
            Sort::Required => 1,
            Sort::Preferred(weight) if weight >= 0 => 2,
            Sort::Preferred(_) => 3,
        }
    }
}

/// All terms of a pod.
fn terms(pod: &Pod) -> impl Iterator<Item = (Sort, &Term)> {
    let affinity = &pod.affinity;
    let anti = affinity
        .required_anti
        .iter()
        .map(|term| (Sort::RequiredAnti, term));
    let required = affinity.required.iter().map(|term| (Sort::Required, term));
    let preferred = affinity
        .preferred
        .iter()
        .map(|(weight, term)| (Sort::Preferred(*weight), term));
    let far = affinity
        .preferred_anti
        .iter()
        .map(|(weight, term)| (Sort::Preferred(-weight), term));
    anti.chain(required).chain(preferred).chain(far)
}
