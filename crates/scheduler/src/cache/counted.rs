//! How many pods that a selector means are on each node?
//!
//! A selector is counted from when it is first asked for; then each pod that comes or goes changes one number. Selectors
//! that nobody asks for any more are forgotten when there are too many.

use mizzen_object::select::LabelSelector;
use mizzen_value::Str;

use super::store::Slot;
use crate::HashMap;
use crate::model::{Namespaces, Pod};

/// How many selectors are counted at a time.
const MOST: usize = 1024;

/// Which pods are counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Matcher {
    /// A pod must be meant by each of them.
    pub all: Vec<(Namespaces, LabelSelector)>,
    /// Whether pods that are going do not count.
    pub staying: bool,
}

impl Matcher {
    /// Pods of one namespace that stay.
    pub(crate) fn in_namespace(namespace: &Str, selector: &LabelSelector) -> Matcher {
        Matcher {
            all: vec![(Namespaces::These(vec![namespace.clone()]), selector.clone())],
            staying: true,
        }
    }

    pub(crate) fn means(&self, pod: &Pod) -> bool {
        !(self.staying && pod.is_going)
            && self.all.iter().all(|(namespaces, selector)| {
                namespaces.have(&pod.namespace) && pod.labels.match_selector(selector)
            })
    }

    /// The only namespace of pods that it can mean, if there is one.
    pub(crate) fn only_namespace(&self) -> Option<&Str> {
        self.all
            .iter()
            .find_map(|(namespaces, _)| match namespaces {
                Namespaces::These(names) if names.len() == 1 => names.first(),
                _ => None,
            })
    }
}

/// What was counted.
#[derive(Debug)]
pub(crate) struct Counted {
    matcher: Matcher,
    /// By node.
    of: Vec<u32>,
    pub total: u64,
    /// When it was asked for last.
    used: u64,
}

impl Counted {
    pub(crate) fn of(&self, slot: Slot) -> u32 {
        self.of.get(slot as usize).copied().unwrap_or_default()
    }

    fn change(&mut self, slot: Slot, by: i32) {
        let at = slot as usize;
        if at >= self.of.len() {
            self.of.resize(at + 1, 0);
        }
        self.of[at] = self.of[at].saturating_add_signed(by);
        self.total = self.total.saturating_add_signed(by.into());
    }
}

/// All selectors that are counted.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// By the one namespace in which they look, or by none.
    by_namespace: HashMap<Option<Str>, Vec<usize>>,
    counted: HashMap<usize, Counted>,
    next: usize,
    asked: u64,
}

impl Counts {
    /// The number under which a selector is counted; `pods` are looked at when it is new.
    pub(super) fn place<'a>(
        &mut self,
        matcher: &Matcher,
        pods: impl FnOnce(Option<&Str>) -> Vec<(&'a Pod, Slot)>,
    ) -> usize {
        self.asked += 1;
        let namespace = matcher.only_namespace().cloned();
        let known = self.by_namespace.get(&namespace).into_iter().flatten();
        let known = known
            .copied()
            .find(|at| self.counted[at].matcher == *matcher);
        if let Some(counted) = known.and_then(|at| self.counted.get_mut(&at)) {
            counted.used = self.asked;
            return known.unwrap_or_default();
        }
        let mut counted = Counted {
            matcher: matcher.clone(),
            of: Vec::new(),
            total: 0,
            used: self.asked,
        };
        for (pod, slot) in pods(namespace.as_ref()) {
            if matcher.means(pod) {
                counted.change(slot, 1);
            }
        }
        self.insert(namespace, counted)
    }

    fn insert(&mut self, namespace: Option<Str>, counted: Counted) -> usize {
        if self.counted.len() >= MOST {
            self.forget_half();
        }
        let at = self.next;
        self.next += 1;
        self.by_namespace.entry(namespace).or_default().push(at);
        self.counted.insert(at, counted);
        at
    }

    /// Forgets those that were not asked for lately.
    fn forget_half(&mut self) {
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

    pub(super) fn at(&self, place: usize) -> &Counted {
        &self.counted[&place]
    }

    /// Counts a pod that came to a node, or went.
    pub(super) fn change(&mut self, pod: &Pod, slot: Slot, by: i32) {
        for namespace in [None, Some(pod.namespace.clone())] {
            for at in self.by_namespace.get(&namespace).into_iter().flatten() {
                let Some(counted) = self.counted.get_mut(at) else {
                    continue;
                };
                if counted.matcher.means(pod) {
                    counted.change(slot, by);
                }
            }
        }
    }
}
