//! The identity of a StatefulSet's pod: its name and labels.

use std::ops::Range;

use mizzen_sdk::Object;

/// The label with the pod's name, by which a service may select it.
const NAME_LABEL: &str = "statefulset.kubernetes.io/pod-name";
/// The label with the ordinal.
const INDEX_LABEL: &str = "apps.kubernetes.io/pod-index";

/// The set and the ordinal in a pod's name: `web-3` is ordinal 3 of `web`. An ordinal that is too
/// large is none.
fn parse(pod: &str) -> Option<(&str, Option<i64>)> {
    let (set, ordinal) = pod.rsplit_once('-')?;
    let is_number = !ordinal.is_empty() && ordinal.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| (set, ordinal.parse::<i32>().ok().map(i64::from)))
}

pub(super) fn ordinal(pod: &Object) -> Option<i64> {
    parse(pod.name())?.1
}

/// The name of the set in a pod's name.
pub(super) fn set_name(pod: &str) -> Option<&str> {
    parse(pod).map(|(set, _)| set)
}

/// Whether the pod's name belongs to the set.
pub(super) fn is_member(set: &Object, pod: &Object) -> bool {
    set_name(pod.name()) == Some(set.name())
}

/// The ordinals of the set's pods.
pub(super) fn ordinals(set: &Object) -> Range<i64> {
    let start = set.at("spec.ordinals.start").int();
    start..start + set["spec"]["replicas"].as_int().unwrap_or(1)
}

/// Whether the pod's ordinal is in the set's range.
pub(super) fn is_in_ordinal_range(set: &Object, pod: &Object) -> bool {
    ordinal(pod).is_some_and(|ordinal| ordinals(set).contains(&ordinal))
}

pub(super) fn pod_name(set: &Object, ordinal: i64) -> String {
    format!("{}-{ordinal}", set.name())
}

/// Whether a pod has the name and the label of its ordinal: `web-03` is not `web-3`.
pub(super) fn identity_matches(set: &Object, pod: &Object) -> bool {
    let right = ordinal(pod).is_some_and(|ordinal| pod.name() == pod_name(set, ordinal));
    right && pod.namespace() == set.namespace() && pod.label(NAME_LABEL) == Some(pod.name())
}

/// Sets the name and labels of an ordinal.
pub(super) fn update_identity(set: &Object, pod: &mut Object, ordinal: i64) {
    let name = pod_name(set, ordinal);
    let metadata = pod.entry("metadata");
    metadata.set("name", &name);
    metadata.set("namespace", set.namespace());
    let labels = metadata.entry("labels");
    labels.set(NAME_LABEL, name);
    labels.set(INDEX_LABEL, ordinal.to_string());
}

#[cfg(test)]
mod tests {
    use mizzen_value::value;

    use super::*;

    fn pod(name: &str) -> Object {
        Object(
            value!({"metadata": {"name": name, "namespace": "n", "labels": {"statefulset.kubernetes.io/pod-name": name}}}),
        )
    }

    fn set(name: &str) -> Object {
        Object(
            value!({"metadata": {"name": name, "namespace": "n"}, "spec": {"replicas": 2, "ordinals": {"start": 5}}}),
        )
    }

    #[track_caller]
    fn check(name: &str, expect: Option<(&str, Option<i64>)>) {
        assert_eq!(parse(name), expect);
    }

    #[test]
    fn the_last_part_of_a_name_is_the_ordinal() {
        check("web-3", Some(("web", Some(3))));
        check("my-web-10", Some(("my-web", Some(10))));
    }

    #[test]
    fn a_name_without_a_number_at_its_end_is_no_member() {
        check("web", None);
        check("web-", None);
        check("web-a3", None);
        check("web--3", Some(("web-", Some(3))));
    }

    #[test]
    fn a_number_that_is_too_large_is_no_ordinal() {
        check("web-99999999999", Some(("web", None)));
    }

    #[test]
    fn a_set_wants_the_pods_from_its_start_on() {
        let wanted = |name: &str| is_in_ordinal_range(&set("web"), &pod(name));
        assert_eq!(
            ["web-4", "web-5", "web-6", "web-7"].map(wanted),
            [false, true, true, false]
        );
    }

    #[test]
    fn members_are_identified_by_their_names() {
        assert!(is_member(&set("web"), &pod("web-9")) && !is_member(&set("web"), &pod("my-web-9")));
    }

    #[test]
    fn a_pod_with_a_padded_number_or_another_label_is_not_right() {
        assert!(
            identity_matches(&set("web"), &pod("web-3"))
                && !identity_matches(&set("web"), &pod("web-03"))
        );
        let mut other = pod("web-3");
        other.entry("metadata").remove("labels");
        assert!(!identity_matches(&set("web"), &other));
        update_identity(&set("web"), &mut other, 3);
        assert!(identity_matches(&set("web"), &other));
        assert_eq!(other.label(INDEX_LABEL), Some("3"));
    }
}
