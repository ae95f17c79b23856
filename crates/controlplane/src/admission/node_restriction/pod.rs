//! Pods: a node may update the status of its pods, delete and evict them, and create mirror pods, which must not give it
//! access to other objects.

use mizzen_component_helpers::references;
use mizzen_core_kinds::pod::same;
use mizzen_object::Status;
use mizzen_value::Value;
use mizzen_value::json::quote;

use super::NodeRequest;

/// Checks the creation of a mirror pod, or the deletion of a pod of the node.
pub(super) fn check(request: &NodeRequest) -> Result<(), Status> {
    let node = quote(request.node());
    match (request.new, request.attributes.old) {
        (Some(pod), None) => check_mirror_pod(request, pod, &node),
        (None, Some(pod)) if is_on(request, pod) => Ok(()),
        (None, _) => request.reject(format!(
            "node {node} can only delete pods with spec.nodeName set to itself"
        )),
        _ => {
            let operation = quote(request.operation());
            let why = format!(
                "unexpected operation {operation}, node {node} can only create and delete mirror pods"
            );
            request.reject(why)
        }
    }
}

/// Checks an update of the status of a pod.
pub(super) fn check_status(request: &NodeRequest) -> Result<(), Status> {
    let node = quote(request.node());
    let (Some(new), Some(old)) = (request.new, request.attributes.old) else {
        return request.reject_operation();
    };
    if !is_on(request, old) {
        let why = format!(
            "node {node} can only update pod status for pods with spec.nodeName set to itself"
        );
        return request.reject(why);
    }
    let labels = [new, old].map(|pod| &pod["metadata"]["labels"]);
    if labels[0] != labels[1] && !labels.iter().all(|labels| labels.is_empty()) {
        return request.reject(format!(
            "node {node} cannot update labels through pod status"
        ));
    }
    let is_same = |field: &str| same(&new["status"][field], &old["status"][field]);
    if !is_same("resourceClaimStatuses") {
        return request.reject(format!("node {node} cannot update resource claim statues"));
    }
    if !is_same("extendedResourceClaimStatus") {
        return request.reject(format!(
            "node {node} cannot update extended resource claim status"
        ));
    }
    Ok(())
}

/// Checks the eviction of a pod.
pub(super) fn check_eviction(request: &NodeRequest) -> Result<(), Status> {
    if !request.attributes.is_create() {
        return request.reject_operation();
    }
    if request.name().is_empty() {
        return request.reject("could not determine pod from request data");
    }
    if is_on(request, &request.pod(request.name())?) {
        return Ok(());
    }
    request.reject(format!(
        "node {} can only evict pods with spec.nodeName set to itself",
        request.node()
    ))
}

fn is_on(request: &NodeRequest, pod: &Value) -> bool {
    pod["spec"]["nodeName"].str() == request.node()
}

fn check_mirror_pod(request: &NodeRequest, pod: &Value, node: &str) -> Result<(), Status> {
    if !references::is_mirror(pod) {
        let annotation = quote(references::MIRROR);
        let why = format!(
            "pod does not have {annotation} annotation, node {node} can only create mirror pods"
        );
        return request.reject(why);
    }
    if !is_on(request, pod) {
        return request.reject(format!(
            "node {node} can only create pods with spec.nodeName set to itself"
        ));
    }
    check_owner(request, pod["metadata"]["ownerReferences"].list(), node)?;
    match references::api_reference(pod) {
        Ok(None) => Ok(()),
        Ok(Some(what)) => request.reject(format!(
            "node {node} can not create pods that reference {what}"
        )),
        Err(why) => request.reject(format!(
            "error checking mirror pod for API references: {why}"
        )),
    }
}

/// A mirror pod is owned by its node only.
fn check_owner(request: &NodeRequest, owners: &[Value], node: &str) -> Result<(), Status> {
    let reject = |why: &str| request.reject(format!("node {node} {why}"));
    let owner = match owners {
        [] => return reject("can only create pods with an owner reference set to itself"),
        [owner] => owner,
        _ => return reject("can only create pods with a single owner reference set to itself"),
    };
    let owned_by = ["apiVersion", "kind", "name"].map(|field| owner[field].str());
    if owned_by != ["v1", "Node", request.node()] {
        return reject("can only create pods with an owner reference set to itself");
    }
    if !owner["controller"].bool() {
        return reject("can only create pods with a controller owner reference set to itself");
    }
    if owner["blockOwnerDeletion"].bool() {
        return reject("must not set blockOwnerDeletion on an owner reference");
    }
    let itself = request.find("node", "nodes", "", request.node())?;
    let (stated, uid) = (owner["uid"].str(), itself["metadata"]["uid"].str());
    if stated != uid {
        let node = request.node();
        return request.reject(format!(
            "node {node} UID mismatch: expected {stated} got {uid}"
        ));
    }
    Ok(())
}
