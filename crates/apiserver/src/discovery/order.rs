//! The priority of groups and versions in discovery.

use std::cmp::Ordering;

/// The priority of a version; larger comes first. An `APIService` has the same two numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Priority {
    /// Of its group among groups.
    pub group: i64,
    /// Of the version in its group.
    pub version: i64,
}

/// Kubernetes: the numbers of `APIService` objects (cmd/kube-apiserver/app/aggregator.go and the like). Those of removed
/// versions are of the last release that served them.
const BUILT_IN: &[(&str, i64)] = &[
    ("apiregistration.k8s.io", 20_000),
    ("", 18_000),
    ("apps", 17_800),
    ("events.k8s.io", 17_750),
    ("authentication.k8s.io", 17_700),
    ("authorization.k8s.io", 17_600),
    ("autoscaling", 17_500),
    ("batch", 17_400),
    ("certificates.k8s.io", 17_300),
    ("networking.k8s.io", 17_200),
    ("extensions", 17_150),
    ("policy", 17_100),
    ("rbac.authorization.k8s.io", 17_000),
    ("storage.k8s.io", 16_800),
    ("admissionregistration.k8s.io", 16_700),
    ("apiextensions.k8s.io", 16_700),
    ("scheduling.k8s.io", 16_600),
    ("coordination.k8s.io", 16_500),
    ("node.k8s.io", 16_300),
    ("discovery.k8s.io", 16_200),
    ("resource.k8s.io", 16_200),
    ("flowcontrol.apiserver.k8s.io", 16_100),
];

/// The priority of every CustomResourceDefinition.
const CUSTOM: Priority = Priority {
    group: 1_000,
    version: 100,
};

/// The priority of a version of a group that this server serves itself.
pub fn priority(group: &str, version: &str) -> Priority {
    let Some((_, of_group)) = BUILT_IN.iter().find(|(name, _)| *name == group) else {
        return CUSTOM;
    };
    let of_version = match (group, version) {
        ("", _) => 1,
        ("autoscaling", "v2") => 30,
        ("flowcontrol.apiserver.k8s.io" | "resource.k8s.io", "v1") => 21,
        ("flowcontrol.apiserver.k8s.io", "v1beta3") => 18,
        (
            "admissionregistration.k8s.io"
            | "discovery.k8s.io"
            | "flowcontrol.apiserver.k8s.io"
            | "rbac.authorization.k8s.io"
            | "scheduling.k8s.io",
            "v1beta1",
        ) => 12,
        ("events.k8s.io", "v1beta1") => 5,
        ("apps" | "extensions", "v1beta1") | ("autoscaling", "v2beta2") => 1,
        ("apps", "v1beta2") | ("autoscaling", "v2beta1") | (_, "v1beta1") => 9,
        _ => 15,
    };
    Priority {
        group: *of_group,
        version: of_version,
    }
}

/// Whether the group is built in.
pub fn is_built_in(group: &str) -> bool {
    BUILT_IN.iter().any(|(name, _)| *name == group)
}

/// Orders versions by stability: `foo < v1alpha1 < v1beta1 < v1 < v2`.
pub fn compare_versions(a: &str, b: &str) -> Ordering {
    match (rank(a), rank(b)) {
        (None, None) => b.cmp(a),
        (a, b) => a.cmp(&b),
    }
}

/// Stability, major and minor; `None` if it is no Kubernetes version.
fn rank(version: &str) -> Option<(u8, u64, u64)> {
    let rest = version.strip_prefix('v')?;
    let letters = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    let (major, rest) = rest.split_at(letters);
    let major = number(major)?;
    for (stability, word) in [(0, "alpha"), (1, "beta")] {
        if let Some(minor) = rest.strip_prefix(word) {
            return Some((stability, major, number(minor)?));
        }
    }
    rest.is_empty().then_some((2, major, 0))
}

fn number(digits: &str) -> Option<u64> {
    if digits.starts_with('0') || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}
