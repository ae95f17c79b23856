//! LimitPodHardAntiAffinityTopology: required anti-affinity is limited to the topology of a node.

use mizzen_object::Status;
use mizzen_value::Value;

use super::Attributes;

const HOSTNAME: &str = "kubernetes.io/hostname";

/// Rejects a pod with a required anti-affinity term whose topology is larger than a node.
pub(super) fn check(attributes: &Attributes, pod: &Value) -> Result<(), Status> {
    if !attributes.is_main("", "pods") {
        return Ok(());
    }
    let rules = &pod["spec"]["affinity"]["podAntiAffinity"];
    let terms = rules["requiredDuringSchedulingIgnoredDuringExecution"].list();
    match terms.iter().map(|term| term["topologyKey"].str()).find(|key| *key != HOSTNAME) {
        Some(key) => Err(attributes.forbidden(
            pod,
            &format!(
                "affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey {key} but only key {HOSTNAME} is allowed"
            ),
        )),
        None => Ok(()),
    }
}
