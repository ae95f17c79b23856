//! In-place resize of pods: the node must support it and have enough resources.

use mizzen_object::{Cause, Status};
use mizzen_value::Value;

use super::Attributes;
use mizzen_component_helpers::amounts::{Amounts, amounts};
use mizzen_component_helpers::pod_resources::{PodResourcesOptions, pod_requests};

/// The declared feature that a node needs for a resize of pod-level resources.
const POD_LEVEL: &str = "InPlacePodLevelResourcesVerticalScaling";
const INIT_CONTAINERS: &str = "InPlacePodVerticalScalingInitContainers";

/// Rejects a resize that the node does not support.
pub(super) fn check_features(attributes: &Attributes, pod: &Value) -> Result<(), Status> {
    if !attributes.is("", "pods") || !matches!(attributes.subresource(), "" | "resize") {
        return Ok(());
    }
    let Some(old) = attributes.old.filter(|old| is_changed(pod, old)) else {
        return Ok(());
    };
    let needed = needed_features(&pod["spec"], &old["spec"]);
    if needed.is_empty() {
        return Ok(());
    }
    let node = node_of(attributes, pod)?;
    let declared = node["status"]["declaredFeatures"].list();
    let missing: Vec<&str> = needed
        .into_iter()
        .filter(|name| !declared.iter().any(|known| known.str() == *name))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let why = format!(
        "pod update requires features {} which are not available on node \"{}\"",
        missing.join(", "),
        node["metadata"]["name"].str()
    );
    Err(attributes.forbidden(pod, &why))
}

/// Rejects a resize above the node's allocatable resources.
pub(super) fn check_size(attributes: &Attributes, pod: &Value) -> Result<(), Status> {
    if !attributes.is("", "pods") || attributes.subresource() != "resize" {
        return Ok(());
    }
    if attributes.old.is_none_or(|old| !is_changed(pod, old)) {
        return Ok(());
    }
    let node = node_of(attributes, pod)?;
    let reject = |why: &str, reason: &str| {
        let mut status = attributes.forbidden(pod, why);
        if let Some(details) = &mut status.details {
            details.causes.push(Cause {
                reason: reason.into(),
                message: Default::default(),
                field: Default::default(),
            });
        }
        Err(status)
    };
    let system = node["metadata"]["labels"]["kubernetes.io/os"].as_str();
    if let Some(system) = system.filter(|system| *system != "linux") {
        let name = node["metadata"]["name"].str();
        let why =
            format!("pod resize is only supported on linux nodes, node \"{name}\" is \"{system}\"");
        return reject(&why, "UnsupportedPlatform");
    }
    match too_large(pod, &amounts(&node["status"]["allocatable"])) {
        Some(why) => reject(&why, "NodeCapacity"),
        None => Ok(()),
    }
}

/// Whether a pod on a node is resized.
fn is_changed(pod: &Value, old: &Value) -> bool {
    !pod["spec"]["nodeName"].is_empty()
        && pod["metadata"]["generation"] != old["metadata"]["generation"]
}

fn node_of(attributes: &Attributes, pod: &Value) -> Result<Value, Status> {
    let name = pod["spec"]["nodeName"].str();
    let node = attributes.find("", "nodes", "", name);
    node.ok_or_else(|| attributes.forbidden(pod, &format!("node \"{name}\" not found")))
}

fn needed_features(spec: &Value, old: &Value) -> Vec<&'static str> {
    let resources = |container: &Value| container["resources"].clone();
    let runs_first = |container: &&Value| container["restartPolicy"].str() != "Always";
    let first = |spec: &Value| {
        spec["initContainers"]
            .list()
            .iter()
            .filter(runs_first)
            .map(resources)
            .collect::<Vec<_>>()
    };
    let mut needed = Vec::new();
    if spec["resources"] != old["resources"] {
        needed.push(POD_LEVEL);
    }
    if first(spec) != first(old) {
        needed.push(INIT_CONTAINERS);
    }
    needed
}

fn too_large(pod: &Value, allocatable: &Amounts) -> Option<String> {
    let requests: Amounts = pod_requests(pod, &PodResourcesOptions::default());
    let amount = |amounts: &Amounts, name: &str| amounts.get(name).copied().unwrap_or_default();
    let mut problems = Vec::new();
    let (wanted, there) = (amount(&requests, "cpu"), amount(allocatable, "cpu"));
    if wanted > there {
        let (wanted, there) = (wanted.milli_value(), there.milli_value());
        problems.push(format!("cpu, requested: {wanted}, allocatable: {there}"));
    }
    let (wanted, there) = (amount(&requests, "memory"), amount(allocatable, "memory"));
    if wanted > there {
        problems.push(format!(
            "memory, requested: {}, allocatable: {}",
            wanted.value(),
            there.value()
        ));
    }
    let problems = (!problems.is_empty()).then(|| problems.join("; "))?;
    Some(format!(
        "node didn't have enough allocatable resources: {problems}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_value::json;

    fn read(text: &str) -> Value {
        json::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_pod_must_fit_on_its_node() {
        let pod = read(
            r#"{"spec":{"overhead":{"cpu":"1"},"containers":[{"resources":{"requests":{"cpu":"1","memory":"2Ki"}}}]}}"#,
        );
        let node = |text: &str| amounts(&read(text));
        assert_eq!(
            too_large(&pod, &node(r#"{"cpu":"2","memory":"1Mi"}"#)),
            None
        );
        let problem = "node didn't have enough allocatable resources: cpu, requested: 2000, allocatable: 1500; \
                       memory, requested: 2048, allocatable: 0";
        assert_eq!(
            too_large(&pod, &node(r#"{"cpu":"1500m"}"#)).as_deref(),
            Some(problem)
        );
    }

    #[test]
    fn some_changes_need_a_node_that_knows_them() {
        let old = read(r#"{"initContainers":[{"resources":{}}]}"#);
        let new = read(
            r#"{"resources":{"limits":{"cpu":"1"}},"initContainers":[{"resources":{"limits":{"cpu":"1"}}}]}"#,
        );
        assert_eq!(needed_features(&new, &old), [POD_LEVEL, INIT_CONTAINERS]);
        assert_eq!(needed_features(&old, &old), [""; 0]);
    }
}
