//! NamespaceLifecycle: nothing is created in a namespace that is missing or terminating, and system namespaces are not
//! deleted. NamespaceAutoProvision creates a missing one; NamespaceExists rejects every write to one.

use std::time::Duration;

use mizzen_object::schema::CanonicalObject;
use mizzen_object::{Cause, Status};
use mizzen_registry::{BoxFuture, Key, Resource, Revision};
use mizzen_value::value;
use tokio::time::timeout;

use super::Attributes;
use crate::request::ResourcePath;
use crate::server::Server;

/// The namespaces that cannot be deleted.
const PROTECTED: [&str; 3] = ["default", "kube-system", "kube-public"];

/// How long a create waits for a namespace that another server has just created.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(3);

/// Waits for a namespace that this server does not know, if another server has created it.
///
/// Kubernetes: a namespace that is not in the cache is read from the store (plugin/namespace/lifecycle/admission.go).
pub(super) async fn catch_up(attributes: &Attributes<'_>) {
    let Ok((registry, namespaces)) = attributes.call.server.namespaces() else {
        return;
    };
    let namespace = attributes.namespace();
    if !registry.store().is_shared() || namespace.is_empty() || !attributes.is_create() {
        return;
    }
    let key = Key::new("", namespace);
    let cached = registry.get_field(&namespaces, &key, "status.phase");
    if cached.is_err()
        && let Ok(found) = registry.read(&namespaces, &key, "").await
    {
        let version = found.value()["metadata"]["resourceVersion"].str().parse();
        let reached = namespaces
            .space()
            .reached(Revision(version.unwrap_or_default()));
        // Without it the plug-in rejects the create as that in a missing namespace.
        let _ = timeout(CATCH_UP_TIMEOUT, reached).await;
    }
}

/// Rejects a create in a namespace that is missing or terminating.
pub(crate) fn admit(attributes: &Attributes, object: &mut CanonicalObject) -> Result<(), Status> {
    let (server, path) = (attributes.call.server, attributes.call.path);
    if !attributes.is_create() || path.namespace.is_empty() {
        return Ok(());
    }
    let (registry, namespaces) = server.namespaces()?;
    let key = Key::new("", &path.namespace);
    let phase = registry.get_field(&namespaces, &key, "status.phase")?;
    if phase != "Terminating" {
        return Ok(());
    }
    let namespace = attributes.namespace();
    let why = format!(
        "unable to create new content in namespace {namespace} because it is being terminated"
    );
    let mut status = attributes.forbidden(object, &why);
    if let Some(details) = &mut status.details {
        details.causes.push(Cause {
            reason: "NamespaceTerminating".into(),
            message: format!("namespace {namespace} is being terminated"),
            field: "metadata.namespace".into(),
        });
    }
    Err(status)
}

/// Rejects the deletion of a system namespace.
pub(super) fn check_delete(resource: &Resource, path: &ResourcePath) -> Result<(), Status> {
    let kind = resource.kind();
    let is_namespace = kind.gvk.group.is_empty() && kind.gvk.kind == "Namespace";
    if is_namespace && PROTECTED.contains(&path.name.as_str()) {
        return Err(Status::forbidden(
            &kind.resource(),
            &path.name,
            "this namespace may not be deleted",
        ));
    }
    Ok(())
}

/// Whether the write creates an object in a missing namespace.
pub(super) fn is_missing(attributes: &Attributes) -> bool {
    let is_in_one = attributes.is_create() && !attributes.namespace().is_empty();
    is_in_one && !attributes.is_dry_run() && check_exists(attributes).is_err()
}

/// Creates a missing namespace.
pub(super) fn provision<'a>(
    attributes: &'a Attributes<'a>,
    object: &'a mut CanonicalObject,
) -> BoxFuture<'a, Result<(), Status>> {
    Box::pin(async move {
        let Some(server) = attributes.call.server.itself.upgrade().map(Server) else {
            return Ok(());
        };
        let namespace = value!({ "metadata": { "name": (attributes.namespace()) } });
        let created = server.ask("POST", "/api/v1/namespaces", Some(&namespace));
        let (code, status) = created.await;
        if matches!(code, 201 | 409) {
            return Ok(());
        }
        Err(attributes.forbidden(object, status["message"].str()))
    })
}

/// Rejects a write to a missing namespace.
pub(super) fn check_exists(attributes: &Attributes) -> Result<(), Status> {
    let (server, namespace) = (attributes.call.server, attributes.namespace());
    if namespace.is_empty() || attributes.is("", "namespaces") {
        return Ok(());
    }
    let (registry, namespaces) = server.namespaces()?;
    registry
        .get_field(&namespaces, &Key::new("", namespace), "status.phase")
        .map(drop)
}
