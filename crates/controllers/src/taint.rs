//! Which taints has a node?
//!
//! Invariant: a taint is its key and its effect; its value and time only describe it.

use mizzen_value::{Value, value};

/// Ready is false.
pub(crate) const NOT_READY: &str = "node.kubernetes.io/not-ready";
/// Ready is unknown.
pub(crate) const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
/// Somebody cordoned it.
pub(crate) const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// A taint that begins now.
pub(crate) fn new(key: &str, effect: &str, now: &str) -> Value {
    value!({"key": key, "effect": effect, "timeAdded": now})
}

/// Whether two taints are the same.
pub(crate) fn same(one: &Value, other: &Value) -> bool {
    one["key"] == other["key"] && one["effect"] == other["effect"]
}

/// Whether a node has a taint.
pub(crate) fn has(node: &Value, key: &str, effect: &str) -> bool {
    let is_it = |taint: &Value| taint["key"].str() == key && taint["effect"].str() == effect;
    node["spec"]["taints"].list().iter().any(is_it)
}

/// A node's taints after some are added or refreshed and some removed; none if they stay as they are.
pub(crate) fn change(taints: &[Value], add: &[Value], remove: &[Value]) -> Option<Vec<Value>> {
    let replace = |taint: &Value| {
        add.iter()
            .find(|added| same(added, taint))
            .unwrap_or(taint)
            .clone()
    };
    let mut after: Vec<Value> = taints.iter().map(replace).collect();
    after.extend(
        add.iter()
            .filter(|added| !taints.iter().any(|taint| same(taint, added)))
            .cloned(),
    );
    after.retain(|taint| !remove.iter().any(|removed| same(removed, taint)));
    (after != taints).then_some(after)
}

/// Those of a node's taints that drive pods away.
pub(crate) fn no_execute(node: &Value) -> Vec<Value> {
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
        let added = new("c", "NoSchedule", "now");
        let after = change(&before, std::slice::from_ref(&added), &before[..1]).unwrap();
        assert_eq!(after, [before[1].clone(), added]);
        assert_eq!(
            change(&before, &[], &[value!({"key": "a", "effect": "NoExecute"})]),
            None
        );
    }
}
