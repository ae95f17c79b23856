//! What is in use, or what the system needs, does not simply go.

use mizzen_object::{Status, Value};
use mizzen_registry::Resource;

use super::Write;
use crate::request::ResourcePath;

/// Keeps a class of volumes as long as volumes are of it. Claims and volumes get theirs from their kinds.
const CLASS: &str = "kubernetes.io/vac-protection";
/// The classes that the system's own pods are of.
const SYSTEM_PRIORITIES: [&str; 2] = ["system-node-critical", "system-cluster-critical"];

/// Holds a new VolumeAttributesClass.
pub(super) fn admit(write: &Write, class: &mut Value) {
    if write.old.is_some() {
        return;
    }
    let finalizers = class.entry("metadata").entry("finalizers").make_list();
    if !finalizers.iter().any(|finalizer| finalizer.str() == CLASS) {
        finalizers.push(CLASS.into());
    }
}

/// Lets an object be deleted, or refuses.
pub(super) fn on_delete(resource: &Resource, path: &ResourcePath) -> Result<(), Status> {
    let kind = resource.kind();
    let is_class = kind.gvk.group == "scheduling.k8s.io" && kind.gvk.kind == "PriorityClass";
    if is_class && SYSTEM_PRIORITIES.contains(&path.name.as_str()) {
        let why = "this is a system priority class and cannot be deleted";
        return Err(Status::forbidden(&kind.resource(), &path.name, why));
    }
    Ok(())
}
