//! The first object of the API that a pod refers to. Static pods and their mirror pods may have none.
//!
//! Kubernetes: pkg/api/pod/util.go, `HasAPIObjectReference`.

use mizzen_value::Value;
use mizzen_value::json::quote;

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

/// The resource that a pod references, if any. Fails for an unknown volume.
pub fn api_reference(pod: &Value) -> Result<Option<&'static str>, String> {
    let spec = &pod["spec"];
    let direct = [
        (!spec["serviceAccountName"].is_empty(), "serviceaccounts"),
        (super::secrets(pod).next().is_some(), "secrets"),
        (super::config_maps(pod).next().is_some(), "configmaps"),
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
