//! Decides on which nodes a DaemonSet's pods should run.

use mizzen_component_helpers::node_affinity::RequiredNodeAffinity;
use mizzen_component_helpers::tolerations::{Taint, Toleration, add_or_update, any_tolerates};
use mizzen_sdk::Object;
use mizzen_value::{Value, value};

/// The node requirements of a set.
pub(super) struct Placement<'a> {
    node_name: &'a str,
    affinity: RequiredNodeAffinity,
    tolerations: Box<[Toleration]>,
}

/// Whether a set's pods run on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NodeEligibility {
    /// Whether a pod should run there.
    pub should_run: bool,
    /// Whether an existing pod continues to run there.
    pub should_continue_running: bool,
}

impl<'a> Placement<'a> {
    /// The node requirements of `set`.
    pub(super) fn from_set(set: &'a Object) -> Placement<'a> {
        let spec = set.at("spec.template.spec");
        Placement {
            node_name: spec["nodeName"].str(),
            affinity: RequiredNodeAffinity::new(spec),
            tolerations: tolerations(spec).iter().map(Toleration::new).collect(),
        }
    }

    /// Checks a node. A NoSchedule taint keeps new pods away; existing pods continue to run.
    pub(super) fn check_node(&self, node: &Object) -> NodeEligibility {
        let is_asked_for = (self.node_name.is_empty() || self.node_name == node.name())
            && self.affinity.matches(node.name(), |key| node.label(key));
        let taints = Taint::list(&node["spec"]["taints"]);
        let tolerates = |effect: &str| {
            let mut taints = taints.iter().filter(|taint| taint.effect == effect);
            taints.all(|taint| any_tolerates(&self.tolerations, taint))
        };
        let may_stay = is_asked_for && tolerates("NoExecute");
        NodeEligibility {
            should_run: may_stay && tolerates("NoSchedule"),
            should_continue_running: may_stay,
        }
    }
}

/// Tolerations that every daemon pod has in addition to its template.
const DAEMON_TOLERATIONS: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];

/// A toleration of daemon pods on the host network, which may be the ones that set up the network.
const HOST_NETWORK_TOLERATION: (&str, &str) =
    ("node.kubernetes.io/network-unavailable", "NoSchedule");

/// The tolerations of the set's pods: those of the template in their order, then the daemon
/// tolerations.
pub(super) fn tolerations(spec: &Value) -> Vec<Value> {
    let mut tolerations = spec["tolerations"].list().to_vec();
    let network = spec["hostNetwork"]
        .bool()
        .then_some(HOST_NETWORK_TOLERATION);
    for (key, effect) in DAEMON_TOLERATIONS.into_iter().chain(network) {
        let added = value!({"key": key, "operator": "Exists", "effect": effect});
        add_or_update(&mut tolerations, &added);
    }
    tolerations
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(spec: Value) -> Object {
        Object(value!({"spec": {"template": {"spec": spec}}}))
    }

    fn node(taints: &str) -> Object {
        let taint = |text: &str| {
            let (key, effect) = text.split_once(':').expect("a key and an effect");
            value!({"key": key, "effect": effect})
        };
        let taints: Vec<Value> = taints.split_whitespace().map(taint).collect();
        Object(
            value!({"metadata": {"name": "n1", "labels": {"zone": "a"}}, "spec": {"taints": taints}}),
        )
    }

    #[track_caller]
    fn check(spec: Value, taints: &str, should_run: bool, should_continue_running: bool) {
        assert_eq!(
            Placement::from_set(&set(spec)).check_node(&node(taints)),
            NodeEligibility {
                should_run,
                should_continue_running
            }
        );
    }

    fn plain() -> Value {
        Value::object()
    }

    #[test]
    fn daemon_pods_run_everywhere_without_requirements() {
        check(plain(), "", true, true);
        check(value!({"nodeSelector": {"zone": "b"}}), "", false, false);
        check(value!({"nodeName": "n2"}), "", false, false);
        check(value!({"nodeName": "n1"}), "", true, true);
    }

    #[test]
    fn a_no_schedule_taint_keeps_new_daemon_pods_away_only() {
        check(plain(), "k:NoSchedule", false, true);
        check(plain(), "k:NoExecute", false, false);
        check(plain(), "k:PreferNoSchedule", true, true);
    }

    #[test]
    fn tolerated_taints_do_not_count() {
        check(
            value!({"tolerations": [{"operator": "Exists"}]}),
            "k:NoSchedule l:NoExecute",
            true,
            true,
        );
    }

    #[test]
    fn condition_taints_do_not_count() {
        check(
            plain(),
            "node.kubernetes.io/unschedulable:NoSchedule",
            true,
            true,
        );
        check(
            plain(),
            "node.kubernetes.io/not-ready:NoExecute",
            true,
            true,
        );
        check(
            plain(),
            "node.kubernetes.io/disk-pressure:NoSchedule",
            true,
            true,
        );
    }

    #[test]
    fn a_node_with_the_not_ready_no_schedule_taint_gets_no_daemon_pod() {
        check(
            plain(),
            "node.kubernetes.io/not-ready:NoSchedule",
            false,
            true,
        );
    }

    #[test]
    fn a_node_without_network_gets_host_network_daemon_pods_only() {
        check(
            plain(),
            "node.kubernetes.io/network-unavailable:NoSchedule",
            false,
            true,
        );
        check(
            value!({"hostNetwork": true}),
            "node.kubernetes.io/network-unavailable:NoSchedule",
            true,
            true,
        );
    }

    #[test]
    fn daemon_tolerations_follow_the_templates_in_a_fixed_order() {
        let keys = |spec: Value| {
            let keys: Vec<String> = tolerations(&spec)
                .iter()
                .map(|it| it["key"].str().replace("node.kubernetes.io/", ""))
                .collect();
            keys.join(" ")
        };
        let all = "not-ready unreachable disk-pressure memory-pressure pid-pressure unschedulable";
        assert_eq!(
            keys(value!({"tolerations": [{"key": "own", "operator": "Exists"}]})),
            format!("own {all}")
        );
        assert_eq!(
            keys(value!({"hostNetwork": true})),
            format!("{all} network-unavailable")
        );
    }

    #[test]
    fn a_toleration_for_some_seconds_becomes_one_for_ever_in_its_place() {
        let soon = value!({
            "key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5i64,
        });
        let first = tolerations(&value!({"tolerations": [soon]})).swap_remove(0);
        assert_eq!(first["key"].str(), "node.kubernetes.io/unreachable");
        assert!(first["tolerationSeconds"].is_null());
    }
}
