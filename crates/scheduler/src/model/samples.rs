//! Objects for tests.

use std::sync::Arc;

use mizzen_sdk::cache::Entry;
use mizzen_value::{Value, json, yaml};

use super::{NodeFacts, PodInfo};

/// An object from its YAML or JSON text.
#[track_caller]
pub(crate) fn object(text: &str) -> Value {
    yaml::read(text.as_bytes()).expect("YAML").value
}

/// A node from YAML, with a name and default allocatable resources.
#[track_caller]
pub(crate) fn node(name: &str, text: &str) -> NodeFacts {
    let mut node = object(text);
    node.entry("metadata").set("name", name);
    node.entry("metadata")
        .entry("labels")
        .set_default("kubernetes.io/hostname", name);
    let allocatable = node.entry("status").entry("allocatable");
    for (resource, amount) in [("cpu", "4"), ("memory", "8Gi"), ("pods", "110")] {
        allocatable.set_default(resource, amount);
    }
    NodeFacts::from_node(&node)
}

/// A pod from YAML, with a name that is its UID, too.
#[track_caller]
pub(crate) fn pod(name: &str, text: &str) -> Arc<PodInfo> {
    let mut pod = object(text);
    let metadata = pod.entry("metadata");
    metadata.set("name", name);
    metadata.set_default("uid", name);
    metadata.set_default("namespace", "default");
    pod.entry("spec")
        .set_default("containers", vec![object("{name: c, image: i}")]);
    let text = json::to_string(&pod);
    Arc::new(PodInfo::from_entry(&Entry::new(text.into_bytes()).expect("JSON")).expect("a pod"))
}
