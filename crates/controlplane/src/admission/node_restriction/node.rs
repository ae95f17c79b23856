//! Node objects: a node may not change labels and taints that attract pods.

use std::collections::BTreeSet;

use mizzen_core_kinds::pod::same;
use mizzen_object::Status;
use mizzen_value::Value;
use mizzen_value::json::quote;

use super::NodeRequest;

/// Well-known labels that nodes may set on themselves (kubelet/pkg/apis/well_known_labels.go).
const OWN: [&str; 11] = [
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];
/// Domains whose labels nodes may set.
const OWN_DOMAINS: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];
/// The domain whose labels nodes may not set.
const RESTRICTED: &str = "node-restriction.kubernetes.io";

/// Checks a write of a node to its own Node.
pub(super) fn check(request: &NodeRequest) -> Result<(), Status> {
    let (node, name) = (quote(request.node()), request.name());
    if name != request.node() {
        return request.reject(format!(
            "node {node} is not allowed to modify node {}",
            quote(name)
        ));
    }
    match (request.new, request.attributes.old) {
        // Kubernetes: the message says pods where it means nodes.
        (Some(new), None) if !new["spec"]["configSource"].is_null() => request.reject(format!(
            "node {node} is not allowed to create pods with a non-nil configSource"
        )),
        (Some(new), None) => match forbidden_labels(new, &Value::Null) {
            labels if labels.is_empty() => Ok(()),
            labels => request.reject(format!(
                "node {node} is not allowed to set the following labels: {labels}"
            )),
        },
        (Some(new), Some(old)) => check_update(request, new, old, &node),
        (None, _) => Ok(()),
    }
}

fn check_update(request: &NodeRequest, new: &Value, old: &Value, node: &str) -> Result<(), Status> {
    let is_same = |path: &str| same(new.at(path), old.at(path));
    let source = "spec.configSource";
    if !new.at(source).is_null() && !is_same(source) {
        let why = format!(
            "node {node} is not allowed to update configSource to a new non-nil configSource"
        );
        return request.reject(why);
    }
    for (path, what) in [
        ("spec.taints", "taints"),
        ("metadata.ownerReferences", "ownerReferences"),
    ] {
        if !is_same(path) {
            return request.reject(format!("node {node} is not allowed to modify {what}"));
        }
    }
    match forbidden_labels(new, old) {
        labels if labels.is_empty() => Ok(()),
        labels => request.reject(format!("is not allowed to modify labels: {labels}")),
    }
}

/// The changed labels that a node may not set, joined.
fn forbidden_labels(new: &Value, old: &Value) -> String {
    let [new, old] = [new, old].map(|node| &node["metadata"]["labels"]);
    let keys: BTreeSet<&str> = new
        .entries()
        .chain(old.entries())
        .map(|(key, _)| key)
        .collect();
    let changed = keys.into_iter().filter(|key| new.get(key) != old.get(key));
    changed
        .filter(|key| is_forbidden(key))
        .collect::<Vec<_>>()
        .join(", ")
}

fn is_forbidden(label: &str) -> bool {
    let domain = label.split_once('/').map_or("", |(domain, _)| domain);
    let is_own = OWN.contains(&label) || OWN_DOMAINS.iter().any(|own| is_in(domain, own));
    let is_of_kubernetes = is_in(domain, "kubernetes.io") || is_in(domain, "k8s.io");
    is_in(domain, RESTRICTED) || is_of_kubernetes && !is_own
}

/// Whether a domain is this one, or below it.
fn is_in(domain: &str, parent: &str) -> bool {
    domain
        .strip_suffix(parent)
        .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(label: &str, forbidden: bool) {
        assert_eq!(is_forbidden(label), forbidden, "{label}");
    }

    #[test]
    fn kubernetes_labels_are_forbidden_except_those_of_nodes() {
        check("anything", false);
        check("example.com/x", false);
        check("notkubernetes.io/x", false);
        check("kubernetes.io/hostname", false);
        check("topology.kubernetes.io/zone", false);
        check("kubelet.kubernetes.io/x", false);
        check("some.node.kubernetes.io/x", false);
        check("kubernetes.io/x", true);
        check("other.k8s.io/x", true);
        check("node-role.kubernetes.io/control-plane", true);
        check("node-restriction.kubernetes.io/x", true);
        check("team.node-restriction.kubernetes.io/x", true);
    }
}
