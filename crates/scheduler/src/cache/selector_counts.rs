//! The number of pods per node that match a selector.
//!
//! A selector is counted when it is first used; from then on each pod that is added or removed
//! changes one number. When there are too many selectors, the least recently used half is dropped.

use mizzen_object::select::LabelSelector;
use mizzen_value::Str;

use super::store::Slot;
use crate::HashMap;
use crate::model::{PodInfo, TermNamespaces};

/// The most selectors that are counted at a time.
const MAX_SELECTORS: usize = 1024;

/// Which pods are counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodMatcher {
    /// A pod must match all of them.
    pub all: Vec<(TermNamespaces, LabelSelector)>,
    /// Whether terminating pods are left out.
    pub exclude_terminating: bool,
}

impl PodMatcher {
    /// Pods of one namespace that are not terminating.
    pub(crate) fn in_namespace(namespace: &Str, selector: &LabelSelector) -> PodMatcher {
        PodMatcher {
            all: vec![(
                TermNamespaces::These(vec![namespace.clone()]),
                selector.clone(),
            )],
            exclude_terminating: true,
        }
    }

    pub(crate) fn matches(&self, pod: &PodInfo) -> bool {
        !(self.exclude_terminating && pod.is_terminating)
            && self.all.iter().all(|(namespaces, selector)| {
                namespaces.contain(&pod.namespace) && pod.labels.match_selector(selector)
            })
    }

    /// The only namespace whose pods can match, if there is one.
    pub(crate) fn only_namespace(&self) -> Option<&Str> {
        self.all
            .iter()
            .find_map(|(namespaces, _)| match namespaces {
                TermNamespaces::These(names) if names.len() == 1 => names.first(),
                _ => None,
            })
    }
}

/// The pods that match one selector.
#[derive(Debug)]
pub(crate) struct PodCounts {
    matcher: PodMatcher,
    /// By node slot.
    by_slot: Vec<u32>,
    pub total: u64,
    /// When it was used last.
    used: u64,
}

impl PodCounts {
    pub(crate) fn count_on(&self, slot: Slot) -> u32 {
        self.by_slot.get(slot as usize).copied().unwrap_or_default()
    }

    fn change(&mut self, slot: Slot, by: i32) {
        let at = slot as usize;
        if at >= self.by_slot.len() {
            self.by_slot.resize(at + 1, 0);
        }
        self.by_slot[at] = self.by_slot[at].saturating_add_signed(by);
        self.total = self.total.saturating_add_signed(by.into());
    }
}

/// All selectors that are counted.
#[derive(Debug, Default)]
pub(super) struct SelectorCounts {
    /// By the only namespace a selector covers, or `None`.
    by_namespace: HashMap<Option<Str>, Vec<usize>>,
    counted: HashMap<usize, PodCounts>,
    next: usize,
    n_lookups: u64,
}

impl SelectorCounts {
    /// The index of a selector. `pods` are counted if it is new.
    pub(super) fn index_of<'a>(
        &mut self,
        matcher: &PodMatcher,
        pods: impl FnOnce(Option<&Str>) -> Vec<(&'a PodInfo, Slot)>,
    ) -> usize {
        self.n_lookups += 1;
        let namespace = matcher.only_namespace().cloned();
        let known = self.by_namespace.get(&namespace).into_iter().flatten();
        let known = known
            .copied()
            .find(|at| self.counted[at].matcher == *matcher);
        if let Some(counted) = known.and_then(|at| self.counted.get_mut(&at)) {
            counted.used = self.n_lookups;
            return known.unwrap_or_default();
        }
        let mut counted = PodCounts {
            matcher: matcher.clone(),
            by_slot: Vec::new(),
            total: 0,
            used: self.n_lookups,
        };
        for (pod, slot) in pods(namespace.as_ref()) {
            if matcher.matches(pod) {
                counted.change(slot, 1);
            }
        }
        self.insert(namespace, counted)
    }

    fn insert(&mut self, namespace: Option<Str>, counted: PodCounts) -> usize {
        if self.counted.len() >= MAX_SELECTORS {
            self.evict_half();
        }
        let at = self.next;
        self.next += 1;
        self.by_namespace.entry(namespace).or_default().push(at);
        self.counted.insert(at, counted);
        at
    }

    /// Drops the least recently used half.
    fn evict_half(&mut self) {
        let mut used: Vec<u64> = self.counted.values().map(|counted| counted.used).collect();
        used.sort_unstable();
        let oldest = used[used.len() / 2];
        self.counted.retain(|_, counted| counted.used > oldest);
        let counted = &self.counted;
        self.by_namespace.retain(|_, places| {
            places.retain(|at| counted.contains_key(at));
            !places.is_empty()
        });
    }

    pub(super) fn at(&self, place: usize) -> &PodCounts {
        &self.counted[&place]
    }

    /// Counts a pod that was added to a node or removed from it.
    pub(super) fn change(&mut self, pod: &PodInfo, slot: Slot, by: i32) {
        for namespace in [None, Some(pod.namespace.clone())] {
            for at in self.by_namespace.get(&namespace).into_iter().flatten() {
                let Some(counted) = self.counted.get_mut(at) else {
                    continue;
                };
                if counted.matcher.matches(pod) {
                    counted.change(slot, by);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::samples::pod;

    fn matcher(n: usize) -> PodMatcher {
        let selector = LabelSelector::parse(&format!("app=a{n}")).expect("a selector");
        PodMatcher::in_namespace(&"default".into(), &selector)
    }

    #[test]
    fn a_selector_that_was_evicted_has_the_same_count_again() {
        let pod = pod("p", "{metadata: {labels: {app: a0}}}");
        let mut counts = SelectorCounts::default();
        for n in 0..3 * MAX_SELECTORS {
            let at = counts.index_of(&matcher(n), |_| vec![(&pod, 1)]);
            assert_eq!(counts.at(at).total, u64::from(n == 0));
            let n_counted = counts.counted.len();
            assert!(n_counted <= MAX_SELECTORS, "{n_counted}");
        }
        let mut is_counted = false;
        let at = counts.index_of(&matcher(0), |_| {
            is_counted = true;
            vec![(&pod, 1)]
        });
        assert!(is_counted, "evicted, so counted again");
        assert_eq!(counts.at(at).count_on(1), 1);
    }

    #[test]
    fn a_selector_is_counted_once_and_follows_its_pods() {
        let pod = pod("p", "{metadata: {labels: {app: a0}}}");
        let mut counts = SelectorCounts::default();
        counts.index_of(&matcher(0), |_| vec![(&pod, 0)]);
        counts.change(&pod, 2, 1);
        let at = counts.index_of(&matcher(0), |_| panic!("the count is known"));
        assert_eq!((counts.at(at).count_on(2), counts.at(at).total), (1, 2));
    }
}
