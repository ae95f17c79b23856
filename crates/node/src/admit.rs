//! Pod admission on the node: the checks that a kubelet makes itself.

use mizzen_component_helpers::amounts::{Amounts, add, quantity};
use mizzen_component_helpers::host_ports::HostPort;
use mizzen_component_helpers::node_affinity::RequiredNodeAffinity;
use mizzen_component_helpers::pod_resources::{PodResourcesOptions, pod_requests};
use mizzen_component_helpers::tolerations::{Taint, Toleration, any_tolerates};
use mizzen_value::quantity::Quantity;
use mizzen_value::{Str, Value};

/// The resources and host ports in use on a node.
#[derive(Debug, Default)]
pub(crate) struct NodeAllocation {
    amounts: Amounts,
    ports: Vec<HostPort>,
    n_pods: i64,
}

/// While a pod is resized, the larger of its desired and its actual resources counts.
const IN_USE: PodResourcesOptions<Amounts> = PodResourcesOptions {
    use_status_resources: true,
    use_pod_status_resources: true,
    exclude_overhead: false,
    missing_requests: &[],
};

/// The resources and host ports of one pod.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct PodAllocation {
    amounts: Amounts,
    ports: Box<[HostPort]>,
}

/// Why a pod is not admitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AdmissionRejection {
    pub reason: Str,
    pub message: String,
}

impl PodAllocation {
    pub(crate) fn from_pod(pod: &Value) -> PodAllocation {
        PodAllocation {
            amounts: pod_requests(pod, &IN_USE),
            ports: HostPort::list(&pod["spec"]),
        }
    }
}

impl NodeAllocation {
    pub(crate) fn add(&mut self, share: &PodAllocation) {
        self.n_pods += 1;
        self.ports.extend(share.ports.iter().cloned());
        add(&mut self.amounts, &share.amounts);
    }

    pub(crate) fn remove(&mut self, share: &PodAllocation) {
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

/// Admits a pod that takes `share` to a node on which `used` is in use.
pub(crate) fn admit(
    pod: &Value,
    node: &Value,
    used: &NodeAllocation,
    share: &PodAllocation,
) -> Result<(), AdmissionRejection> {
    let (spec, metadata) = (&pod["spec"], &node["metadata"]);
    if !matches!(spec["os"]["name"].str(), "" | "linux") {
        return reject_pod(
            "PodOSNotSupported",
            "Failed to admit pod as the OS field doesn't match node OS",
        );
    }
    check_resources(node, used, share)?;
    let label = |key: &str| metadata["labels"][key].as_str();
    if !RequiredNodeAffinity::new(spec).matches(metadata["name"].str(), label) {
        let why = "node(s) didn't match Pod's node affinity/selector";
        return reject_predicate("NodeAffinity", why);
    }
    let is_taken = |port: &HostPort| used.ports.iter().any(|known| known.conflicts(port));
    if share.ports.iter().any(is_taken) {
        let why = "node(s) didn't have free ports for the requested pod ports";
        return reject_predicate("NodePorts", why);
    }
    // Kubernetes: only taints that would evict the pod count here.
    let tolerations = Toleration::list(&spec["tolerations"]);
    let evicts = |taint: &Taint| taint.effect == "NoExecute" && !any_tolerates(&tolerations, taint);
    if Taint::list(&node["spec"]["taints"]).iter().any(evicts) {
        let why = "node(s) had taints that the pod didn't tolerate";
        return reject_predicate("TaintToleration", why);
    }
    Ok(())
}

fn reject_pod(reason: &str, message: impl Into<String>) -> Result<(), AdmissionRejection> {
    Err(AdmissionRejection {
        reason: reason.into(),
        message: message.into(),
    })
}

/// Whether a node on which `used` is in use has room for `share`.
pub(crate) fn check_resources(
    node: &Value,
    used: &NodeAllocation,
    share: &PodAllocation,
) -> Result<(), AdmissionRejection> {
    let allocatable = &node["status"]["allocatable"];
    let n_allowed = number("pods", &quantity(&allocatable["pods"]));
    if used.n_pods + 1 > n_allowed {
        return reject_out_of("pods", 1, used.n_pods, n_allowed);
    }
    let first = ["cpu", "memory", "ephemeral-storage"];
    let others = share
        .amounts
        .keys()
        .map(|name| name.as_str())
        .filter(|name| !first.contains(name));
    for name in first.into_iter().chain(others) {
        let requested = share
            .amounts
            .get(name)
            .map(|amount| number(name, amount))
            .unwrap_or_default();
        // Kubernetes: a resource that the node does not have is not checked.
        let is_known = first.contains(&name) || !allocatable[name].is_null();
        let taken = used
            .amounts
            .get(name)
            .map(|amount| number(name, amount))
            .unwrap_or_default();
        let has = number(name, &quantity(&allocatable[name]));
        if requested > 0 && is_known && requested > has - taken {
            return reject_out_of(name, requested, taken, has);
        }
    }
    Ok(())
}

fn reject_out_of(
    name: &str,
    requested: i64,
    taken: i64,
    has: i64,
) -> Result<(), AdmissionRejection> {
    let message = format!(
        "Node didn't have enough resource: {name}, requested: {requested}, used: {taken}, capacity: {has}"
    );
    reject_pod(&format!("OutOf{name}"), message)
}

/// CPU in millicores, any other resource in whole units.
fn number(name: &str, amount: &Quantity) -> i64 {
    if name == "cpu" {
        amount.milli_value()
    } else {
        amount.value()
    }
}

fn reject_predicate(name: &str, why: &str) -> Result<(), AdmissionRejection> {
    reject_pod(name, format!("Predicate {name} failed: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_value::json;

    const NODE: &str = r#"{"metadata":{"name":"n","labels":{"zone":"a","rank":"5"}},"spec":{"taints":[{"key":"x","effect":"NoSchedule"}]},
        "status":{"allocatable":{"cpu":"2","memory":"1Gi","pods":"2","acme.com/gpu":"1"}}}"#;

    /// Checks admission to a node on which one pod uses half a CPU.
    #[track_caller]
    fn check(spec: &str, expected: &str) {
        let parse = |text: &str| json::parse(text.as_bytes()).unwrap();
        let mut used = NodeAllocation::default();
        used.add(&PodAllocation::from_pod(&parse(
            r#"{"spec":{"containers":[{"resources":{"requests":{"cpu":"500m"}}}]}}"#,
        )));
        let pod = parse(&format!("{{\"spec\":{spec}}}"));
        let said = match admit(&pod, &parse(NODE), &used, &PodAllocation::from_pod(&pod)) {
            Ok(()) => String::new(),
            Err(AdmissionRejection { reason, message }) => format!("{reason}: {message}"),
        };
        assert_eq!(said, expected, "{spec}");
    }

    fn asks(name: &str, amount: &str) -> String {
        format!(r#"{{"containers":[{{"resources":{{"requests":{{"{name}":"{amount}"}}}}}}]}}"#)
    }

    #[test]
    fn a_pod_that_fits_is_admitted() {
        check(&asks("cpu", "1500m"), "");
        check(&asks("acme.com/gpu", "1"), "");
        check(&asks("acme.com/unheard", "7"), "");
    }

    #[test]
    fn a_pod_that_requests_too_much_is_rejected() {
        let said = |name: &str, requested: &str, used: &str, has: &str| {
            format!(
                "OutOf{name}: Node didn't have enough resource: {name}, requested: {requested}, used: {used}, capacity: {has}"
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
    fn too_many_pods_are_rejected() {
        let mut used = NodeAllocation::default();
        let (node, pod) = (json::parse(NODE.as_bytes()).unwrap(), Value::Null);
        for expected in [None, None, Some("OutOfpods")] {
            let refused = admit(&pod, &node, &used, &PodAllocation::default())
                .err()
                .map(|refusal| refusal.reason);
            assert_eq!(refused.as_deref(), expected);
            used.add(&PodAllocation::default());
        }
    }

    #[test]
    fn a_host_port_is_used_once() {
        let parse = |text: &str| json::parse(text.as_bytes()).unwrap();
        let pod = |port: i64| {
            parse(&format!(
                r#"{{"spec":{{"containers":[{{"ports":[{{"hostPort":{port}}}]}}]}}}}"#
            ))
        };
        let (node, mut used) = (parse(NODE), NodeAllocation::default());
        used.add(&PodAllocation::from_pod(&pod(80)));
        let refused = |used: &NodeAllocation, pod: &Value| {
            admit(pod, &node, used, &PodAllocation::from_pod(pod)).err()
        };
        let refusal = refused(&used, &pod(80)).unwrap();
        assert_eq!(refusal.reason, "NodePorts");
        let why = "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports";
        assert_eq!(refusal.message, why);
        assert_eq!(refused(&used, &pod(81)), None);
        used.remove(&PodAllocation::from_pod(&pod(80)));
        assert_eq!(refused(&used, &pod(80)), None);
    }

    #[test]
    fn node_affinity_must_match() {
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
    fn another_os_is_rejected() {
        check(r#"{"os":{"name":"linux"}}"#, "");
        check(
            r#"{"os":{"name":"windows"}}"#,
            "PodOSNotSupported: Failed to admit pod as the OS field doesn't match node OS",
        );
    }

    #[test]
    fn a_no_execute_taint_must_be_tolerated() {
        let mut node = json::parse(NODE.as_bytes()).unwrap();
        node.entry("spec").set(
            "taints",
            vec![mizzen_value::value!({ "key": "x", "value": "y", "effect": "NoExecute" })],
        );
        let fits = |tolerations: &str| {
            let pod =
                json::parse(format!(r#"{{"spec":{{"tolerations":{tolerations}}}}}"#).as_bytes())
                    .unwrap();
            admit(
                &pod,
                &node,
                &NodeAllocation::default(),
                &PodAllocation::default(),
            )
            .is_ok()
        };
        assert!(!fits("[]") && !fits(r#"[{"key":"x","effect":"NoSchedule","operator":"Exists"}]"#));
        assert!(
            fits(r#"[{"operator":"Exists"}]"#)
                && fits(r#"[{"key":"x","value":"y","effect":"NoExecute"}]"#)
        );
        assert!(!fits(r#"[{"key":"x","value":"z"}]"#));
    }
}
