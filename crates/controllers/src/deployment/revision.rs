//! Which revision is a template, and what else do a deployment and its sets note of each other? All of it in annotations.

use mizzen_sdk::Object;
use mizzen_value::Value;

use super::sets::{Set, max_surge, replicas};

/// The number of a rollout.
pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";
/// The numbers that a set had before it was rolled back to.
pub(super) const HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// The size of the deployment, as a set was last told.
pub(super) const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
/// The size of the deployment with its surge, as a set was last told.
pub(super) const MAX: &str = "deployment.kubernetes.io/max-replicas";
/// The revision to which somebody wants to go back.
pub(super) const ROLLBACK: &str = "deprecated.deployment.rollback.to";

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// How long the list of earlier revisions may become, in characters.
const LONGEST_HISTORY: usize = 2000;

/// Whether an annotation is nobody else's business: all others a deployment passes on to its new set.
pub(super) fn is_private(name: &str) -> bool {
    [LAST_APPLIED, REVISION, HISTORY, DESIRED, MAX, ROLLBACK].contains(&name)
}

/// The revision of a set; none for what is no number.
pub(super) fn of(set: &Object) -> Option<i64> {
    match set.annotation(REVISION) {
        None => Some(0),
        Some(text) => text.parse().ok(),
    }
}

/// The highest revision.
pub(super) fn highest(sets: &[Set]) -> i64 {
    sets.iter()
        .filter_map(|set| of(set))
        .max()
        .unwrap_or_default()
        .max(0)
}

/// The revision before the highest.
pub(super) fn last(sets: &[&Set]) -> i64 {
    let mut revisions: Vec<i64> = sets.iter().filter_map(|set| of(set)).collect();
    revisions.sort_unstable();
    revisions
        .iter()
        .rev()
        .nth(1)
        .copied()
        .unwrap_or_default()
        .max(0)
}

/// A number of pods that an annotation notes.
pub(super) fn number(set: &Object, name: &str) -> Option<i64> {
    set.annotation(name)?
        .parse::<i32>()
        .ok()
        .filter(|number| *number >= 0)
        .map(i64::from)
}

/// Lets a set know the deployment's annotations, and its revision if that is higher than the one it has.
pub(super) fn tell(set: &mut Object, deployment: &Object, revision: i64) {
    for (name, value) in deployment["metadata"]["annotations"]
        .entries()
        .filter(|(name, _)| !is_private(name))
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

/// The list of earlier revisions with one more; the earliest make room for it.
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

/// Lets a set know the deployment's size.
pub(super) fn tell_size(set: &mut Object, deployment: &Object) {
    let n_wanted = replicas(deployment);
    annotations(set).set(DESIRED, n_wanted.to_string());
    annotations(set).set(MAX, (n_wanted + max_surge(deployment)).to_string());
}

/// The annotations of an object, to be changed.
pub(super) fn annotations(object: &mut Object) -> &mut Value {
    object.entry("metadata").entry("annotations")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mizzen_value::{json, value};

    use super::super::sets::tests::{deployment, set};
    use super::*;

    fn annotated(annotations: &str) -> Object {
        let annotations = json::parse(annotations.as_bytes()).expect("JSON");
        Object(value!({"metadata": {"annotations": annotations}}))
    }

    #[track_caller]
    fn check(of_set: &str, of_deployment: &str, revision: i64, expect: &str) {
        let mut set = annotated(of_set);
        tell(&mut set, &annotated(of_deployment), revision);
        assert_eq!(
            set["metadata"]["annotations"],
            annotated(expect)["metadata"]["annotations"]
        );
    }

    #[test]
    fn a_set_gets_the_annotations_of_its_deployment_and_keeps_others() {
        check(
            r#"{"a": "1", "b": "1"}"#,
            r#"{"b": "2", "c": "3", "deployment.kubernetes.io/revision": "9",
                "kubectl.kubernetes.io/last-applied-configuration": "{}"}"#,
            1,
            r#"{"a": "1", "b": "2", "c": "3", "deployment.kubernetes.io/revision": "1"}"#,
        );
    }

    #[test]
    fn a_set_that_is_rolled_back_to_remembers_its_revisions() {
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
    fn the_history_forgets_the_earliest_revisions() {
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
        assert_eq!(highest(&sets), 4);
        assert_eq!(last(&sets.iter().collect::<Vec<_>>()), 3);
        assert_eq!((highest(&[]), last(&[])), (0, 0));
    }

    #[test]
    fn a_set_is_told_the_size_with_and_without_surge() {
        let mut set = annotated("{}");
        tell_size(&mut set, &deployment(4, r#""25%""#, "0"));
        assert_eq!(
            (number(&set, DESIRED), number(&set, MAX)),
            (Some(4), Some(5))
        );
    }
}
