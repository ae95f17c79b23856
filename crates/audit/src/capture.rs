//! Request objects of audit events, as JSON.

use bytes::Bytes;
use mizzen_object::GroupVersionKind;
use mizzen_object::schema::{Struct, canonical};
use mizzen_value::{Value, json, yaml};

use super::policy::PolicyDecision;

/// The request object, with defaults, as upstream has it.
pub(super) fn request_object(
    kind: &GroupVersionKind,
    root: &Struct,
    object: &Value,
    decision: PolicyDecision,
) -> Bytes {
    let mut object = object.clone();
    // Kubernetes: DeleteOptions have the internal version (endpoints/handlers/delete.go).
    let version = match kind.kind.as_str() {
        "DeleteOptions" => "meta.k8s.io/__internal".into(),
        _ => kind.api_version(),
    };
    object.set_default("kind", &kind.kind);
    object.set("apiVersion", version);
    canonical(root, &mut object);
    if decision.omits_managed_fields {
        remove_managed_fields(&mut object);
    }
    json::to_string(&object).into()
}

/// The request patch. YAML is converted to JSON, and anything else is left out. Upstream loses the
/// event of both, because the raw bytes are no valid JSON.
pub(super) fn patch(patch: &Bytes) -> Option<Bytes> {
    let value = json::parse(patch)
        .ok()
        .or_else(|| Some(yaml::read(patch).ok()?.value));
    let value = value.filter(|value| matches!(value, Value::Map(_) | Value::List(_)))?;
    Some(json::to_string(&value).into())
}

/// Removes `managedFields` of an object, of the items of a list, and of the rows of a table.
pub fn remove_managed_fields(object: &mut Value) {
    let forget = |object: &mut Value| {
        if let Some(metadata) = object.get_mut("metadata") {
            metadata.remove("managedFields");
        }
    };
    forget(object);
    for item in object
        .get_mut("items")
        .map(Value::list_mut)
        .unwrap_or_default()
    {
        forget(item);
    }
    for row in object
        .get_mut("rows")
        .map(Value::list_mut)
        .unwrap_or_default()
    {
        row.get_mut("object").into_iter().for_each(forget);
    }
}
