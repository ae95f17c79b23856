//! The wording of violations.

use mizzen_value::Value;

use super::checks::{CheckedPod, Finding};

pub(super) fn finding(reason: &'static str, detail: String) -> Option<Finding> {
    Some(Finding { reason, detail })
}

pub(super) fn quoted<'a>(items: impl IntoIterator<Item = &'a str>) -> String {
    let items: Vec<&str> = items.into_iter().collect();
    format!("\"{}\"", items.join("\", \""))
}

pub(super) fn plural<'a>(count: usize, one: &'a str, many: &'a str) -> &'a str {
    if count == 1 { one } else { many }
}

/// `container "a"`, or `containers "a", "b"`.
pub(super) fn containers(names: &[&str]) -> String {
    format!(
        "{} {}",
        plural(names.len(), "container", "containers"),
        quoted(names.iter().copied())
    )
}

/// The names of violating containers.
pub(super) fn bad<'a>(pod: &CheckedPod<'a>, is_bad: impl Fn(&Value) -> bool) -> Vec<&'a str> {
    pod.containers()
        .filter(|container| is_bad(container))
        .map(|container| container["name"].str())
        .collect()
}

/// What sets a field: the pod, containers, or both.
pub(super) fn setters(pod: bool, names: &[&str]) -> String {
    match (pod, names) {
        (true, []) => "pod".into(),
        (true, names) => format!("pod and {}", containers(names)),
        (false, names) => containers(names),
    }
}

/// The security contexts of a pod and its containers.
pub(super) fn contexts<'a>(pod: &CheckedPod<'a>) -> impl Iterator<Item = &'a Value> {
    std::iter::once(&pod.spec["securityContext"]).chain(
        pod.containers()
            .map(|container| &container["securityContext"]),
    )
}
