//! ExtendedResourceToleration: a pod that requests an extended resource tolerates the taint of nodes that have it.

use std::collections::BTreeSet;

use mizzen_component_helpers::resource_names::is_extended;
use mizzen_component_helpers::tolerations::add_or_update;
use mizzen_object::Status;
use mizzen_object::schema::CanonicalObject;
use mizzen_value::{Value, value};

use super::Attributes;

/// Adds a toleration for each extended resource that a container requests.
pub(super) fn admit(attributes: &Attributes, pod: &mut CanonicalObject) -> Result<(), Status> {
    if !attributes.is_main("", "pods") {
        return Ok(());
    }
    for resource in extended_resources(&pod["spec"]) {
        let toleration = value!({ "key": resource, "operator": "Exists", "effect": "NoSchedule" });
        let tolerations = pod.entry("spec").entry("tolerations").make_list();
        add_or_update(tolerations, &toleration);
    }
    Ok(())
}

fn extended_resources(spec: &Value) -> BTreeSet<String> {
    let containers = ["containers", "initContainers"]
        .into_iter()
        .flat_map(|list| spec[list].list());
    let requests = containers.flat_map(|container| container["resources"]["requests"].entries());
    requests
        .map(|(name, _)| name)
        .filter(|name| is_extended(name))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_extended_resources_are_tolerated() {
        let spec = value!({
            "containers": [{ "resources": { "requests": { "cpu": "1", "b.com/x": "1", "kubernetes.io/y": "1" } } }],
            "initContainers": [{ "resources": { "requests": { "a.com/x": "1" }, "limits": { "c.com/x": "1" } } }],
        });
        assert_eq!(
            extended_resources(&spec),
            BTreeSet::from(["a.com/x".to_owned(), "b.com/x".to_owned()])
        );
    }
}
