//! Kinds that are registered upstream but not served here: removed versions, alpha versions, and types that are no
//! resources. A client that sends one gets another error than for an unknown kind.

use std::sync::LazyLock;

use mizzen_object::GroupVersionKind;

use mizzen_schemas::LEGACY;

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
    static KINDS: LazyLock<Vec<LegacyKind>> = LazyLock::new(|| {
        LEGACY
            .iter()
            .flat_map(|(_, text)| {
                let (mut group, mut version, mut kinds) = ("", "", Vec::new());
                for line in text.lines() {
                    match line.split_once(' ') {
                        Some(("group", name)) => group = name,
                        Some(("version", name)) => version = name,
                        Some(("kind", kind)) => kinds.push(LegacyKind {
                            group,
                            version,
                            kind,
                        }),
                        _ => {}
                    }
                }
                kinds
            })
            .collect()
    });
    &KINDS
}

/// Group, version and kinds that v1.36 knows besides those of our catalogs.
const UNSERVED: &[(&str, &str, &[&str])] = &[
    // What is in upstream's scheme and is no resource.
    (
        "",
        "v1",
        &[
            "NodeProxyOptions",
            "PodAttachOptions",
            "PodExecOptions",
            "PodLogOptions",
            "PodPortForwardOptions",
            "PodProxyOptions",
            "PodStatusResult",
            "RangeAllocation",
            "SerializedReference",
            "ServiceProxyOptions",
        ],
    ),
    ("admission.k8s.io", "v1", &["AdmissionReview"]),
    ("admission.k8s.io", "v1beta1", &["AdmissionReview"]),
    ("authentication.k8s.io", "v1", &["TokenRequest"]),
    ("autoscaling", "v1", &["Scale"]),
    ("imagepolicy.k8s.io", "v1alpha1", &["ImageReview"]),
    ("policy", "v1", &["Eviction"]),
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
            "ValidatingAdmissionPolicy",
            "ValidatingAdmissionPolicyBinding",
        ],
    ),
    ("internal.apiserver.k8s.io", "v1alpha1", &["StorageVersion"]),
    ("apiextensions.k8s.io", "v1beta1", &["ConversionReview"]),
    ("apps", "v1beta1", &["DeploymentRollback", "Scale"]),
    ("apps", "v1beta2", &["Scale"]),
    ("authentication.k8s.io", "v1alpha1", &["SelfSubjectReview"]),
    ("certificates.k8s.io", "v1alpha1", &["ClusterTrustBundle"]),
    (
        "certificates.k8s.io",
        "v1beta1",
        &["ClusterTrustBundle", "PodCertificateRequest"],
    ),
    ("coordination.k8s.io", "v1alpha2", &["LeaseCandidate"]),
    ("coordination.k8s.io", "v1beta1", &["LeaseCandidate"]),
    ("extensions", "v1beta1", &["DeploymentRollback", "Scale"]),
    (
        "networking.k8s.io",
        "v1beta1",
        &["IPAddress", "ServiceCIDR"],
    ),
    ("node.k8s.io", "v1alpha1", &["RuntimeClass"]),
    ("policy", "v1beta1", &["Eviction"]),
    (
        "rbac.authorization.k8s.io",
        "v1alpha1",
        &["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"],
    ),
    (
        "resource.k8s.io",
        "v1alpha3",
        &["DeviceTaintRule", "ResourcePoolStatusRequest"],
    ),
    (
        "resource.k8s.io",
        "v1beta1",
        &[
            "DeviceClass",
            "ResourceClaim",
            "ResourceClaimTemplate",
            "ResourceSlice",
        ],
    ),
    (
        "resource.k8s.io",
        "v1beta2",
        &[
            "DeviceClass",
            "DeviceTaintRule",
            "ResourceClaim",
            "ResourceClaimTemplate",
            "ResourceSlice",
        ],
    ),
    ("scheduling.k8s.io", "v1alpha2", &["PodGroup", "Workload"]),
    (
        "storage.k8s.io",
        "v1alpha1",
        &[
            "CSIStorageCapacity",
            "VolumeAttachment",
            "VolumeAttributesClass",
        ],
    ),
    (
        "storagemigration.k8s.io",
        "v1beta1",
        &["StorageVersionMigration"],
    ),
];

/// Whether v1.36 knows a kind in a version that it does not serve.
pub fn was_served(gvk: &GroupVersionKind) -> bool {
    let is_legacy = legacy_kinds().iter().any(|known| {
        gvk.group == known.group && gvk.version == known.version && gvk.kind == known.kind
    });
    // Kubernetes: v1.36 has forgotten the betas of autoscaling.
    is_legacy && gvk.group != "autoscaling"
        || UNSERVED.iter().any(|(group, version, kinds)| {
            gvk.group == *group && gvk.version == *version && kinds.contains(&gvk.kind.as_str())
        })
}
