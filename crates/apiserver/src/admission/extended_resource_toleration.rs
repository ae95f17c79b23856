//! ExtendedResourceToleration: a pod that requests an extended resource tolerates the taint of nodes that have it.

use std::collections::BTreeSet;

use mizzen_kinds::is_extended_resource;
use mizzen_object::{Status, Value, value};

use super::Attributes;

/// Adds a toleration for each extended resource that a container requests.
pub(super) fn admit(attributes: &Attributes, pod: &mut Value) -> Result<(), Status> {
    if !attributes.is_main("", "pods") {
        return Ok(());
    }
    for resource in requested(&pod["spec"]) {
        tolerate(pod.entry("spec"), &resource);
    }
    Ok(())
}

fn requested(spec: &Value) -> BTreeSet<String> {
    let containers = ["containers", "initContainers"]
        .into_iter()
        .flat_map(|list| spec[list].list());
    let requests = containers.flat_map(|container| container["resources"]["requests"].entries());
    requests
        .map(|(name, _)| name)
        .filter(|name| is_extended_resource(name))
        .map(str::to_owned)
        .collect()
}

/// Kubernetes: one for the same key, operator, value and effect is replaced, also if it has an end
/// (pkg/apis/core/helper/helpers.go).
fn tolerate(spec: &mut Value, key: &str) {
    let toleration = value!({ "key": key, "operator": "Exists", "effect": "NoSchedule" });
    let is_same = |other: &Value| {
        ["key", "operator", "effect", "value"]
            .iter()
            .all(|field| other[*field].str() == toleration[*field].str())
    };
    let tolerations = spec.entry("tolerations").make_list();
    match tolerations.iter_mut().find(|other| is_same(other)) {
        Some(other) => *other = toleration,
        None => tolerations.push(toleration),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_object::json;

    #[test]
    fn a_toleration_is_added_once_and_replaces_one_that_ends() {
        let mut spec = value!({ "tolerations": [
            { "key": "a.com/x", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 5 },
            { "key": "a.com/y", "operator": "Exists" }
        ] });
        for key in ["a.com/x", "a.com/y", "a.com/y"] {
            tolerate(&mut spec, key);
        }
        let expected = r#"[{"key":"a.com/x","operator":"Exists","effect":"NoSchedule"},{"key":"a.com/y","operator":"Exists"},{"key":"a.com/y","operator":"Exists","effect":"NoSchedule"}]"#;
        assert_eq!(json::to_string(&spec["tolerations"]), expected);
    }

    #[test]
    fn only_resources_of_others_are_tolerated() {
        let spec = value!({
            "containers": [{ "resources": { "requests": { "cpu": "1", "b.com/x": "1", "kubernetes.io/y": "1" } } }],
            "initContainers": [{ "resources": { "requests": { "a.com/x": "1" }, "limits": { "c.com/x": "1" } } }],
        });
        assert_eq!(
            requested(&spec),
            BTreeSet::from(["a.com/x".to_owned(), "b.com/x".to_owned()])
        );
    }
}
