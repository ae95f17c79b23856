//! RuntimeClass: sets overhead and scheduling of a pod from its class.

use mizzen_component_helpers::tolerations::merge;
use mizzen_object::Status;
use mizzen_object::schema::CanonicalObject;
use mizzen_registry::BoxFuture;
use mizzen_value::Value;

use super::Attributes;

const DIFFERENT: &str =
    "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";

/// Whether the write creates a pod.
pub(super) fn concerns(attributes: &Attributes) -> bool {
    attributes.is_main("", "pods") && attributes.is_create()
}

/// Sets overhead and scheduling of a new pod.
pub(super) fn admit<'a>(
    attributes: &'a Attributes<'a>,
    pod: &'a mut CanonicalObject,
) -> BoxFuture<'a, Result<(), Status>> {
    Box::pin(async move {
        let Some(class) = class(attributes, pod).await? else {
            return Ok(());
        };
        apply_class(&class, pod).map_err(|why| attributes.forbidden(pod, &why))
    })
}

/// Checks the overhead of a new pod.
pub(super) fn check<'a>(
    attributes: &'a Attributes<'a>,
    pod: &'a Value,
) -> BoxFuture<'a, Result<(), Status>> {
    Box::pin(async move {
        let class = class(attributes, pod).await?.unwrap_or_default();
        check_overhead(attributes, pod, &class)
    })
}

fn check_overhead(attributes: &Attributes, pod: &Value, class: &Value) -> Result<(), Status> {
    let (expected, found) = (&class["overhead"], &pod["spec"]["overhead"]);
    let why = match expected.is_null() {
        true if found.is_empty() => return Ok(()),
        true => {
            "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
        }
        false if same_overhead(expected, found) => return Ok(()),
        false => DIFFERENT,
    };
    Err(attributes.forbidden(pod, why))
}

async fn class(attributes: &Attributes<'_>, pod: &Value) -> Result<Option<Value>, Status> {
    let Some(name) = pod["spec"]["runtimeClassName"].as_str() else {
        return Ok(None);
    };
    let found = attributes.look_up("node.k8s.io", "runtimeclasses", "", name);
    found.await.map(Some).map_err(|status| match status.code {
        404 => attributes.forbidden(
            pod,
            &format!("pod rejected: RuntimeClass \"{name}\" not found"),
        ),
        _ => status,
    })
}

fn same_overhead(expected: &Value, found: &Value) -> bool {
    expected["podFixed"] == *found || expected["podFixed"].is_empty() && found.is_empty()
}

/// Sets overhead, node selector and tolerations of the class.
fn apply_class(class: &Value, pod: &mut Value) -> Result<(), String> {
    let (overhead, scheduling) = (&class["overhead"], &class["scheduling"]);
    let spec = pod.entry("spec");
    if !overhead.is_null() {
        if !spec["overhead"].is_empty() && !same_overhead(overhead, &spec["overhead"]) {
            return Err(DIFFERENT.into());
        }
        spec.set("overhead", overhead["podFixed"].clone());
    }
    if scheduling.is_null() {
        return Ok(());
    }
    for (key, expected) in scheduling["nodeSelector"].entries() {
        let (expected, found) = (expected.str(), spec["nodeSelector"][key].as_str());
        if let Some(found) = found.filter(|found| *found != expected) {
            return Err(format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {expected}; pod.spec.nodeSelector[{key}] = {found}"
            ));
        }
        spec.entry("nodeSelector").set(key, expected);
    }
    let both = [&*spec, scheduling].map(|wishes| wishes["tolerations"].list());
    let merged = merge(&both.concat());
    spec.set("tolerations", merged);
    Ok(())
}
