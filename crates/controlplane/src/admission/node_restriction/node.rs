//! What may a node change about itself? Not what decides which pods come to it.

use std::collections::BTreeSet;

use mizzen_kinds::same;
use mizzen_object::Status;
use mizzen_value::Value;
use mizzen_value::json::quote;

use super::Asked;

/// Labels that nodes set on themselves although they are Kubernetes' (kubelet/pkg/apis/well_known_labels.go).
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
/// Domains in which all labels are theirs.
const OWN_DOMAINS: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];
/// The domain in which no label is.
const RESTRICTED: &str = "node-restriction.kubernetes.io";

/// Lets a node change itself, or refuses.
pub(super) fn check(asked: &Asked) -> Result<(), Status> {
    let (node, name) = (quote(asked.node()), asked.name());
    if name != asked.node() {
        return asked.refuse(format!(
            "node {node} is not allowed to modify node {}",
            quote(name)
        ));
    }
    match (asked.new, asked.attributes.old) {
        (Some(new), None) => check_new(asked, new, &node),
        (Some(new), Some(old)) => check_change(asked, new, old, &node),
        (None, _) => Ok(()),
    }
}

fn check_new(asked: &Asked, new: &Value, node: &str) -> Result<(), Status> {
    // Kubernetes: it says pods and means nodes.
    if !new["spec"]["configSource"].is_null() {
        return asked.refuse(format!(
            "node {node} is not allowed to create pods with a non-nil configSource"
        ));
    }
    match forbidden_labels(new, &Value::Null) {
        labels if labels.is_empty() => Ok(()),
        labels => asked.refuse(format!(
            "node {node} is not allowed to set the following labels: {labels}"
        )),
    }
}

fn check_change(asked: &Asked, new: &Value, old: &Value, node: &str) -> Result<(), Status> {
    let is_same = |path: &str| same(new.at(path), old.at(path));
    let source = "spec.configSource";
    if !new.at(source).is_null() && !is_same(source) {
        let why = format!(
            "node {node} is not allowed to update configSource to a new non-nil configSource"
        );
        return asked.refuse(why);
    }
    for (path, what) in [
        ("spec.taints", "taints"),
        ("metadata.ownerReferences", "ownerReferences"),
    ] {
        if !is_same(path) {
            return asked.refuse(format!("node {node} is not allowed to modify {what}"));
        }
    }
    match forbidden_labels(new, old) {
        labels if labels.is_empty() => Ok(()),
        labels => asked.refuse(format!("is not allowed to modify labels: {labels}")),
    }
}

/// The labels that differ and that a node leaves alone, in one line.
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
    fn labels_of_kubernetes_are_forbidden_but_for_those_of_nodes() {
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
