//! The group versions that upstream registers in its schemes, served or not.
//!
//! `DeleteOptions` and `WatchEvent` are registered in each of them (metav1.AddToGroupVersion), and
//! documents of more than one group version list them all. Clients look up the kind of a body in
//! these lists.

/// A group and its registered versions.
type Registered = (&'static str, &'static [&'static str]);

/// client-go's scheme, which documents of custom resources use
/// (apiextensions-apiserver/pkg/controller/openapi/builder).
const CLIENT: &[Registered] = &[
    ("", &["v1"]),
    (
        "admissionregistration.k8s.io",
        &["v1", "v1alpha1", "v1beta1"],
    ),
    ("apps", &["v1", "v1beta1", "v1beta2"]),
    ("authentication.k8s.io", &["v1", "v1alpha1", "v1beta1"]),
    ("authorization.k8s.io", &["v1", "v1beta1"]),
    ("autoscaling", &["v1", "v2"]),
    ("batch", &["v1", "v1beta1"]),
    ("certificates.k8s.io", &["v1", "v1alpha1", "v1beta1"]),
    ("coordination.k8s.io", &["v1", "v1alpha2", "v1beta1"]),
    ("discovery.k8s.io", &["v1", "v1beta1"]),
    ("events.k8s.io", &["v1", "v1beta1"]),
    ("extensions", &["v1beta1"]),
    (
        "flowcontrol.apiserver.k8s.io",
        &["v1", "v1beta1", "v1beta2", "v1beta3"],
    ),
    ("internal.apiserver.k8s.io", &["v1alpha1"]),
    ("networking.k8s.io", &["v1", "v1beta1"]),
    ("node.k8s.io", &["v1", "v1alpha1", "v1beta1"]),
    ("policy", &["v1", "v1beta1"]),
    ("rbac.authorization.k8s.io", &["v1", "v1alpha1", "v1beta1"]),
    ("resource.k8s.io", &["v1", "v1alpha3", "v1beta1", "v1beta2"]),
    ("scheduling.k8s.io", &["v1", "v1alpha2", "v1beta1"]),
    ("storage.k8s.io", &["v1", "v1alpha1", "v1beta1"]),
    ("storagemigration.k8s.io", &["v1beta1"]),
];

/// The group versions that only the server's schemes have.
const SERVER: &[Registered] = &[
    ("admission.k8s.io", &["v1", "v1beta1"]),
    ("apiextensions.k8s.io", &["v1", "v1beta1"]),
    ("apiregistration.k8s.io", &["v1", "v1beta1"]),
    ("imagepolicy.k8s.io", &["v1alpha1"]),
];

/// The group versions of client-go's scheme.
pub(super) fn client<'a>() -> impl Iterator<Item = (&'a str, &'a str)> {
    each(CLIENT)
}

/// The group versions of the server's schemes.
pub(super) fn server<'a>() -> impl Iterator<Item = (&'a str, &'a str)> {
    each(CLIENT).chain(each(SERVER))
}

fn each(groups: &[Registered]) -> impl Iterator<Item = (&str, &str)> {
    groups
        .iter()
        .flat_map(|(group, versions)| versions.iter().map(|version| (*group, *version)))
}
