//! Revisions of deployments and ReplicaSets, and the other annotations that they share.

use mizzen_sdk::Object;
use mizzen_value::Value;

use super::replica_sets::{Set, max_surge, replicas};

pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";
/// The earlier revisions of a set, before a rollback made it the newest.
pub(super) const HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// The deployment's size when the set was last written.
pub(super) const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
/// The deployment's size with maxSurge when the set was last written.
pub(super) const MAX: &str = "deployment.kubernetes.io/max-replicas";
/// The revision to roll back to.
pub(super) const ROLLBACK: &str = "deprecated.deployment.rollback.to";

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The longest revision history, in characters.
const LONGEST_HISTORY: usize = 2000;

/// Whether an annotation is not copied from the deployment to its sets.
pub(super) fn is_skipped_annotation(name: &str) -> bool {
    [LAST_APPLIED, REVISION, HISTORY, DESIRED, MAX, ROLLBACK].contains(&name)
}

/// The revision of a set; none if it is not a number.
pub(super) fn revision(set: &Object) -> Option<i64> {
    match set.annotation(REVISION) {
        None => Some(0),
        Some(text) => text.parse().ok(),
    }
}

pub(super) fn max_revision(sets: &[Set]) -> i64 {
    sets.iter()
        .filter_map(|set| revision(set))
        .max()
        .unwrap_or_default()
        .max(0)
}

/// The second highest revision.
pub(super) fn last_revision(sets: &[&Set]) -> i64 {
    let mut revisions: Vec<i64> = sets.iter().filter_map(|set| revision(set)).collect();
    revisions.sort_unstable();
    revisions
        .iter()
        .rev()
        .nth(1)
        .copied()
        .unwrap_or_default()
        .max(0)
}

/// A number of replicas in an annotation.
pub(super) fn replicas_annotation(set: &Object, name: &str) -> Option<i64> {
    set.annotation(name)?
        .parse::<i32>()
        .ok()
        .filter(|number| *number >= 0)
        .map(i64::from)
}

/// Copies the deployment's annotations to a set, and sets its revision if `revision` is higher.
pub(super) fn set_new_replica_set_annotations(
    set: &mut Object,
    deployment: &Object,
    revision: i64,
) {
    for (name, value) in deployment["metadata"]["annotations"]
        .entries()
        .filter(|(name, _)| !is_skipped_annotation(name))
    {
        annotations(set).set(name, value.clone());
    }
    let old = set.annotation(REVISION).map(String::from);
    let old_number = match old.as_deref() {
        None | Some("") => 0,
        Some(text) => match text.parse() {
            Ok(number) => number,
            Err(_) => return,
        },
    };
    if old_number >= revision {
        return;
    }
    annotations(set).set(REVISION, revision.to_string());
    if let Some(old) = old {
        let history = history(set.annotation(HISTORY).unwrap_or_default(), &old);
        history
            .into_iter()
            .for_each(|history| annotations(set).set(HISTORY, history));
    }
}

/// The revision history with one more entry; the earliest are dropped if it gets too long.
fn history(known: &str, next: &str) -> Option<String> {
    let mut revisions: Vec<&str> = known.split(',').collect();
    if revisions[0].is_empty() {
        return Some(next.into());
    }
    let mut length = known.len() + next.len() + 1;
    while length > LONGEST_HISTORY && !revisions.is_empty() {
        length -= revisions.remove(0).len() + 1;
    }
    revisions.push(next);
    (length <= LONGEST_HISTORY).then(|| revisions.join(","))
}

/// Sets the annotations with the deployment's size.
pub(super) fn set_replicas_annotations(set: &mut Object, deployment: &Object) {
    let n_wanted = replicas(deployment);
    annotations(set).set(DESIRED, n_wanted.to_string());
    annotations(set).set(MAX, (n_wanted + max_surge(deployment)).to_string());
}

/// The annotations of an object, mutable.
pub(super) fn annotations(object: &mut Object) -> &mut Value {
    object.entry("metadata").entry("annotations")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mizzen_value::{json, value};

    use super::super::replica_sets::tests::{deployment, set};
    use super::*;

    fn annotated(annotations: &str) -> Object {
        let annotations = json::parse(annotations.as_bytes()).expect("JSON");
        Object(value!({"metadata": {"annotations": annotations}}))
    }

    #[track_caller]
    fn check(of_set: &str, of_deployment: &str, revision: i64, expect: &str) {
        let mut set = annotated(of_set);
        set_new_replica_set_annotations(&mut set, &annotated(of_deployment), revision);
        assert_eq!(
            set["metadata"]["annotations"],
            annotated(expect)["metadata"]["annotations"]
        );
    }

    #[test]
    fn a_set_gets_the_annotations_of_its_deployment_and_keeps_its_own() {
        check(
            r#"{"a": "1", "b": "1"}"#,
            r#"{"b": "2", "c": "3", "deployment.kubernetes.io/revision": "9",
                "kubectl.kubernetes.io/last-applied-configuration": "{}"}"#,
            1,
            r#"{"a": "1", "b": "2", "c": "3", "deployment.kubernetes.io/revision": "1"}"#,
        );
    }

    #[test]
    fn a_replica_set_that_is_rolled_back_to_keeps_its_revision_history() {
        check(
            r#"{"deployment.kubernetes.io/revision": "1"}"#,
            "{}",
            3,
            r#"{"deployment.kubernetes.io/revision": "3", "deployment.kubernetes.io/revision-history": "1"}"#,
        );
        check(
            r#"{"deployment.kubernetes.io/revision": "3", "deployment.kubernetes.io/revision-history": "1"}"#,
            "{}",
            5,
            r#"{"deployment.kubernetes.io/revision": "5", "deployment.kubernetes.io/revision-history": "1,3"}"#,
        );
    }

    #[test]
    fn a_revision_never_falls_and_nonsense_is_left_alone() {
        let kept = r#"{"deployment.kubernetes.io/revision": "7"}"#;
        check(kept, "{}", 3, kept);
        let nonsense = r#"{"deployment.kubernetes.io/revision": "x"}"#;
        check(nonsense, "{}", 3, nonsense);
    }

    #[test]
    fn the_revision_history_drops_the_earliest_revisions() {
        let known = vec!["1000"; 400].join(",");
        assert_eq!(known.len(), 1999);
        let longer = history(&known, "2000").expect("there is room");
        assert!(longer.len() <= LONGEST_HISTORY && longer.ends_with("1000,2000"));
        assert_eq!(history("", "1").as_deref(), Some("1"));
    }

    #[test]
    fn revisions_are_in_order() {
        let with = |revision: &str| {
            let mut set = Object::clone(&set("s", 1, 1, 1));
            annotations(&mut set).set(REVISION, revision);
            Arc::new(set)
        };
        let sets = [with("2"), with("x"), with("4"), with("3")];
        assert_eq!(max_revision(&sets), 4);
        assert_eq!(last_revision(&sets.iter().collect::<Vec<_>>()), 3);
        assert_eq!((max_revision(&[]), last_revision(&[])), (0, 0));
    }

    #[test]
    fn a_set_is_annotated_with_the_size_with_and_without_surge() {
        let mut set = annotated("{}");
        set_replicas_annotations(&mut set, &deployment(4, r#""25%""#, "0"));
        assert_eq!(
            (
                replicas_annotation(&set, DESIRED),
                replicas_annotation(&set, MAX)
            ),
            (Some(4), Some(5))
        );
    }
}
