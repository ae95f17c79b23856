//! OwnerReferencesPermissionEnforcement: who may say what an object belongs to?
//!
//! The garbage collector deletes what has lost its owner, so changing owners needs the right to delete the object. A
//! reference with `blockOwnerDeletion` holds up the deletion of the owner, so it needs the right to update the owner's
//! finalizers.

use mizzen_object::{GroupVersionKind, Status};
use mizzen_registry::Future;
use mizzen_value::{Value, json};

use super::Attributes;
use mizzen_apiserver::authorization::{self, Decision, Resource};

/// Kubernetes: the status of a pod is left out, for its strategy keeps the owners (gc/gc_admission.go).
pub(super) fn concerns(attributes: &Attributes) -> bool {
    !(attributes.is("", "pods") && attributes.subresource() == "status")
}

/// Rejects a change of owners by a user without the rights to it.
pub(super) fn check<'a>(
    attributes: &'a Attributes<'a>,
    new: &'a Value,
) -> Future<'a, Result<(), Status>> {
    let (owners, old) = (owners(new), attributes.old.map(owners).unwrap_or_default());
    if owners == old {
        return Box::pin(std::future::ready(Ok(())));
    }
    Box::pin(async move {
        check_deletion(attributes, new).await?;
        let blocking: Vec<&Value> = owners
            .iter()
            .filter(|owner| blocks_anew(owner, old))
            .collect();
        check_blocking(attributes, new, &blocking).await
    })
}

fn owners(object: &Value) -> &[Value] {
    object["metadata"]["ownerReferences"].list()
}

fn blocks_anew(owner: &Value, old: &[Value]) -> bool {
    let was = old.iter().rfind(|other| other["uid"] == owner["uid"]);
    owner["blockOwnerDeletion"].bool() && !was.is_some_and(|was| was["blockOwnerDeletion"].bool())
}

/// A user who creates an object could as well not have created it.
async fn check_deletion(attributes: &Attributes<'_>, object: &Value) -> Result<(), Status> {
    if attributes.is_create() {
        return Ok(());
    }
    let (kind, path) = (attributes.call.resource.kind(), attributes.call.path);
    let target = Resource {
        group: &kind.gvk.group,
        version: &kind.gvk.version,
        resource: &kind.plural,
        subresource: &path.subresource,
        namespace: &path.namespace,
        name: &path.name,
        ..Resource::default()
    };
    let refusal = "cannot set an ownerRef on a resource you can't delete";
    demand(attributes, object, "delete", target, refusal).await
}

async fn check_blocking(
    attributes: &Attributes<'_>,
    object: &Value,
    owners: &[&Value],
) -> Result<(), Status> {
    let anything = Resource {
        group: "*",
        version: "*",
        resource: "*",
        subresource: "finalizers",
        name: "*",
        ..Resource::default()
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
        let finalizers = Resource {
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
            ..Resource::default()
        };
        let refusal = "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on";
        demand(attributes, object, "update", finalizers, refusal).await?;
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

async fn demand(
    attributes: &Attributes<'_>,
    object: &Value,
    verb: &str,
    target: Resource<'_>,
    refusal: &str,
) -> Result<(), Status> {
    let decision = authorize(attributes, verb, target).await;
    if decision.is_allowed() {
        return Ok(());
    }
    let reason = decision.reason();
    let problem = reason.problem().unwrap_or("<nil>");
    Err(attributes.forbidden(object, &format!("{refusal}: {reason}, {problem}")))
}

async fn authorize(attributes: &Attributes<'_>, verb: &str, target: Resource<'_>) -> Decision {
    let (server, user) = (attributes.call.server, &attributes.call.request.user);
    let asked = authorization::Attributes {
        user,
        verb,
        target: authorization::Target::Resource(target),
    };
    server.authorize(&asked).await
}
