//! PodDisruptionBudgets that a preemption would violate.

use std::sync::Arc;

use mizzen_object::select::LabelSelector;
use mizzen_sdk::{Key, Object};

use crate::HashMap;
use crate::model::PodInfo;

/// Partitions pods into those whose PDB would be violated and the rest; both keep their order
/// (upstream: filterPodsWithPDBViolation).
pub(super) fn filter_pods_with_pdb_violation(
    pods: &[Arc<PodInfo>],
    budgets: &HashMap<Key, Object>,
) -> (Vec<Arc<PodInfo>>, Vec<Arc<PodInfo>>) {
    let mut left: Vec<BudgetAllowance> = budgets
        .iter()
        .filter_map(|(key, budget)| BudgetAllowance::new(key, budget))
        .collect();
    pods.iter()
        .cloned()
        .partition(|pod| violates_budget(pod, &mut left))
}

/// A PDB, and the disruptions that it still allows.
struct BudgetAllowance<'a> {
    key: &'a Key,
    budget: &'a Object,
    selector: LabelSelector,
    allowed: i64,
}

impl<'a> BudgetAllowance<'a> {
    fn new(key: &'a Key, budget: &'a Object) -> Option<BudgetAllowance<'a>> {
        let selector = LabelSelector::from_value(&budget["spec"]["selector"])
            .filter(|selector| !selector.is_empty())?;
        Some(BudgetAllowance {
            key,
            budget,
            selector,
            allowed: budget["status"]["disruptionsAllowed"].int(),
        })
    }

    fn covers(&self, pod: &PodInfo) -> bool {
        self.key.namespace() == pod.namespace
            && pod.labels.match_selector(&self.selector)
            && self.budget["status"]["disruptedPods"][pod.name.as_str()].is_null()
    }
}

/// Counts a disruption against all PDBs of a pod; true if one of them is violated.
fn violates_budget(pod: &PodInfo, left: &mut [BudgetAllowance]) -> bool {
    let mut violates_budget = false;
    if pod.labels.is_empty() {
        return false;
    }
    for left in left.iter_mut().filter(|left| left.covers(pod)) {
        left.allowed -= 1;
        violates_budget |= left.allowed < 0;
    }
    violates_budget
}
