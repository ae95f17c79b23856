//! Versions that objects may say they are of although nobody serves them: they were once, or are not yet.
//! A client that sends one is told so, instead of that the kind does not exist.

use std::sync::LazyLock;

use mizzen_object::GroupVersionKind;

use crate::LEGACY;

/// A kind of a removed version, as its data file names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LegacyKind {
    /// Its group.
    pub group: &'static str,
    /// Its version.
    pub version: &'static str,
    /// Its name.
    pub kind: &'static str,
}

/// The kinds of [`legacy_catalog`](crate::legacy_catalog) that [`catalog`](crate::catalog) does not have.
pub fn legacy_kinds() -> &'static [LegacyKind] {
    static KINDS: LazyLock<Vec<LegacyKind>> =
        LazyLock::new(|| LEGACY.iter().flat_map(|(_, text)| kinds_of(text)).collect());
    &KINDS
}

fn kinds_of(text: &'static str) -> Vec<LegacyKind> {
    let (mut group, mut version, mut kinds) = ("", "", Vec::new());
    for line in text.lines() {
        match line.split_once(' ') {
            Some(("group", name)) => group = name,
            Some(("version", name)) => version = name,
            Some(("kind", kind)) => kinds.push(LegacyKind { group, version, kind }),
            _ => {}
        }
    }
    kinds
}

/// Group, version and kinds.
const UNSERVED: &[(&str, &str, &[&str])] = &[
    (
        "admissionregistration.k8s.io",
        "v1alpha1",
        &[
            "MutatingAdmissionPolicy",
            "MutatingAdmissionPolicyBinding",
            "ValidatingAdmissionPolicy",
            "ValidatingAdmissionPolicyBinding",
        ],
    ),
    (
        "admissionregistration.k8s.io",
        "v1beta1",
        &[
            "MutatingAdmissionPolicy",
            "MutatingAdmissionPolicyBinding",
            "MutatingWebhookConfiguration",
            "ValidatingAdmissionPolicy",
            "ValidatingAdmissionPolicyBinding",
            "ValidatingWebhookConfiguration",
        ],
    ),
    ("internal.apiserver.k8s.io", "v1alpha1", &["StorageVersion"]),
    ("apiextensions.k8s.io", "v1beta1", &["ConversionReview", "CustomResourceDefinition"]),
    ("apps", "v1beta1", &["ControllerRevision", "Deployment", "DeploymentRollback", "Scale", "StatefulSet"]),
    (
        "apps",
        "v1beta2",
        &["ControllerRevision", "DaemonSet", "Deployment", "ReplicaSet", "Scale", "StatefulSet"],
    ),
    ("authentication.k8s.io", "v1alpha1", &["SelfSubjectReview"]),
    ("authentication.k8s.io", "v1beta1", &["SelfSubjectReview", "TokenReview"]),
    (
        "authorization.k8s.io",
        "v1beta1",
        &[
            "LocalSubjectAccessReview",
            "SelfSubjectAccessReview",
            "SelfSubjectRulesReview",
            "SubjectAccessReview",
        ],
    ),
    ("batch", "v1beta1", &["CronJob"]),
    ("certificates.k8s.io", "v1alpha1", &["ClusterTrustBundle"]),
    (
        "certificates.k8s.io",
        "v1beta1",
        &["CertificateSigningRequest", "ClusterTrustBundle", "PodCertificateRequest"],
    ),
    ("coordination.k8s.io", "v1alpha2", &["LeaseCandidate"]),
    ("coordination.k8s.io", "v1beta1", &["Lease", "LeaseCandidate"]),
    ("discovery.k8s.io", "v1beta1", &["EndpointSlice"]),
    ("events.k8s.io", "v1beta1", &["Event"]),
    (
        "extensions",
        "v1beta1",
        &["DaemonSet", "Deployment", "DeploymentRollback", "Ingress", "NetworkPolicy", "ReplicaSet", "Scale"],
    ),
    ("flowcontrol.apiserver.k8s.io", "v1beta1", &["FlowSchema", "PriorityLevelConfiguration"]),
    ("flowcontrol.apiserver.k8s.io", "v1beta2", &["FlowSchema", "PriorityLevelConfiguration"]),
    ("flowcontrol.apiserver.k8s.io", "v1beta3", &["FlowSchema", "PriorityLevelConfiguration"]),
    ("networking.k8s.io", "v1beta1", &["IPAddress", "Ingress", "IngressClass", "ServiceCIDR"]),
    ("node.k8s.io", "v1alpha1", &["RuntimeClass"]),
    ("node.k8s.io", "v1beta1", &["RuntimeClass"]),
    ("policy", "v1beta1", &["Eviction", "PodDisruptionBudget"]),
    ("rbac.authorization.k8s.io", "v1alpha1", &["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"]),
    ("rbac.authorization.k8s.io", "v1beta1", &["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"]),
    ("resource.k8s.io", "v1alpha3", &["DeviceTaintRule", "ResourcePoolStatusRequest"]),
    (
        "resource.k8s.io",
        "v1beta1",
        &["DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice"],
    ),
    (
        "resource.k8s.io",
        "v1beta2",
        &["DeviceClass", "DeviceTaintRule", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice"],
    ),
    ("scheduling.k8s.io", "v1alpha2", &["PodGroup", "Workload"]),
    ("scheduling.k8s.io", "v1beta1", &["PriorityClass"]),
    ("storage.k8s.io", "v1alpha1", &["CSIStorageCapacity", "VolumeAttachment", "VolumeAttributesClass"]),
    (
        "storage.k8s.io",
        "v1beta1",
        &[
            "CSIDriver",
            "CSINode",
            "CSIStorageCapacity",
            "StorageClass",
            "VolumeAttachment",
            "VolumeAttributesClass",
        ],
    ),
    ("storagemigration.k8s.io", "v1beta1", &["StorageVersionMigration"]),
];

/// Whether a kind is known in a version that is not served.
pub fn was_served(gvk: &GroupVersionKind) -> bool {
    UNSERVED.iter().any(|(group, version, kinds)| {
        gvk.group == *group && gvk.version == *version && kinds.contains(&gvk.kind.as_str())
    })
}
