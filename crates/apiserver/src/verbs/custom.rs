//! Which requests about custom objects are answered, and how the others are refused.
//!
//! Kubernetes: custom resources have a handler of their own (apiserver/customresource_handler.go), which does not know
//! of most refusals that built-in resources have, and has others.

use http::Method;
use mizzen_object::{Details, Status};
use mizzen_registry::Resource;

use crate::request::ResourcePath;

/// Whether a path leads nowhere for this verb: all namespaces together can only be read.
pub(super) fn leads_nowhere(resource: &Resource, path: &ResourcePath, verb: &str) -> bool {
    resource.kind().is_namespaced()
        && path.namespace.is_empty()
        && !matches!(verb, "list" | "watch")
}

/// Whether the resource has the verb at all. Kubernetes: the handler of custom resources begins a watch below `/watch/`
/// whatever the method is. Here that prefix is for GET alone, as it is for built-in resources.
pub(super) fn allowed(
    resource: &Resource,
    path: &ResourcePath,
    verb: &str,
    method: &Method,
) -> Result<(), Status> {
    let kind = resource.kind();
    if path.verb_in_path && method != Method::GET && verb != "proxy" {
        return Err(Status::no_such_method());
    }
    let known = match path.subresource.as_str() {
        "" => !matches!(verb, "" | "proxy"),
        name if kind.subresource(name).is_some() => matches!(verb, "get" | "update" | "patch"),
        _ => return Err(Status::not_found(&kind.resource(), &path.name)),
    };
    if !known {
        return Err(not_supported(resource, verb));
    }
    if path.name.is_empty() && verb == "update" {
        return Err(Status::bad_request("name must be provided"));
    }
    Ok(())
}

/// 405: the resource does not have the verb.
fn not_supported(resource: &Resource, verb: &str) -> Status {
    let kind = resource.kind();
    let (group, plural) = (&kind.gvk.group, &kind.plural);
    let message = format!("{verb} is not supported on resources of kind \"{plural}.{group}\"");
    let details = Details {
        group: group.clone(),
        kind: plural.clone(),
        ..Details::default()
    };
    Status {
        details: Some(Box::new(details)),
        ..Status::method_not_allowed(message)
    }
}
