//! Taints that follow from node conditions, and beta labels that follow from stable ones.

use mizzen_value::{Map, Value};

use crate::taint;

/// Condition, status and the taint that follows.
const CONDITION_TAINTS: [(&str, &str, &str); 6] = [
    ("Ready", "False", taint::NOT_READY),
    ("Ready", "Unknown", taint::UNREACHABLE),
    (
        "MemoryPressure",
        "True",
        "node.kubernetes.io/memory-pressure",
    ),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    (
        "NetworkUnavailable",
        "True",
        "node.kubernetes.io/network-unavailable",
    ),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
];

/// Stable labels and their beta names.
const RECONCILED_LABELS: [(&str, &str); 2] = [
    ("kubernetes.io/os", "beta.kubernetes.io/os"),
    ("kubernetes.io/arch", "beta.kubernetes.io/arch"),
];

/// The node's taints with the condition taints corrected; none if they are right.
pub(super) fn taints(node: &Value, now: &str) -> Option<Vec<Value>> {
    let condition_taint = |condition: &Value| {
        let is_it = |(kind, status, _): &&(&str, &str, &str)| {
            condition["type"].str() == *kind && condition["status"].str() == *status
        };
        CONDITION_TAINTS.iter().find(is_it).map(|(_, _, key)| *key)
    };
    let is_cordoned = node["spec"]["unschedulable"].bool();
    let conditions = node["status"]["conditions"].list().iter();
    let wanted: Vec<&str> = conditions
        .filter_map(condition_taint)
        .chain(is_cordoned.then_some(taint::UNSCHEDULABLE))
        .collect();
    let has = |key: &str| taint::has_taint(node, key, "NoSchedule");
    let missing = wanted.iter().filter(|key| !has(key));
    let add: Vec<Value> = missing
        .map(|key| taint::new_taint(key, "NoSchedule", now))
        .collect();
    let ours = CONDITION_TAINTS
        .iter()
        .map(|(_, _, key)| *key)
        .chain([taint::UNSCHEDULABLE]);
    let surplus = ours.filter(|key| !wanted.contains(key));
    let remove: Vec<Value> = surplus
        .map(|key| taint::new_taint(key, "NoSchedule", now))
        .collect();
    taint::updated_taints(node["spec"]["taints"].list(), &add, &remove)
}

/// The beta labels that are missing or differ.
pub(super) fn labels(node: &Value) -> Option<Map> {
    let mut missing = Map::default();
    let labels = &node["metadata"]["labels"];
    for (stable, old) in RECONCILED_LABELS {
        if let Some(value) = labels
            .get(stable)
            .filter(|value| labels.get(old) != Some(value))
        {
            missing.insert(old, value.clone());
        }
    }
    (!missing.is_empty()).then_some(missing)
}

#[cfg(test)]
mod tests {
    use mizzen_value::value;

    use super::*;

    #[track_caller]
    fn check(node: Value, wanted: Option<&[(&str, &str)]>) {
        let taints = taints(&node, "now");
        let taints = taints.as_ref().map(|taints| {
            taints
                .iter()
                .map(|taint| (taint["key"].str(), taint["effect"].str()))
                .collect::<Vec<_>>()
        });
        assert_eq!(taints.as_deref(), wanted);
    }

    #[test]
    fn a_condition_taints_in_its_bad_status_only() {
        let node = |kind: &str, status: &str| value!({"status": {"conditions": [{"type": kind, "status": status}]}});
        check(node("Ready", "True"), None);
        check(
            node("Ready", "False"),
            Some(&[(taint::NOT_READY, "NoSchedule")]),
        );
        check(
            node("Ready", "Unknown"),
            Some(&[(taint::UNREACHABLE, "NoSchedule")]),
        );
        check(
            node("DiskPressure", "True"),
            Some(&[("node.kubernetes.io/disk-pressure", "NoSchedule")]),
        );
        check(node("DiskPressure", "Unknown"), None);
        check(node("Custom", "True"), None);
    }

    #[test]
    fn a_stale_condition_taint_is_removed_and_other_taints_stay() {
        let stale = value!({"key": (taint::NOT_READY), "effect": "NoSchedule"});
        let driving = value!({"key": (taint::NOT_READY), "effect": "NoExecute"});
        let node = value!({"spec": {"taints": [{"key": "mine", "effect": "NoSchedule"}, (stale), (driving)], "unschedulable": true}});
        check(
            node,
            Some(&[
                ("mine", "NoSchedule"),
                (taint::NOT_READY, "NoExecute"),
                (taint::UNSCHEDULABLE, "NoSchedule"),
            ]),
        );
    }

    #[test]
    fn old_labels_follow_the_stable_ones() {
        let node = value!({"metadata": {"labels": {"kubernetes.io/os": "linux", "beta.kubernetes.io/os": "beos", "beta.kubernetes.io/arch": "mips"}}});
        let labels = labels(&node).unwrap();
        assert_eq!(
            labels
                .iter()
                .map(|(key, value)| (key, value.str()))
                .collect::<Vec<_>>(),
            [("beta.kubernetes.io/os", "linux")]
        );
        assert!(super::labels(&value!({"metadata": {}})).is_none());
    }
}
