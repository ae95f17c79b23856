//! The verbs of custom resources.
//!
//! Kubernetes: custom resources have a handler of their own (apiserver/customresource_handler.go), whose errors differ from
//! those of built-in resources.

use http::Method;
use mizzen_object::{Details, Status};
use mizzen_registry::Resource;

use crate::request::ResourcePath;

/// Whether there is no route for the verb: across all namespaces, resources can only be listed and watched.
pub(super) fn is_unrouted(resource: &Resource, path: &ResourcePath, verb: &str) -> bool {
    resource.kind().is_namespaced()
        && path.namespace.is_empty()
        && !matches!(verb, "list" | "watch")
}

/// Checks that the resource has the verb. Kubernetes: the handler of custom resources starts a watch below `/watch/` for any
/// method. Here that prefix supports only GET, as for built-in resources.
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
        name => match kind.subresource(name) {
            Some(subresource) => subresource.verbs.iter().any(|known| known == verb),
            None => return Err(Status::not_found(&kind.resource(), &path.name)),
        },
    };
    if !known {
        let (group, plural) = (&kind.gvk.group, &kind.plural);
        let message = format!("{verb} is not supported on resources of kind \"{plural}.{group}\"");
        let details = Details {
            group: group.clone(),
            kind: plural.clone(),
            ..Details::default()
        };
        return Err(Status {
            details: Some(Box::new(details)),
            ..Status::method_not_allowed(message)
        });
    }
    if path.name.is_empty() && verb == "update" {
        return Err(Status::bad_request("name must be provided"));
    }
    Ok(())
}
