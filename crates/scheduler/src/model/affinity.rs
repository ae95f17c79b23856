//! Which other pods does a pod want near it, or far?

use mizzen_object::select::LabelSelector;
use mizzen_value::{Str, Value, json};

use super::labels::{Labels, nothing};
use super::pod::Pod;

/// Which pods are meant, and what "near" is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Term {
    /// What tells it from other terms.
    pub text: Str,
    /// Nodes that have the same value of this label are near each other.
    pub topology_key: Str,
    namespaces: Box<[Str]>,
    /// Namespaces by their labels, too.
    namespace_selector: Option<LabelSelector>,
    pub selector: LabelSelector,
}

/// In which namespaces pods are looked for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Namespaces {
    All,
    These(Vec<Str>),
}

impl Namespaces {
    pub(crate) fn have(&self, namespace: &str) -> bool {
        match self {
            Namespaces::All => true,
            Namespaces::These(names) => names.iter().any(|name| name == namespace),
        }
    }
}

impl Term {
    fn of(term: &Value, namespace: &str, weight: i64) -> Term {
        let text = format!("{namespace} {weight} {}", json::to_string(term));
        let mut namespaces: Vec<Str> = term["namespaces"]
            .list()
            .iter()
            .map(|name| name.str().into())
            .collect();
        let namespace_selector = LabelSelector::of(&term["namespaceSelector"]);
        if namespaces.is_empty() && namespace_selector.is_none() {
            namespaces.push(namespace.into());
        }
        Term {
            text: text.into(),
            topology_key: term["topologyKey"].str().into(),
            namespaces: namespaces.into(),
            namespace_selector,
            selector: LabelSelector::of(&term["labelSelector"]).unwrap_or_else(nothing),
        }
    }

    /// Whether it means a pod in a namespace with these labels.
    pub(crate) fn means(&self, pod: &Pod, namespace_labels: &Labels) -> bool {
        self.covers(&pod.namespace, namespace_labels) && pod.labels.match_selector(&self.selector)
    }

    fn covers(&self, namespace: &str, labels: &Labels) -> bool {
        self.namespaces.iter().any(|name| name == namespace)
            || self
                .namespace_selector
                .as_ref()
                .is_some_and(|selector| labels.match_selector(selector))
    }

    /// The one namespace in which it looks, if that does not depend on others' labels.
    pub(crate) fn only_namespace(&self) -> Option<&Str> {
        match &*self.namespaces {
            [name] if self.namespace_selector.is_none() => Some(name),
            _ => None,
        }
    }

    /// The namespaces in which it looks, given all that there are.
    pub(crate) fn resolve<'a>(
        &self,
        all: impl Iterator<Item = (&'a Str, &'a Labels)>,
    ) -> Namespaces {
        match &self.namespace_selector {
            Some(selector) if selector.is_empty() => Namespaces::All,
            None => Namespaces::These(self.namespaces.to_vec()),
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
                Namespaces::These(names)
            }
        }
    }
}

/// What a pod says of other pods.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Affinity {
    /// Pods that must be near.
    pub required: Box<[Term]>,
    /// Pods that must be far.
    pub required_anti: Box<[Term]>,
    /// Pods that should be near, and how much.
    pub preferred: Box<[(i64, Term)]>,
    /// Pods that should be far, and how much.
    pub preferred_anti: Box<[(i64, Term)]>,
    /// Whether it says anything at all, be it nothing.
    pub stated: bool,
}

impl Affinity {
    pub(crate) fn of(affinity: &Value, namespace: &str) -> Affinity {
        let (near, far) = (&affinity["podAffinity"], &affinity["podAntiAffinity"]);
        Affinity {
            required: required(near, namespace),
            required_anti: required(far, namespace),
            preferred: preferred(near, namespace),
            preferred_anti: preferred(far, namespace),
            stated: !near.is_null() || !far.is_null(),
        }
    }

    pub(crate) fn has_preferred(&self) -> bool {
        !self.preferred.is_empty() || !self.preferred_anti.is_empty()
    }
}

fn required(affinity: &Value, namespace: &str) -> Box<[Term]> {
    let terms = affinity["requiredDuringSchedulingIgnoredDuringExecution"].list();
    terms
        .iter()
        .map(|term| Term::of(term, namespace, 0))
        .collect()
}

fn preferred(affinity: &Value, namespace: &str) -> Box<[(i64, Term)]> {
    let term = |term: &Value| {
        let weight = term["weight"].int();
        (
            weight,
            Term::of(&term["podAffinityTerm"], namespace, weight),
        )
    };
    affinity["preferredDuringSchedulingIgnoredDuringExecution"]
        .list()
        .iter()
        .map(term)
        .collect()
}
