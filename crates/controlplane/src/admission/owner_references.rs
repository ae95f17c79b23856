//! OwnerReferencesPermissionEnforcement.
//!
//! The garbage collector deletes objects without owner, so changing owner references needs permission to delete the object.
//! A reference with `blockOwnerDeletion` delays the deletion of the owner, so it needs permission to update the owner's
//! finalizers.

use mizzen_authorization as authorization;
use mizzen_authorization::{Decision, ResourceAttributes};
use mizzen_object::{GroupVersionKind, Status};
use mizzen_registry::BoxFuture;
use mizzen_value::{Value, json};

use super::Attributes;

/// Kubernetes: the status of a pod is exempt, because its strategy keeps the owners (gc/gc_admission.go).
pub(super) fn concerns(attributes: &Attributes) -> bool {
    !(attributes.is("", "pods") && attributes.subresource() == "status")
}

/// Rejects a change of owners by a user without permission.
pub(super) fn check<'a>(
    attributes: &'a Attributes<'a>,
    new: &'a Value,
) -> BoxFuture<'a, Result<(), Status>> {
    let (owners, old) = (owners(new), attributes.old.map(owners).unwrap_or_default());
    if owners == old {
        return Box::pin(std::future::ready(Ok(())));
    }
    Box::pin(async move {
        check_deletion(attributes, new).await?;
        let blocking: Vec<&Value> = owners
            .iter()
            .filter(|owner| {
                let before = old.iter().rfind(|other| other["uid"] == owner["uid"]);
                let blocked = before.is_some_and(|before| before["blockOwnerDeletion"].bool());
                owner["blockOwnerDeletion"].bool() && !blocked
            })
            .collect();
        check_blocking(attributes, new, &blocking).await
    })
}

fn owners(object: &Value) -> &[Value] {
    object["metadata"]["ownerReferences"].list()
}

/// A create needs no permission to delete.
async fn check_deletion(attributes: &Attributes<'_>, object: &Value) -> Result<(), Status> {
    if attributes.is_create() {
        return Ok(());
    }
    let (kind, path) = (attributes.call.resource.kind(), attributes.call.path);
    let target = ResourceAttributes {
        group: &kind.gvk.group,
        version: &kind.gvk.version,
        resource: &kind.plural,
        subresource: &path.subresource,
        namespace: &path.namespace,
        name: &path.name,
        ..ResourceAttributes::default()
    };
    let denial = "cannot set an ownerRef on a resource you can't delete";
    require_permission(attributes, object, "delete", target, denial).await
}

async fn check_blocking(
    attributes: &Attributes<'_>,
    object: &Value,
    owners: &[&Value],
) -> Result<(), Status> {
    let anything = ResourceAttributes {
        group: "*",
        version: "*",
        resource: "*",
        subresource: "finalizers",
        name: "*",
        ..ResourceAttributes::default()
    };
    if owners.is_empty() || authorize(attributes, "update", anything).await.is_allowed() {
        return Ok(());
    }
    for owner in owners {
        let found = find_owner(attributes, owner).map_err(|problem| {
            let (version, kind) = (owner["apiVersion"].str(), owner["kind"].str());
            let why = format!(
                "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion {version} Kind {kind}: {problem}"
            );
            attributes.forbidden(object, &why)
        })?;
        let kind = found.kind();
        let finalizers = ResourceAttributes {
            group: &kind.gvk.group,
            version: &kind.gvk.version,
            resource: &kind.plural,
            subresource: "finalizers",
            namespace: if kind.is_namespaced() {
                attributes.namespace()
            } else {
                ""
            },
            name: owner["name"].str(),
            ..ResourceAttributes::default()
        };
        let denial = "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on";
        require_permission(attributes, object, "update", finalizers, denial).await?;
    }
    Ok(())
}

fn find_owner(attributes: &Attributes, owner: &Value) -> Result<mizzen_registry::Resource, String> {
    let (api_version, kind) = (owner["apiVersion"].str(), owner["kind"].str());
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    if version.contains('/') {
        return Err(format!("unexpected GroupVersion string: {api_version}"));
    }
    let gvk = GroupVersionKind {
        group: group.into(),
        version: version.into(),
        kind: kind.into(),
    };
    let found = attributes.call.server.catalog.of_kind(&gvk);
    found.ok_or_else(|| {
        format!(
            "no matches for kind {} in version {}",
            json::quote(kind),
            json::quote(api_version)
        )
    })
}

async fn require_permission(
    attributes: &Attributes<'_>,
    object: &Value,
    verb: &str,
    target: ResourceAttributes<'_>,
    denial: &str,
) -> Result<(), Status> {
    let decision = authorize(attributes, verb, target).await;
    if decision.is_allowed() {
        return Ok(());
    }
    let reason = decision.reason();
    let problem = reason.problem().unwrap_or("<nil>");
    Err(attributes.forbidden(object, &format!("{denial}: {reason}, {problem}")))
}

async fn authorize(
    attributes: &Attributes<'_>,
    verb: &str,
    target: ResourceAttributes<'_>,
) -> Decision {
    let (server, user) = (attributes.call.server, &attributes.call.request.user);
    let attributes = authorization::Attributes {
        user,
        verb,
        target: authorization::AttributesTarget::Resource(target),
    };
    server.authorize(&attributes).await
}
