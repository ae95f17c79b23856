//! Pod affinity and anti-affinity terms.

use mizzen_object::select::LabelSelector;
use mizzen_value::{Str, Value, json};

use super::labels::{Labels, matches_nothing};
use super::pod::PodInfo;

/// A pod affinity term.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AffinityTerm {
    /// Identifies the term among the terms of all pods.
    pub text: Str,
    /// Nodes with the same value of this label are one topology domain.
    pub topology_key: Str,
    namespaces: Box<[Str]>,
    /// Namespaces selected by label, in addition.
    namespace_selector: Option<LabelSelector>,
    pub selector: LabelSelector,
}

/// The namespaces that a term selects.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum TermNamespaces {
    All,
    These(Vec<Str>),
}

impl TermNamespaces {
    pub(crate) fn contain(&self, namespace: &str) -> bool {
        match self {
            TermNamespaces::All => true,
            TermNamespaces::These(names) => names.iter().any(|name| name == namespace),
        }
    }
}

impl AffinityTerm {
    fn new(term: &Value, namespace: &str, weight: i64) -> AffinityTerm {
        let text = format!("{namespace} {weight} {}", json::to_string(term));
        let mut namespaces: Vec<Str> = term["namespaces"]
            .list()
            .iter()
            .map(|name| name.str().into())
            .collect();
        let namespace_selector = LabelSelector::from_value(&term["namespaceSelector"]);
        if namespaces.is_empty() && namespace_selector.is_none() {
            namespaces.push(namespace.into());
        }
        AffinityTerm {
            text: text.into(),
            topology_key: term["topologyKey"].str().into(),
            namespaces: namespaces.into(),
            namespace_selector,
            selector: LabelSelector::from_value(&term["labelSelector"])
                .unwrap_or_else(matches_nothing),
        }
    }

    /// Whether it matches a pod whose namespace has these labels.
    pub(crate) fn matches(&self, pod: &PodInfo, namespace_labels: &Labels) -> bool {
        self.covers_namespace(&pod.namespace, namespace_labels)
            && pod.labels.match_selector(&self.selector)
    }

    fn covers_namespace(&self, namespace: &str, labels: &Labels) -> bool {
        self.namespaces.iter().any(|name| name == namespace)
            || self
                .namespace_selector
                .as_ref()
                .is_some_and(|selector| labels.match_selector(selector))
    }

    /// The only namespace that it selects, if that does not depend on namespace labels.
    pub(crate) fn only_namespace(&self) -> Option<&Str> {
        match &*self.namespaces {
            [name] if self.namespace_selector.is_none() => Some(name),
            _ => None,
        }
    }

    /// The namespaces that it selects, out of `all`.
    pub(crate) fn resolve_namespaces<'a>(
        &self,
        all: impl Iterator<Item = (&'a Str, &'a Labels)>,
    ) -> TermNamespaces {
        match &self.namespace_selector {
            Some(selector) if selector.is_empty() => TermNamespaces::All,
            None => TermNamespaces::These(self.namespaces.to_vec()),
            Some(selector) => {
                let chosen = all.filter(|(_, labels)| labels.match_selector(selector));
                let mut names: Vec<Str> = self
                    .namespaces
                    .iter()
                    .chain(chosen.map(|(name, _)| name))
                    .cloned()
                    .collect();
                names.sort_unstable();
                names.dedup();
                TermNamespaces::These(names)
            }
        }
    }
}

/// The pod affinity of a pod.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Affinity {
    pub required: Box<[AffinityTerm]>,
    pub required_anti: Box<[AffinityTerm]>,
    /// With weights.
    pub preferred: Box<[(i64, AffinityTerm)]>,
    /// With weights.
    pub preferred_anti: Box<[(i64, AffinityTerm)]>,
    /// Whether `podAffinity` or `podAntiAffinity` is set, even if empty.
    pub stated: bool,
}

impl Affinity {
    pub(crate) fn from_value(affinity: &Value, namespace: &str) -> Affinity {
        let (near, far) = (&affinity["podAffinity"], &affinity["podAntiAffinity"]);
        Affinity {
            required: required_terms(near, namespace),
            required_anti: required_terms(far, namespace),
            preferred: preferred_terms(near, namespace),
            preferred_anti: preferred_terms(far, namespace),
            stated: !near.is_null() || !far.is_null(),
        }
    }

    pub(crate) fn has_preferred(&self) -> bool {
        !self.preferred.is_empty() || !self.preferred_anti.is_empty()
    }
}

fn required_terms(affinity: &Value, namespace: &str) -> Box<[AffinityTerm]> {
    let terms = affinity["requiredDuringSchedulingIgnoredDuringExecution"].list();
    terms
        .iter()
        .map(|term| AffinityTerm::new(term, namespace, 0))
        .collect()
}

fn preferred_terms(affinity: &Value, namespace: &str) -> Box<[(i64, AffinityTerm)]> {
    let term = |term: &Value| {
        let weight = term["weight"].int();
        (
            weight,
            AffinityTerm::new(&term["podAffinityTerm"], namespace, weight),
        )
    };
    affinity["preferredDuringSchedulingIgnoredDuringExecution"]
        .list()
        .iter()
        .map(term)
        .collect()
}
