//! On which nodes are the set's pods to run?

use mizzen_kinds::node_affinity::RequiredNodeAffinity;
use mizzen_kinds::tolerations::{Taint, Toleration, add_or_update, any_tolerates};
use mizzen_sdk::Object;
use mizzen_value::{Value, value};

/// What a set asks of nodes.
pub(super) struct Placement<'a> {
    node_name: &'a str,
    affinity: RequiredNodeAffinity,
    tolerations: Box<[Toleration]>,
}

/// What a set thinks of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Verdict {
    /// Whether a pod is to be there.
    pub should_run: bool,
    /// Whether a pod that is there may stay.
    pub may_stay: bool,
}

impl<'a> Placement<'a> {
    /// What this set asks of nodes.
    pub(super) fn of(set: &'a Object) -> Placement<'a> {
        let spec = set.at("spec.template.spec");
        Placement {
            node_name: spec["nodeName"].str(),
            affinity: RequiredNodeAffinity::new(spec),
            tolerations: tolerations(spec).iter().map(Toleration::new).collect(),
        }
    }

    /// Whether the set's pods are to run on a node. A taint that keeps new pods away lets those stay that are there.
    pub(super) fn judge(&self, node: &Object) -> Verdict {
        let is_asked_for = (self.node_name.is_empty() || self.node_name == node.name())
            && self.affinity.matches(node.name(), |key| node.label(key));
        let taints = Taint::list(&node["spec"]["taints"]);
        let tolerates = |effect: &str| {
            let mut taints = taints.iter().filter(|taint| taint.effect == effect);
            taints.all(|taint| any_tolerates(&self.tolerations, taint))
        };
        let may_stay = is_asked_for && tolerates("NoExecute");
        Verdict {
            should_run: may_stay && tolerates("NoSchedule"),
            may_stay,
        }
    }
}

/// What every daemon tolerates, besides what its template says: troubles of a node are no reason to leave it.
const TOLERATED: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];

/// What daemons on the host's network tolerate: they may be what brings the network up.
const NETWORK: (&str, &str) = ("node.kubernetes.io/network-unavailable", "NoSchedule");

/// The tolerations of the set's pods: those of the spec, in their order, and those that every daemon has.
pub(super) fn tolerations(spec: &Value) -> Vec<Value> {
    let mut tolerations = spec["tolerations"].list().to_vec();
    let network = spec["hostNetwork"].bool().then_some(NETWORK);
    for (key, effect) in TOLERATED.into_iter().chain(network) {
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
    fn check(spec: Value, taints: &str, should_run: bool, may_stay: bool) {
        assert_eq!(
            Placement::of(&set(spec)).judge(&node(taints)),
            Verdict {
                should_run,
                may_stay
            }
        );
    }

    fn plain() -> Value {
        Value::object()
    }

    #[test]
    fn daemons_run_everywhere_unless_they_ask_for_something() {
        check(plain(), "", true, true);
        check(value!({"nodeSelector": {"zone": "b"}}), "", false, false);
        check(value!({"nodeName": "n2"}), "", false, false);
        check(value!({"nodeName": "n1"}), "", true, true);
    }

    #[test]
    fn a_taint_keeps_new_daemons_away_but_those_there_may_stay() {
        check(plain(), "k:NoSchedule", false, true);
        check(plain(), "k:NoExecute", false, false);
        check(plain(), "k:PreferNoSchedule", true, true);
    }

    #[test]
    fn what_the_template_tolerates_does_not_count() {
        check(
            value!({"tolerations": [{"operator": "Exists"}]}),
            "k:NoSchedule l:NoExecute",
            true,
            true,
        );
    }

    #[test]
    fn troubles_of_a_node_do_not_count() {
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
    fn a_node_that_is_not_ready_yet_gets_no_daemon() {
        check(
            plain(),
            "node.kubernetes.io/not-ready:NoSchedule",
            false,
            true,
        );
    }

    #[test]
    fn a_node_without_network_gets_daemons_of_the_hosts_network_only() {
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
    fn daemons_tolerate_in_a_fixed_order_after_their_own() {
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
