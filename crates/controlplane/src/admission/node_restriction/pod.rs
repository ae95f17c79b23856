//! What may a node do with pods? It tells how those are that run on it, lets them go, and shows those that it runs by
//! itself; with these it must not come by anything that it could not read before.

use mizzen_kinds::{references, same};
use mizzen_object::Status;
use mizzen_value::Value;
use mizzen_value::json::quote;

use super::Asked;

/// Volumes that need nothing of the API.
const HARMLESS: [&str; 22] = [
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
/// Volumes that need something, and what.
const NEEDY: [(&str, &str); 7] = [
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
/// The same for what is projected.
const NEEDY_PROJECTED: [(&str, &str); 5] = [
    ("configMap", "configmaps (via projected volumes)"),
    ("secret", "secrets (via projected volumes)"),
    (
        "serviceAccountToken",
        "serviceaccounts (via projected volumes)",
    ),
    ("clusterTrustBundle", "clustertrustbundles"),
    ("podCertificate", "podcertificates"),
];

/// Lets a node show a pod that it runs by itself, or delete one of its own.
pub(super) fn check(asked: &Asked) -> Result<(), Status> {
    let node = quote(asked.node());
    match (asked.new, asked.attributes.old) {
        (Some(pod), None) => check_new(asked, pod, &node),
        (None, Some(pod)) if is_on(asked, pod) => Ok(()),
        (None, _) => asked.refuse(format!(
            "node {node} can only delete pods with spec.nodeName set to itself"
        )),
        _ => {
            let operation = quote(asked.operation());
            let why = format!(
                "unexpected operation {operation}, node {node} can only create and delete mirror pods"
            );
            asked.refuse(why)
        }
    }
}

/// Lets a node tell how one of its pods is.
pub(super) fn check_status(asked: &Asked) -> Result<(), Status> {
    let node = quote(asked.node());
    let (Some(new), Some(old)) = (asked.new, asked.attributes.old) else {
        return asked.refuse_operation();
    };
    if !is_on(asked, old) {
        let why = format!(
            "node {node} can only update pod status for pods with spec.nodeName set to itself"
        );
        return asked.refuse(why);
    }
    let labels = [new, old].map(|pod| &pod["metadata"]["labels"]);
    if labels[0] != labels[1] && !labels.iter().all(|labels| labels.is_empty()) {
        return asked.refuse(format!(
            "node {node} cannot update labels through pod status"
        ));
    }
    let is_same = |field: &str| same(&new["status"][field], &old["status"][field]);
    if !is_same("resourceClaimStatuses") {
        return asked.refuse(format!("node {node} cannot update resource claim statues"));
    }
    if !is_same("extendedResourceClaimStatus") {
        return asked.refuse(format!(
            "node {node} cannot update extended resource claim status"
        ));
    }
    Ok(())
}

/// Lets a node evict one of its pods.
pub(super) fn check_eviction(asked: &Asked) -> Result<(), Status> {
    if !asked.attributes.is_create() {
        return asked.refuse_operation();
    }
    if asked.name().is_empty() {
        return asked.refuse("could not determine pod from request data");
    }
    if is_on(asked, &asked.pod(asked.name())?) {
        return Ok(());
    }
    asked.refuse(format!(
        "node {} can only evict pods with spec.nodeName set to itself",
        asked.node()
    ))
}

fn is_on(asked: &Asked, pod: &Value) -> bool {
    pod["spec"]["nodeName"].str() == asked.node()
}

fn check_new(asked: &Asked, pod: &Value, node: &str) -> Result<(), Status> {
    if !references::is_mirror(pod) {
        let annotation = quote(references::MIRROR);
        let why = format!(
            "pod does not have {annotation} annotation, node {node} can only create mirror pods"
        );
        return asked.refuse(why);
    }
    if !is_on(asked, pod) {
        return asked.refuse(format!(
            "node {node} can only create pods with spec.nodeName set to itself"
        ));
    }
    check_owner(asked, pod["metadata"]["ownerReferences"].list(), node)?;
    match needs(pod) {
        Ok(None) => Ok(()),
        Ok(Some(what)) => asked.refuse(format!(
            "node {node} can not create pods that reference {what}"
        )),
        Err(why) => asked.refuse(format!(
            "error checking mirror pod for API references: {why}"
        )),
    }
}

/// The node owns what it shows, and nobody else does.
fn check_owner(asked: &Asked, owners: &[Value], node: &str) -> Result<(), Status> {
    let refuse = |why: &str| asked.refuse(format!("node {node} {why}"));
    let owner = match owners {
        [] => return refuse("can only create pods with an owner reference set to itself"),
        [owner] => owner,
        _ => return refuse("can only create pods with a single owner reference set to itself"),
    };
    let said = ["apiVersion", "kind", "name"].map(|field| owner[field].str());
    if said != ["v1", "Node", asked.node()] {
        return refuse("can only create pods with an owner reference set to itself");
    }
    if !owner["controller"].bool() {
        return refuse("can only create pods with a controller owner reference set to itself");
    }
    if owner["blockOwnerDeletion"].bool() {
        return refuse("must not set blockOwnerDeletion on an owner reference");
    }
    let itself = asked.find("node", "nodes", "", asked.node())?;
    let (said, uid) = (owner["uid"].str(), itself["metadata"]["uid"].str());
    if said != uid {
        let node = asked.node();
        return asked.refuse(format!(
            "node {node} UID mismatch: expected {said} got {uid}"
        ));
    }
    Ok(())
}

/// What a pod needs of the API, if anything; or why that cannot be told.
fn needs(pod: &Value) -> Result<Option<&'static str>, String> {
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
        if let Some(what) = needs_of_volume(volume)? {
            return Ok(Some(what));
        }
    }
    Ok(None)
}

fn needs_of_volume(volume: &Value) -> Result<Option<&'static str>, String> {
    let is = |source: &str| !volume[source].is_null();
    if HARMLESS.iter().any(|source| is(source)) {
        return Ok(None);
    }
    if let Some((_, what)) = NEEDY.iter().find(|(source, _)| is(source)) {
        return Ok(Some(what));
    }
    let name = quote(volume["name"].str());
    if !is("projected") {
        return Err(format!("unknown volume type for volume  {name}"));
    }
    for source in volume["projected"]["sources"].list() {
        if let Some((_, what)) = NEEDY_PROJECTED
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
        assert_eq!(needs(&pod), expected.map_err(str::to_string), "{spec}");
    }

    #[test]
    fn what_a_pod_needs_is_said_by_the_first_reference() {
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
    fn what_a_volume_needs_depends_on_its_kind() {
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
