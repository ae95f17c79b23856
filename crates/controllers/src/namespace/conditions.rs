//! The five conditions of a terminating namespace, with upstream's reasons and messages.

use std::collections::BTreeMap;

use mizzen_object::condition;
use mizzen_value::{Value, value};

/// The progress of the deletion of a namespace's content.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct DeletionProgress {
    /// The discovery failure.
    pub discovery: Option<String>,
    /// The deletion failures.
    pub errors: Vec<String>,
    /// The number of remaining objects by resource and group.
    pub remaining: BTreeMap<(String, String), usize>,
    /// The number of remaining objects by finalizer.
    pub finalizers: BTreeMap<String, usize>,
}

/// Type, reason and message if it is True, reason and message if it is False.
type WantedCondition = (
    &'static str,
    Option<(&'static str, String)>,
    (&'static str, &'static str),
);

/// Updates the conditions; whether anything changed.
pub(super) fn update(conditions: &mut Vec<Value>, progress: &DeletionProgress, now: &str) -> bool {
    let mut changed = false;
    for (kind, bad, good) in wanted_conditions(progress) {
        let status = if bad.is_some() { "True" } else { "False" };
        let (reason, message) = bad.unwrap_or((good.0, good.1.into()));
        let new = value!({
            "type": kind, "status": status, "lastTransitionTime": now, "reason": reason, "message": message,
        });
        changed |= condition::set(conditions, new);
    }
    changed
}

fn wanted_conditions(progress: &DeletionProgress) -> [WantedCondition; 5] {
    let n_errors = progress.errors.len();
    let failed = format!("Failed to delete all resource types, {n_errors} remaining");
    let resources = progress.remaining.iter().map(|((resource, group), count)| {
        format!("{resource}.{group} has {count} resource instances")
    });
    let finalizers = progress.finalizers.iter();
    let finalizers =
        finalizers.map(|(name, count)| format!("{name} in {count} resource instances"));
    let held = "Some content in the namespace has finalizers remaining";
    [
        (
            "NamespaceDeletionDiscoveryFailure",
            progress
                .discovery
                .clone()
                .map(|why| ("DiscoveryFailed", why)),
            (
                "ResourcesDiscovered",
                "All resources successfully discovered",
            ),
        ),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            None,
            (
                "ParsedGroupVersions",
                "All legacy kube types successfully parsed",
            ),
        ),
        (
            "NamespaceDeletionContentFailure",
            list_sorted(
                "ContentDeletionFailed",
                &failed,
                progress.errors.iter().cloned(),
            ),
            (
                "ContentDeleted",
                "All content successfully deleted, may be waiting on finalization",
            ),
        ),
        (
            "NamespaceContentRemaining",
            list_sorted(
                "SomeResourcesRemain",
                "Some resources are remaining",
                resources,
            ),
            ("ContentRemoved", "All content successfully removed"),
        ),
        (
            "NamespaceFinalizersRemaining",
            list_sorted("SomeFinalizersRemain", held, finalizers),
            (
                "ContentHasNoFinalizers",
                "All content-preserving finalizers finished",
            ),
        ),
    ]
}

/// The reason with a message that lists the items; none if there are none.
fn list_sorted(
    reason: &'static str,
    prefix: &str,
    items: impl Iterator<Item = String>,
) -> Option<(&'static str, String)> {
    let mut items: Vec<String> = items.collect();
    items.sort();
    (!items.is_empty()).then(|| (reason, format!("{prefix}: {}", items.join(", "))))
}

#[cfg(test)]
mod tests {
    use super::*;

    const THEN: &str = "2026-01-01T00:00:00Z";
    const NOW: &str = "2026-01-01T00:01:00Z";

    /// The conditions that are True, after conditions that were all False.
    #[track_caller]
    fn check(progress: DeletionProgress, expected: &[&str]) {
        let mut conditions = Vec::new();
        assert!(update(&mut conditions, &DeletionProgress::default(), THEN));
        assert!(!update(&mut conditions, &DeletionProgress::default(), NOW));
        assert_eq!(
            update(&mut conditions, &progress, NOW),
            !expected.is_empty()
        );
        let bad: Vec<String> = conditions
            .iter()
            .filter(|condition| condition["status"].str() == "True")
            .map(|condition| {
                format!(
                    "{}: {}",
                    condition["reason"].str(),
                    condition["message"].str()
                )
            })
            .collect();
        assert_eq!(bad, expected);
        for condition in &conditions {
            let since = if condition["status"].str() == "True" {
                NOW
            } else {
                THEN
            };
            assert_eq!(condition["lastTransitionTime"].str(), since);
        }
    }

    #[test]
    fn false_conditions_are_written_once() {
        check(DeletionProgress::default(), &[]);
    }

    #[test]
    fn remaining_content_is_counted() {
        let counts = |list: &[(&str, usize)]| {
            list.iter()
                .map(|(name, count)| (name.to_string(), *count))
                .collect()
        };
        let remaining = BTreeMap::from([
            (("pods".to_string(), String::new()), 1),
            (("foos".to_string(), "example.com".to_string()), 2),
        ]);
        let finalizers = counts(&[("b.io/x", 1), ("a.io/x", 2)]);
        check(
            DeletionProgress {
                remaining,
                finalizers,
                ..DeletionProgress::default()
            },
            &[
                "SomeResourcesRemain: Some resources are remaining: foos.example.com has 2 resource instances, pods. has 1 resource instances",
                "SomeFinalizersRemain: Some content in the namespace has finalizers remaining: a.io/x in 2 resource instances, b.io/x in 1 resource instances",
            ],
        );
    }

    #[test]
    fn failures_are_listed_in_order() {
        check(
            DeletionProgress {
                errors: vec!["b".into(), "a".into()],
                discovery: Some("none".into()),
                ..DeletionProgress::default()
            },
            &[
                "DiscoveryFailed: none",
                "ContentDeletionFailed: Failed to delete all resource types, 2 remaining: a, b",
            ],
        );
    }

    #[test]
    fn a_new_message_keeps_the_transition_time() {
        let mut conditions = Vec::new();
        let failure = |why: &str| DeletionProgress {
            errors: vec![why.into()],
            ..DeletionProgress::default()
        };
        update(&mut conditions, &failure("a"), THEN);
        assert!(update(&mut conditions, &failure("b"), NOW));
        assert_eq!(conditions[2]["lastTransitionTime"].str(), THEN);
    }
}
