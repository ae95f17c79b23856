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

/// The wanted state of a condition.
struct ConditionUpdate {
    kind: &'static str,
    /// Reason and message if it is True.
    bad: Option<(&'static str, String)>,
    good: (&'static str, &'static str),
}

/// Updates the conditions; whether anything changed.
pub(super) fn update(conditions: &mut Vec<Value>, progress: &DeletionProgress, now: &str) -> bool {
    let mut changed = false;
    for news in condition_updates(progress) {
        changed |= news.set(conditions, now);
    }
    changed
}

fn condition_updates(progress: &DeletionProgress) -> [ConditionUpdate; 5] {
    [
        ConditionUpdate {
            kind: "NamespaceDeletionDiscoveryFailure",
            bad: progress
                .discovery
                .clone()
                .map(|why| ("DiscoveryFailed", why)),
            good: (
                "ResourcesDiscovered",
                "All resources successfully discovered",
            ),
        },
        ConditionUpdate {
            kind: "NamespaceDeletionGroupVersionParsingFailure",
            bad: None,
            good: (
                "ParsedGroupVersions",
                "All legacy kube types successfully parsed",
            ),
        },
        ConditionUpdate {
            kind: "NamespaceDeletionContentFailure",
            bad: failed(&progress.errors),
            good: (
                "ContentDeleted",
                "All content successfully deleted, may be waiting on finalization",
            ),
        },
        ConditionUpdate {
            kind: "NamespaceContentRemaining",
            bad: remaining(&progress.remaining),
            good: ("ContentRemoved", "All content successfully removed"),
        },
        ConditionUpdate {
            kind: "NamespaceFinalizersRemaining",
            bad: held(&progress.finalizers),
            good: (
                "ContentHasNoFinalizers",
                "All content-preserving finalizers finished",
            ),
        },
    ]
}

fn failed(errors: &[String]) -> Option<(&'static str, String)> {
    let mut sorted = errors.to_vec();
    sorted.sort();
    let message = format!(
        "Failed to delete all resource types, {} remaining: {}",
        errors.len(),
        sorted.join(", ")
    );
    (!errors.is_empty()).then_some(("ContentDeletionFailed", message))
}

fn remaining(remaining: &BTreeMap<(String, String), usize>) -> Option<(&'static str, String)> {
    let mut list: Vec<String> = remaining
        .iter()
        .map(|((resource, group), count)| {
            format!("{resource}.{group} has {count} resource instances")
        })
        .collect();
    list.sort();
    let message = format!("Some resources are remaining: {}", list.join(", "));
    (!list.is_empty()).then_some(("SomeResourcesRemain", message))
}

fn held(finalizers: &BTreeMap<String, usize>) -> Option<(&'static str, String)> {
    let mut list: Vec<String> = finalizers
        .iter()
        .map(|(finalizer, count)| format!("{finalizer} in {count} resource instances"))
        .collect();
    list.sort();
    let message = format!(
        "Some content in the namespace has finalizers remaining: {}",
        list.join(", ")
    );
    (!list.is_empty()).then_some(("SomeFinalizersRemain", message))
}

impl ConditionUpdate {
    fn set(self, conditions: &mut Vec<Value>, now: &str) -> bool {
        let status = if self.bad.is_some() { "True" } else { "False" };
        let (reason, message) = self.bad.unwrap_or((self.good.0, self.good.1.into()));
        let new = value!({
            "type": (self.kind), "status": status, "lastTransitionTime": now, "reason": reason, "message": message,
        });
        condition::set(conditions, new)
    }
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
