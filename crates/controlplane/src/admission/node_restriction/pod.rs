//! Pods: a node may update the status of its pods, delete and evict them, and create mirror pods, which must not give it
//! access to other objects.

use mizzen_component_helpers::references;
use mizzen_core_kinds::pod::same;
use mizzen_object::Status;
use mizzen_value::Value;
use mizzen_value::json::quote;

use super::NodeRequest;

/// Volumes without references to API objects.
const WITHOUT_REFERENCES: [&str; 22] = [
    "awsElasticBlockStore",
    "azureDisk",
    "cephfs",
    "cinder",
    "downwardAPI",
    "emptyDir",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "gitRepo",
    "hostPath",
    "image",
    "iscsi",
    "nfs",
    "photonPersistentDisk",
    "portworxVolume",
    "quobyte",
    "rbd",
    "scaleIO",
    "storageos",
    "vsphereVolume",
];
/// Volumes with references, and the referenced resource.
const REFERENCING: [(&str, &str); 7] = [
    ("configMap", "configmaps (via configmap volumes)"),
    ("secret", "secrets (via secret volumes)"),
    ("csi", "csidrivers (via CSI volumes)"),
    ("glusterfs", "endpoints (via glusterFS volumes)"),
    ("persistentVolumeClaim", "persistentvolumeclaims"),
    (
        "ephemeral",
        "persistentvolumeclaims (via ephemeral volumes)",
    ),
    ("azureFile", "secrets (via azureFile volumes)"),
];
/// The same for projected volumes.
const REFERENCING_PROJECTED: [(&str, &str); 5] = [
    ("configMap", "configmaps (via projected volumes)"),
    ("secret", "secrets (via projected volumes)"),
    (
        "serviceAccountToken",
        "serviceaccounts (via projected volumes)",
    ),
    ("clusterTrustBundle", "clustertrustbundles"),
    ("podCertificate", "podcertificates"),
];

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
    match api_reference(pod) {
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

/// The resource that a pod references, if any. Fails for an unknown volume.
fn api_reference(pod: &Value) -> Result<Option<&'static str>, String> {
    let spec = &pod["spec"];
    let direct = [
        (!spec["serviceAccountName"].is_empty(), "serviceaccounts"),
        (references::secrets(pod).next().is_some(), "secrets"),
        (references::config_maps(pod).next().is_some(), "configmaps"),
        (!spec["resourceClaims"].is_empty(), "resourceclaims"),
    ];
    if let Some((_, what)) = direct.into_iter().find(|(needs, _)| *needs) {
        return Ok(Some(what));
    }
    for volume in spec["volumes"].list() {
        if let Some(what) = volume_reference(volume)? {
            return Ok(Some(what));
        }
    }
    Ok(None)
}

fn volume_reference(volume: &Value) -> Result<Option<&'static str>, String> {
    let is = |source: &str| !volume[source].is_null();
    if WITHOUT_REFERENCES.iter().any(|source| is(source)) {
        return Ok(None);
    }
    if let Some((_, what)) = REFERENCING.iter().find(|(source, _)| is(source)) {
        return Ok(Some(what));
    }
    let name = quote(volume["name"].str());
    if !is("projected") {
        return Err(format!("unknown volume type for volume  {name}"));
    }
    for source in volume["projected"]["sources"].list() {
        if let Some((_, what)) = REFERENCING_PROJECTED
            .iter()
            .find(|(kind, _)| !source[*kind].is_null())
        {
            return Ok(Some(what));
        }
        if source["downwardAPI"].is_null() {
            return Err(format!("unknown source for projected volume {name}"));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use mizzen_value::json;

    use super::*;

    #[track_caller]
    fn check(spec: &str, expected: Result<Option<&'static str>, &str>) {
        let pod = json::parse(format!(r#"{{"spec":{spec}}}"#).as_bytes()).unwrap();
        assert_eq!(
            api_reference(&pod),
            expected.map_err(str::to_string),
            "{spec}"
        );
    }

    #[test]
    fn the_first_reference_of_a_pod_is_reported() {
        check("{}", Ok(None));
        check(
            r#"{"serviceAccountName":"a","volumes":[{"secret":{"secretName":"s"}}]}"#,
            Ok(Some("serviceaccounts")),
        );
        check(
            r#"{"imagePullSecrets":[{"name":"s"}]}"#,
            Ok(Some("secrets")),
        );
        check(
            r#"{"containers":[{"envFrom":[{"configMapRef":{"name":"c"}}]}]}"#,
            Ok(Some("configmaps")),
        );
        check(
            r#"{"resourceClaims":[{"name":"c"}]}"#,
            Ok(Some("resourceclaims")),
        );
    }

    #[test]
    fn references_of_a_volume_depend_on_its_kind() {
        let of = |volume: &str, expected| check(&format!(r#"{{"volumes":[{volume}]}}"#), expected);
        of(
            r#"{"emptyDir":{}},{"hostPath":{"path":"/"}},{"nfs":{}}"#,
            Ok(None),
        );
        of(r#"{"secret":{}}"#, Ok(Some("secrets (via secret volumes)")));
        of(
            r#"{"csi":{"driver":"d"}}"#,
            Ok(Some("csidrivers (via CSI volumes)")),
        );
        of(
            r#"{"persistentVolumeClaim":{"claimName":"c"}}"#,
            Ok(Some("persistentvolumeclaims")),
        );
        of(
            r#"{"projected":{"sources":[{"downwardAPI":{}},{"serviceAccountToken":{"path":"t"}}]}}"#,
            Ok(Some("serviceaccounts (via projected volumes)")),
        );
        of(
            r#"{"projected":{"sources":[{"downwardAPI":{}}]}}"#,
            Ok(None),
        );
        of(
            r#"{"name":"v","projected":{"sources":[{}]}}"#,
            Err(r#"unknown source for projected volume "v""#),
        );
        of(
            r#"{"name":"v","new":{}}"#,
            Err(r#"unknown volume type for volume  "v""#),
        );
    }
}
