//! Namespaces have a life: nothing is made in one that does not exist or is going away, and those that the
//! system lives in stay.

use mizzen_object::{Cause, Status, Value};
use mizzen_registry::{Key, Resource};

use super::Attributes;
use crate::request::ResourcePath;

/// The namespaces that cannot be deleted.
const PROTECTED: [&str; 3] = ["default", "kube-system", "kube-public"];

/// Refuses to make anything where nothing may be made.
pub(super) fn admit(attributes: &Attributes, object: &mut Value) -> Result<(), Status> {
    let (server, path) = (attributes.call.server, attributes.call.path);
    if !attributes.is_create() || path.namespace.is_empty() {
        return Ok(());
    }
    let namespaces = server.catalog.get("", "v1", "namespaces").ok_or_else(Status::no_such_resource)?;
    let phase = server.registry.get_field(&namespaces, &Key::new("", &path.namespace), "status.phase")?;
    if phase != "Terminating" {
        return Ok(());
    }
    Err(terminating(attributes, object))
}

fn terminating(attributes: &Attributes, object: &Value) -> Status {
    let namespace = attributes.namespace();
    let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
    let mut status = attributes.forbidden(object, &why);
    if let Some(details) = &mut status.details {
        details.causes.push(Cause {
            reason: "NamespaceTerminating".into(),
            message: format!("namespace {namespace} is being terminated"),
            field: "metadata.namespace".into(),
        });
    }
    status
}

/// Lets an object be deleted, or refuses.
pub(super) fn on_delete(resource: &Resource, path: &ResourcePath) -> Result<(), Status> {
    let kind = resource.kind();
    let is_namespace = kind.gvk.group.is_empty() && kind.gvk.kind == "Namespace";
    if is_namespace && PROTECTED.contains(&path.name.as_str()) {
        return Err(Status::forbidden(&kind.resource(), &path.name, "this namespace may not be deleted"));
    }
    Ok(())
}
