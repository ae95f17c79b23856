//! Objects that every cluster makes itself: they are left out, unless all objects are selected.
//!
//! A copy of such an object conflicts with the one of the target, or describes the machines of the source. What a user may have
//! written is never left out: Endpoints of a Service without selector, for instance, are kept.

use mizzen_value::Value;

use super::group_of;

/// Namespaces that the API server creates.
const SYSTEM_NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// ConfigMaps of kube-system that the API server writes.
const SYSTEM_CONFIG_MAPS: [&str; 2] = [
    "extension-apiserver-authentication",
    "kube-apiserver-legacy-service-account-token-tracking",
];

/// Service accounts of kube-system as which controllers act, and whose names do not end with `-controller`. Kubernetes:
/// cmd/kube-controller-manager/app.
const CONTROLLER_ACCOUNTS: [&str; 12] = [
    "bootstrap-signer",
    "generic-garbage-collector",
    "horizontal-pod-autoscaler",
    "kube-apiserver-serving-clustertrustbundle-publisher",
    "legacy-service-account-token-cleaner",
    "metadata-informers",
    "persistent-volume-binder",
    "pod-garbage-collector",
    "podcertificaterequestcleaner",
    "root-ca-cert-publisher",
    "storage-version-garbage-collector",
    "token-cleaner",
];

/// Kinds whose objects controllers make for a controlling owner, which makes them again.
const REMADE: [(&str, &str); 3] = [
    ("", "Pod"),
    ("apps", "ReplicaSet"),
    ("apps", "ControllerRevision"),
];

/// Groups of the built-in controllers.
const CONTROLLER_GROUPS: [&str; 3] = ["", "apps", "batch"];

/// Whether every cluster makes this object itself.
pub(super) fn is_generated(object: &Value) -> bool {
    let (group, kind) = (group_of(object["apiVersion"].str()), object["kind"].str());
    let metadata = &object["metadata"];
    let (namespace, name) = (metadata["namespace"].str(), metadata["name"].str());
    let label = |key: &str| metadata["labels"][key].str();
    let annotation = |key: &str| metadata["annotations"][key].str();
    if REMADE.contains(&(group, kind)) && has_built_in_controller(metadata) {
        return true;
    }
    match (group, kind) {
        ("" | "events.k8s.io", "Event") => true,
        // Kubelets, drivers and holders of leases register themselves.
        ("", "Node")
        | ("coordination.k8s.io", "Lease" | "LeaseCandidate")
        | ("storage.k8s.io", "CSINode" | "VolumeAttachment" | "CSIStorageCapacity")
        | ("resource.k8s.io", "ResourceSlice")
        | ("internal.apiserver.k8s.io", "StorageVersion") => true,
        ("", "Namespace") => SYSTEM_NAMESPACES.contains(&name),
        ("", "Service") => (namespace, name) == ("default", "kubernetes"),
        ("", "Endpoints") => {
            (namespace, name) == ("default", "kubernetes")
                || label("endpoints.kubernetes.io/managed-by") == "endpoint-controller"
                || !annotation("endpoints.kubernetes.io/last-change-trigger-time").is_empty()
        }
        ("discovery.k8s.io", "EndpointSlice") => {
            let manager = label("endpointslice.kubernetes.io/managed-by");
            (namespace, label("kubernetes.io/service-name")) == ("default", "kubernetes")
                || manager == "endpointslice-controller.k8s.io"
                || manager == "endpointslicemirroring-controller.k8s.io"
        }
        ("", "ServiceAccount") => {
            name == "default" || namespace == "kube-system" && is_controller_account(name)
        }
        ("", "ConfigMap") => {
            name == "kube-root-ca.crt"
                || namespace == "kube-system" && SYSTEM_CONFIG_MAPS.contains(&name)
        }
        // A pod that has ended would run again; one of a file on a node belongs to that node.
        ("", "Pod") => {
            matches!(object["status"]["phase"].str(), "Succeeded" | "Failed")
                || !annotation("kubernetes.io/config.mirror").is_empty()
        }
        ("rbac.authorization.k8s.io", _) => label("kubernetes.io/bootstrapping") == "rbac-defaults",
        ("flowcontrol.apiserver.k8s.io", _) => {
            !annotation("apf.kubernetes.io/autoupdate-spec").is_empty()
        }
        ("scheduling.k8s.io", "PriorityClass") => name.starts_with("system-"),
        ("apiregistration.k8s.io", "APIService") => {
            !label("kube-aggregator.kubernetes.io/automanaged").is_empty()
        }
        ("networking.k8s.io", "IPAddress") => true,
        ("networking.k8s.io", "ServiceCIDR") => name == "kubernetes",
        _ => false,
    }
}

fn is_controller_account(name: &str) -> bool {
    name.ends_with("-controller") || CONTROLLER_ACCOUNTS.contains(&name)
}

fn has_built_in_controller(metadata: &Value) -> bool {
    metadata["ownerReferences"].items().any(|owner| {
        owner["controller"].bool()
            && CONTROLLER_GROUPS.contains(&group_of(owner["apiVersion"].str()))
    })
}

#[cfg(test)]
mod tests {
    use mizzen_value::json;

    use super::*;

    #[track_caller]
    fn check(object: &str, expected: bool) {
        assert_eq!(
            is_generated(&json::parse(object.as_bytes()).unwrap()),
            expected
        );
    }

    #[test]
    fn endpoints_of_a_service_without_selector_are_kept() {
        check(
            r#"{"apiVersion":"v1","kind":"Endpoints","metadata":{"namespace":"shop","name":"db"}}"#,
            false,
        );
        check(
            r#"{"apiVersion":"v1","kind":"Endpoints","metadata":{"namespace":"shop","name":"web",
                "labels":{"endpoints.kubernetes.io/managed-by":"endpoint-controller"}}}"#,
            true,
        );
        check(
            r#"{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"namespace":"shop","name":"db-1",
                "labels":{"kubernetes.io/service-name":"db"}}}"#,
            false,
        );
    }

    #[test]
    fn pods_of_a_built_in_controller_are_left_out_and_those_of_operators_kept() {
        let pod = |group: &str| {
            format!(
                r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"a","ownerReferences":[
                    {{"apiVersion":"{group}/v1","kind":"X","name":"x","controller":true}}]}}}}"#
            )
        };
        check(&pod("apps"), true);
        check(&pod("shop.example.com"), false);
    }

    #[test]
    fn roles_of_users_are_kept() {
        let role = r#"{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"a"}}"#;
        check(role, false);
        let role = r#"{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"view",
            "labels":{"kubernetes.io/bootstrapping":"rbac-defaults"}}}"#;
        check(role, true);
    }
}
