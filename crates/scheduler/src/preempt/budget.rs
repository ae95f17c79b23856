//! Which victims would leave too few pods of a kind?

use std::sync::Arc;

use mizzen_object::select::LabelSelector;
use mizzen_sdk::{Key, Object};

use crate::HashMap;
use crate::model::Pod;

/// Parts pods into those whose budgets do not allow it and the others; both keep their order.
pub(super) fn part(
    pods: &[Arc<Pod>],
    budgets: &HashMap<Key, Object>,
) -> (Vec<Arc<Pod>>, Vec<Arc<Pod>>) {
    let mut left: Vec<Left> = budgets
        .iter()
        .filter_map(|(key, budget)| Left::of(key, budget))
        .collect();
    pods.iter()
        .cloned()
        .partition(|pod| violates(pod, &mut left))
}

/// How many pods a budget still lets go.
struct Left<'a> {
    key: &'a Key,
    budget: &'a Object,
    selector: LabelSelector,
    allowed: i64,
}

impl<'a> Left<'a> {
    fn of(key: &'a Key, budget: &'a Object) -> Option<Left<'a>> {
        let selector = LabelSelector::of(&budget["spec"]["selector"])
            .filter(|selector| !selector.is_empty())?;
        Some(Left {
            key,
            budget,
            selector,
            allowed: budget["status"]["disruptionsAllowed"].int(),
        })
    }

    fn covers(&self, pod: &Pod) -> bool {
        self.key.namespace() == pod.namespace
            && pod.labels.match_selector(&self.selector)
            && self.budget["status"]["disruptedPods"][pod.name.as_str()].is_null()
    }
}

/// Takes a pod from all its budgets; whether one of them had nothing left.
fn violates(pod: &Pod, left: &mut [Left]) -> bool {
    let mut violates = false;
    if pod.labels.is_empty() {
        return false;
    }
    for left in left.iter_mut().filter(|left| left.covers(pod)) {
        left.allowed -= 1;
        violates |= left.allowed < 0;
    }
    violates
}
