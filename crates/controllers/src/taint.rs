//! Taints of nodes.
//!
//! Invariant: a taint is identified by key and effect, not by value and time.

use mizzen_value::{Value, value};

/// Ready is False.
pub(crate) const NOT_READY: &str = "node.kubernetes.io/not-ready";
/// Ready is Unknown.
pub(crate) const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
/// The node is cordoned.
pub(crate) const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// A taint added now.
pub(crate) fn new_taint(key: &str, effect: &str, now: &str) -> Value {
    value!({"key": key, "effect": effect, "timeAdded": now})
}

/// Whether two taints have the same key and effect.
pub(crate) fn matches_taint(one: &Value, other: &Value) -> bool {
    one["key"] == other["key"] && one["effect"] == other["effect"]
}

pub(crate) fn has_taint(node: &Value, key: &str, effect: &str) -> bool {
    let is_it = |taint: &Value| taint["key"].str() == key && taint["effect"].str() == effect;
    node["spec"]["taints"].list().iter().any(is_it)
}

/// The taints with some added or replaced and some removed; none if nothing changes.
pub(crate) fn updated_taints(
    taints: &[Value],
    add: &[Value],
    remove: &[Value],
) -> Option<Vec<Value>> {
    let replace = |taint: &Value| {
        add.iter()
            .find(|added| matches_taint(added, taint))
            .unwrap_or(taint)
            .clone()
    };
    let mut after: Vec<Value> = taints.iter().map(replace).collect();
    after.extend(
        add.iter()
            .filter(|added| !taints.iter().any(|taint| matches_taint(taint, added)))
            .cloned(),
    );
    after.retain(|taint| !remove.iter().any(|removed| matches_taint(removed, taint)));
    (after != taints).then_some(after)
}

pub(crate) fn no_execute_taints(node: &Value) -> Vec<Value> {
    node["spec"]["taints"]
        .list()
        .iter()
        .filter(|taint| taint["effect"].str() == "NoExecute")
        .cloned()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_keeps_the_order_and_adds_at_the_end() {
        let before = [
            value!({"key": "a", "effect": "NoSchedule"}),
            value!({"key": "b", "effect": "NoExecute"}),
        ];
        let added = new_taint("c", "NoSchedule", "now");
        let after = updated_taints(&before, std::slice::from_ref(&added), &before[..1]).unwrap();
        assert_eq!(after, [before[1].clone(), added]);
        assert_eq!(
            updated_taints(&before, &[], &[value!({"key": "a", "effect": "NoExecute"})]),
            None
        );
    }
}
