//! Does a pod fit on its node? What the kubelet checks itself, whoever sent the pod.

use mizzen_kinds::amounts::{Amounts, add, quantity};
use mizzen_kinds::host_ports::HostPort;
use mizzen_kinds::node_affinity::RequiredNodeAffinity;
use mizzen_kinds::pod_resources::{PodResourcesOptions, pod_requests};
use mizzen_kinds::tolerations::{Taint, Toleration, any_tolerates};
use mizzen_value::quantity::Quantity;
use mizzen_value::{Str, Value};

/// What the pods of a node have taken of it.
#[derive(Debug, Default)]
pub(crate) struct Used {
    amounts: Amounts,
    ports: Vec<HostPort>,
    n_pods: i64,
}

/// What a pod counts with: while it is resized, the larger of what it shall have and what it has.
const IN_USE: PodResourcesOptions<Amounts> = PodResourcesOptions {
    use_status_resources: true,
    use_pod_status_resources: true,
    exclude_overhead: false,
    missing_requests: &[],
};

/// What one pod takes.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Share {
    amounts: Amounts,
    ports: Box<[HostPort]>,
}

/// Why a pod is not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// In one word.
    pub reason: Str,
    /// For people.
    pub message: String,
}

impl Share {
    /// What a pod takes.
    pub(crate) fn of(pod: &Value) -> Share {
        Share {
            amounts: pod_requests(pod, &IN_USE),
            ports: HostPort::list(&pod["spec"]),
        }
    }
}

impl Used {
    /// A pod comes.
    pub(crate) fn add(&mut self, share: &Share) {
        self.n_pods += 1;
        self.ports.extend(share.ports.iter().cloned());
        add(&mut self.amounts, &share.amounts);
    }

    /// A pod goes.
    pub(crate) fn remove(&mut self, share: &Share) {
        self.n_pods -= 1;
        for port in &share.ports {
            if let Some(at) = self.ports.iter().position(|known| known == port) {
                self.ports.swap_remove(at);
            }
        }
        for (name, amount) in &share.amounts {
            if let Some(known) = self.amounts.get_mut(name) {
                *known = known.sub(amount);
            }
        }
    }
}

/// Whether a pod that takes `share` fits on a node of which `used` is taken.
pub(crate) fn admit(pod: &Value, node: &Value, used: &Used, share: &Share) -> Result<(), Refusal> {
    check_system(pod)?;
    check_resources(node, used, share)?;
    check_affinity(pod, node)?;
    check_ports(used, share)?;
    check_taints(pod, node)
}

fn check_ports(used: &Used, share: &Share) -> Result<(), Refusal> {
    let is_taken = |port: &HostPort| used.ports.iter().any(|known| known.conflicts(port));
    match share.ports.iter().any(is_taken) {
        true => predicate(
            "NodePorts",
            "node(s) didn't have free ports for the requested pod ports",
        ),
        false => Ok(()),
    }
}

fn refuse(reason: &str, message: impl Into<String>) -> Result<(), Refusal> {
    Err(Refusal {
        reason: reason.into(),
        message: message.into(),
    })
}

fn check_system(pod: &Value) -> Result<(), Refusal> {
    match pod["spec"]["os"]["name"].str() {
        "" | "linux" => Ok(()),
        _ => refuse(
            "PodOSNotSupported",
            "Failed to admit pod as the OS field doesn't match node OS",
        ),
    }
}

fn check_resources(node: &Value, used: &Used, share: &Share) -> Result<(), Refusal> {
    let allocatable = &node["status"]["allocatable"];
    let n_allowed = number("pods", &quantity(&allocatable["pods"]));
    if used.n_pods + 1 > n_allowed {
        return out_of("pods", 1, used.n_pods, n_allowed);
    }
    let first = ["cpu", "memory", "ephemeral-storage"];
    let others = share
        .amounts
        .keys()
        .map(|name| name.as_str())
        .filter(|name| !first.contains(name));
    for name in first.into_iter().chain(others) {
        let asked = share
            .amounts
            .get(name)
            .map(|amount| number(name, amount))
            .unwrap_or_default();
        // Kubernetes: what the node has never heard of is somebody else's business.
        let is_known = first.contains(&name) || !allocatable[name].is_null();
        let taken = used
            .amounts
            .get(name)
            .map(|amount| number(name, amount))
            .unwrap_or_default();
        let has = number(name, &quantity(&allocatable[name]));
        if asked > 0 && is_known && asked > has - taken {
            return out_of(name, asked, taken, has);
        }
    }
    Ok(())
}

fn out_of(name: &str, asked: i64, taken: i64, has: i64) -> Result<(), Refusal> {
    let message = format!(
        "Node didn't have enough resource: {name}, requested: {asked}, used: {taken}, capacity: {has}"
    );
    refuse(&format!("OutOf{name}"), message)
}

/// Processors are counted in thousandths.
fn number(name: &str, amount: &Quantity) -> i64 {
    if name == "cpu" {
        amount.milli_value()
    } else {
        amount.value()
    }
}

fn check_affinity(pod: &Value, node: &Value) -> Result<(), Refusal> {
    let metadata = &node["metadata"];
    let label = |key: &str| metadata["labels"][key].as_str();
    if RequiredNodeAffinity::new(&pod["spec"]).matches(metadata["name"].str(), label) {
        return Ok(());
    }
    predicate(
        "NodeAffinity",
        "node(s) didn't match Pod's node affinity/selector",
    )
}

fn predicate(name: &str, why: &str) -> Result<(), Refusal> {
    refuse(name, format!("Predicate {name} failed: {why}"))
}

/// Kubernetes: only taints that would drive the pod away again count here.
fn check_taints(pod: &Value, node: &Value) -> Result<(), Refusal> {
    let tolerations = Toleration::list(&pod["spec"]["tolerations"]);
    let taints = Taint::list(&node["spec"]["taints"]);
    let bad = taints
        .iter()
        .any(|taint| taint.effect == "NoExecute" && !any_tolerates(&tolerations, taint));
    match bad {
        true => predicate(
            "TaintToleration",
            "node(s) had taints that the pod didn't tolerate",
        ),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_value::json;

    const NODE: &str = r#"{"metadata":{"name":"n","labels":{"zone":"a","rank":"5"}},"spec":{"taints":[{"key":"x","effect":"NoSchedule"}]},
        "status":{"allocatable":{"cpu":"2","memory":"1Gi","pods":"2","acme.com/gpu":"1"}}}"#;

    /// Why a pod does not fit on a node where one pod uses half a processor.
    #[track_caller]
    fn check(spec: &str, expected: &str) {
        let parse = |text: &str| json::parse(text.as_bytes()).unwrap();
        let mut used = Used::default();
        used.add(&Share::of(&parse(
            r#"{"spec":{"containers":[{"resources":{"requests":{"cpu":"500m"}}}]}}"#,
        )));
        let pod = parse(&format!("{{\"spec\":{spec}}}"));
        let said = match admit(&pod, &parse(NODE), &used, &Share::of(&pod)) {
            Ok(()) => String::new(),
            Err(Refusal { reason, message }) => format!("{reason}: {message}"),
        };
        assert_eq!(said, expected, "{spec}");
    }

    fn asks(name: &str, amount: &str) -> String {
        format!(r#"{{"containers":[{{"resources":{{"requests":{{"{name}":"{amount}"}}}}}}]}}"#)
    }

    #[test]
    fn what_fits_is_taken() {
        check(&asks("cpu", "1500m"), "");
        check(&asks("acme.com/gpu", "1"), "");
        check(&asks("acme.com/unheard", "7"), "");
    }

    #[test]
    fn what_is_too_much_is_refused() {
        let said = |name: &str, asked: &str, used: &str, has: &str| {
            format!(
                "OutOf{name}: Node didn't have enough resource: {name}, requested: {asked}, used: {used}, capacity: {has}"
            )
        };
        check(&asks("cpu", "1501m"), &said("cpu", "1501", "500", "2000"));
        check(
            &asks("memory", "2Gi"),
            &said("memory", "2147483648", "0", "1073741824"),
        );
        check(
            &asks("acme.com/gpu", "2"),
            &said("acme.com/gpu", "2", "0", "1"),
        );
        check(
            &asks("ephemeral-storage", "1"),
            &said("ephemeral-storage", "1", "0", "0"),
        );
    }

    #[test]
    fn too_many_pods_are_refused() {
        let mut used = Used::default();
        let (node, pod) = (json::parse(NODE.as_bytes()).unwrap(), Value::Null);
        for expected in [None, None, Some("OutOfpods")] {
            let refused = admit(&pod, &node, &used, &Share::default())
                .err()
                .map(|refusal| refusal.reason);
            assert_eq!(refused.as_deref(), expected);
            used.add(&Share::default());
        }
    }

    #[test]
    fn a_port_of_the_node_is_had_once() {
        let parse = |text: &str| json::parse(text.as_bytes()).unwrap();
        let pod = |port: i64| {
            parse(&format!(
                r#"{{"spec":{{"containers":[{{"ports":[{{"hostPort":{port}}}]}}]}}}}"#
            ))
        };
        let (node, mut used) = (parse(NODE), Used::default());
        used.add(&Share::of(&pod(80)));
        let refused = |used: &Used, pod: &Value| admit(pod, &node, used, &Share::of(pod)).err();
        let refusal = refused(&used, &pod(80)).unwrap();
        assert_eq!(refusal.reason, "NodePorts");
        let why = "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports";
        assert_eq!(refusal.message, why);
        assert_eq!(refused(&used, &pod(81)), None);
        used.remove(&Share::of(&pod(80)));
        assert_eq!(refused(&used, &pod(80)), None);
    }

    #[test]
    fn a_node_must_be_the_right_one() {
        let wrong = "NodeAffinity: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector";
        check(r#"{"nodeSelector":{"zone":"a"}}"#, "");
        check(r#"{"nodeSelector":{"zone":"b"}}"#, wrong);
        let affinity = |term: &str| {
            format!(
                r#"{{"affinity":{{"nodeAffinity":{{"requiredDuringSchedulingIgnoredDuringExecution":{{"nodeSelectorTerms":[{term}]}}}}}}}}"#
            )
        };
        check(
            &affinity(
                r#"{"matchExpressions":[{"key":"zone","operator":"In","values":["a","b"]}]}"#,
            ),
            "",
        );
        check(
            &affinity(r#"{"matchExpressions":[{"key":"rank","operator":"Gt","values":["5"]}]}"#),
            wrong,
        );
        check(
            &affinity(r#"{"matchExpressions":[{"key":"rank","operator":"Lt","values":["6"]}]}"#),
            "",
        );
        check(
            &affinity(r#"{"matchExpressions":[{"key":"zone","operator":"DoesNotExist"}]}"#),
            wrong,
        );
        check(
            &affinity(
                r#"{"matchFields":[{"key":"metadata.name","operator":"In","values":["n"]}]}"#,
            ),
            "",
        );
        check(&affinity("{}"), wrong);
    }

    #[test]
    fn another_system_is_refused() {
        check(r#"{"os":{"name":"linux"}}"#, "");
        check(
            r#"{"os":{"name":"windows"}}"#,
            "PodOSNotSupported: Failed to admit pod as the OS field doesn't match node OS",
        );
    }

    #[test]
    fn a_taint_that_drives_pods_away_must_be_tolerated() {
        let mut node = json::parse(NODE.as_bytes()).unwrap();
        node.entry("spec").set(
            "taints",
            vec![mizzen_value::value!({ "key": "x", "value": "y", "effect": "NoExecute" })],
        );
        let fits = |tolerations: &str| {
            let pod =
                json::parse(format!(r#"{{"spec":{{"tolerations":{tolerations}}}}}"#).as_bytes())
                    .unwrap();
            admit(&pod, &node, &Used::default(), &Share::default()).is_ok()
        };
        assert!(!fits("[]") && !fits(r#"[{"key":"x","effect":"NoSchedule","operator":"Exists"}]"#));
        assert!(
            fits(r#"[{"operator":"Exists"}]"#)
                && fits(r#"[{"key":"x","value":"y","effect":"NoExecute"}]"#)
        );
        assert!(!fits(r#"[{"key":"x","value":"z"}]"#));
    }
}
