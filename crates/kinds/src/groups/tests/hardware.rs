//! Tests of volumes, devices and nodes.

use expect_test::expect;

use super::{check, check_update};

#[test]
fn a_driver_gets_its_defaults_and_a_warning() {
    let driver =
        r#"{"spec":{"tokenRequests":[{"audience":"a"}],"preventPodSchedulingIfMissing":true}}"#;
    check(
        "storage.k8s.io/v1 CSIDriver",
        driver,
        expect![[r#"
        {"metadata":{},"spec":{"attachRequired":true,"podInfoOnMount":false,"volumeLifecycleModes":["Persistent"],"storageCapacity":false,"fsGroupPolicy":"ReadWriteOnceWithFSType","tokenRequests":[{"audience":"a"}],"requiresRepublish":false,"seLinuxMount":false}}
        spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes
    "#]],
    );
}

#[test]
fn a_storage_class_never_changes() {
    let (kind, old) = (
        "storage.k8s.io/v1 StorageClass",
        r#"{"provisioner":"p","parameters":{"a":"b"}}"#,
    );
    check_update(
        kind,
        r#"{"provisioner":"q","reclaimPolicy":"Retain"}"#,
        old,
        expect![[r#"
        parameters: Invalid value: null: field is immutable
        provisioner: Invalid value: "q": field is immutable
        reclaimPolicy: Invalid value: "Retain": field is immutable
    "#]],
    );
    check(
        kind,
        r#"{"allowedTopologies":[{},{"matchLabelExpressions":[{"key":"beta.kubernetes.io/os"}]}]}"#,
        expect![[r#"
        provisioner: Required value
        allowedTopologies[0].matchLabelExpressions: Duplicate value: ""
        allowedTopologies[0].matchLabelExpressions: Duplicate value: ""
        allowedTopologies[1].matchLabelExpressions[0].values: Required value
    "#]],
    );
}

#[test]
fn an_attachment_names_one_volume() {
    check(
        "storage.k8s.io/v1 VolumeAttachment",
        r#"{"spec":{"attacher":"a","nodeName":"n"}}"#,
        expect![[r#"
        spec.source: Required value: must specify exactly one of inlineVolumeSpec and persistentVolumeName
    "#]],
    );
}

#[test]
fn an_attached_volume_has_the_defaults_of_its_source() {
    check(
        "storage.k8s.io/v1 VolumeAttachment",
        r#"{"spec":{"attacher":"a","nodeName":"n","source":{"inlineVolumeSpec":{"azureDisk":{"diskName":"d","diskURI":"u"}}}}}"#,
        expect![[r#"
            {"metadata":{},"spec":{"attacher":"a","source":{"inlineVolumeSpec":{"azureDisk":{"diskName":"d","diskURI":"u","cachingMode":"ReadWrite","fsType":"ext4","readOnly":false,"kind":"Shared"}}},"nodeName":"n"},"status":{"attached":false}}
        "#]],
    );
    check(
        "storage.k8s.io/v1 VolumeAttachment",
        r#"{"spec":{"attacher":"a","nodeName":"n","source":{"inlineVolumeSpec":{"hostPath":{"path":"/p"},"accessModes":["ReadWriteOnce"],"capacity":{"storage":"1"}}}}}"#,
        expect![[r#"
            {"metadata":{},"spec":{"attacher":"a","source":{"inlineVolumeSpec":{"capacity":{"storage":"1"},"hostPath":{"path":"/p","type":""},"accessModes":["ReadWriteOnce"]}},"nodeName":"n"},"status":{"attached":false}}
        "#]],
    );
    check(
        "v1 PersistentVolume",
        r#"{"spec":{"azureDisk":{"diskName":"d","diskURI":"https://a.blob.core.windows.net/c/d.vhd"},"accessModes":["ReadWriteOnce"],"capacity":{"storage":"1"}}}"#,
        expect![[r#"
            {"metadata":{},"spec":{"capacity":{"storage":"1"},"azureDisk":{"diskName":"d","diskURI":"https://a.blob.core.windows.net/c/d.vhd","cachingMode":"ReadWrite","fsType":"ext4","readOnly":false,"kind":"Shared"},"accessModes":["ReadWriteOnce"],"persistentVolumeReclaimPolicy":"Retain","volumeMode":"Filesystem"},"status":{"phase":"Pending","lastPhaseTransitionTime":"2024-01-01T00:00:00Z"}}
        "#]],
    );
}

#[test]
fn a_request_of_a_claim_has_exactly_one_type() {
    let kind = "resource.k8s.io/v1 ResourceClaim";
    let claim =
        r#"{"spec":{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":"c"}}]}}}"#;
    check(
        kind,
        claim,
        expect![[r#"
        {"metadata":{},"spec":{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":"c","allocationMode":"ExactCount","count":1}}]}},"status":{}}
    "#]],
    );
    let claim = r#"{"spec":{"devices":{"requests":[{"name":"r"},{"name":"r","firstAvailable":[{"name":"A","deviceClassName":""}]}],
        "constraints":[{"requests":["r/z"],"matchAttribute":"x"}]}}}"#;
    check(
        kind,
        claim,
        expect![[r#"
        spec.devices.requests[0]: Required value: exactly one of `exactly` or `firstAvailable` is required
        spec.devices.requests[1].firstAvailable[0].name: Invalid value: "A": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')
        spec.devices.requests[1].firstAvailable[0].deviceClassName: Required value
        spec.devices.requests[1]: Duplicate value: "r"
        spec.devices.constraints[0].requests[0]: Invalid value: "r/z": must be the name of a request in the claim or the name of a request and a subrequest separated by '/'
        spec.devices.constraints[0].matchAttribute: Invalid value: "x": a fully qualified name must be a domain and a name separated by a slash
    "#]],
    );
}

#[test]
fn a_device_is_described_within_limits() {
    let slice = r#"{"spec":{"driver":"D.com","pool":{"name":"p","resourceSliceCount":1},"allNodes":true,"devices":[{"name":"d",
        "attributes":{"v":{"version":"1.02.3"},"none":{}},"allowMultipleAllocations":true,
        "capacity":{"m":{"value":"4","requestPolicy":{"default":"3","validRange":{"min":"1","step":"4"}}}}}]}}"#;
    check(
        "resource.k8s.io/v1 ResourceSlice",
        slice,
        expect![[r#"
        spec.devices[0].attributes[none]: Invalid value: "": exactly one value must be specified
        spec.devices[0].attributes[v].version: Invalid value: "1.02.3": must be a string compatible with semver.org spec 2.0.0
        spec.devices[0].capacity[m].requestPolicy.validRange.step: Invalid value: "4": one step 5 is larger than capacity value: 4
        spec.devices[0].capacity[m].requestPolicy.validRange.step: Invalid value: "3": value is not a multiple of a given step (4) from (1)
    "#]],
    );
}

#[test]
fn overhead_is_spoken_of_as_limits() {
    let class = r#"{"handler":"H","overhead":{"podFixed":{"x":"1"}},"scheduling":{"tolerations":[{"value":"v"}]}}"#;
    check(
        "node.k8s.io/v1 RuntimeClass",
        class,
        expect![[r#"
        handler: Invalid value: "H": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')
        overhead.limits[x]: Invalid value: "x": must be a standard resource type or fully qualified
        overhead.limits[x]: Invalid value: "x": must be a standard resource for containers
        scheduling.tolerations[0].operator: Invalid value: "": operator must be Exists when `key` is empty, which means "match all values and all keys"
    "#]],
    );
}
