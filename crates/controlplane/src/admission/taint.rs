//! TaintNodesByCondition: a new node gets the not-ready taint.

use mizzen_object::Status;
use mizzen_object::schema::CanonicalObject;
use mizzen_value::{Value, value};

use super::Attributes;

const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// Taints a new node.
pub(super) fn admit(attributes: &Attributes, node: &mut CanonicalObject) -> Result<(), Status> {
    if !attributes.is_main("", "nodes") || !attributes.is_create() {
        return Ok(());
    }
    let taints = node.entry("spec").entry("taints").make_list();
    let is_not_ready =
        |taint: &Value| taint["key"].str() == NOT_READY && taint["effect"].str() == "NoSchedule";
    if !taints.iter().any(is_not_ready) {
        taints.push(value!({ "key": NOT_READY, "effect": "NoSchedule" }));
    }
    Ok(())
}
