//! The pod affinity terms of assigned pods, counted per topology domain.
//!
//! Pods made from one template carry the same terms, so a new pod is compared with each term once,
//! not with each pod.

use mizzen_value::Str;

use crate::HashMap;
use crate::model::{AffinityTerm, Labels, PodInfo};

/// The kind of an affinity term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TermKind {
    /// Required anti-affinity: pods that match must not share the domain.
    RequiredAnti,
    /// Required affinity: pods that match must share the domain.
    Required,
    /// Preferred affinity with its weight; anti-affinity if negative.
    NodeAffinityScorer(i64),
}

/// An affinity term, and the pods that carry it.
#[derive(Debug)]
pub(crate) struct ExistingTerm {
    pub term: AffinityTerm,
    pub kind: TermKind,
    /// The index of its topology key among `Topologies`.
    pub topology: usize,
    /// The number of pods that carry it, by topology domain.
    pub by_domain: Vec<u32>,
    /// The number of pods that carry it in all.
    n_pods: u32,
}

/// All affinity terms of assigned pods.
#[derive(Debug, Default)]
pub(super) struct ExistingTerms {
    by_text: HashMap<(u8, Str), usize>,
    /// By the only namespace a term selects, or `None`.
    by_namespace: HashMap<Option<Str>, Vec<usize>>,
    terms: HashMap<usize, ExistingTerm>,
    next: usize,
}

impl ExistingTerms {
    /// Counts the terms of a pod that was added or removed. `domain` returns the index of a
    /// topology key and the pod's domain in it.
    pub(super) fn change(
        &mut self,
        pod: &PodInfo,
        by: i32,
        mut domain: impl FnMut(&Str) -> (usize, u32),
    ) {
        for (kind, term) in pod_terms(pod) {
            let (topology, number) = domain(&term.topology_key);
            let at = self.index_of(kind, term, topology);
            let Some(carried) = self.terms.get_mut(&at) else {
                continue;
            };
            carried.count(number, by);
            if carried.n_pods == 0 {
                self.forget(at);
            }
        }
    }

    fn index_of(&mut self, kind: TermKind, term: &AffinityTerm, topology: usize) -> usize {
        let key = (kind.discriminant(), term.text.clone());
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
            ExistingTerm {
                term: term.clone(),
                kind,
                topology,
                by_domain: Vec::new(),
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
            .remove(&(carried.kind.discriminant(), carried.term.text.clone()));
        let namespace = carried.term.only_namespace().cloned();
        if let Some(places) = self.by_namespace.get_mut(&namespace) {
            places.retain(|place| *place != at);
            if places.is_empty() {
                self.by_namespace.remove(&namespace);
            }
        }
    }

    /// The terms that match a pod.
    pub(super) fn matching<'a>(
        &'a self,
        pod: &'a PodInfo,
        namespace_labels: &'a Labels,
    ) -> impl Iterator<Item = &'a ExistingTerm> {
        let places = [None, Some(pod.namespace.clone())];
        let places = places
            .into_iter()
            .filter_map(|namespace| self.by_namespace.get(&namespace))
            .flatten();
        let carried = places.filter_map(|at| self.terms.get(at));
        carried.filter(|carried| carried.term.matches(pod, namespace_labels))
    }
}

impl ExistingTerm {
    fn count(&mut self, number: u32, by: i32) {
        self.n_pods = self.n_pods.saturating_add_signed(by);
        if number == super::NO_DOMAIN {
            return;
        }
        let at = number as usize;
        if at >= self.by_domain.len() {
            self.by_domain.resize(at + 1, 0);
        }
        self.by_domain[at] = self.by_domain[at].saturating_add_signed(by);
    }
}

impl TermKind {
    fn discriminant(self) -> u8 {
        match self {
            TermKind::RequiredAnti => 0,
            TermKind::Required => 1,
            TermKind::NodeAffinityScorer(weight) if weight >= 0 => 2,
            TermKind::NodeAffinityScorer(_) => 3,
        }
    }
}

/// All affinity terms of a pod.
fn pod_terms(pod: &PodInfo) -> impl Iterator<Item = (TermKind, &AffinityTerm)> {
    let affinity = &pod.affinity;
    let anti = affinity
        .required_anti
        .iter()
        .map(|term| (TermKind::RequiredAnti, term));
    let required = affinity
        .required
        .iter()
        .map(|term| (TermKind::Required, term));
    let preferred = affinity
        .preferred
        .iter()
        .map(|(weight, term)| (TermKind::NodeAffinityScorer(*weight), term));
    let far = affinity
        .preferred_anti
        .iter()
        .map(|(weight, term)| (TermKind::NodeAffinityScorer(-weight), term));
    anti.chain(required).chain(preferred).chain(far)
}
