//! What does a namespace say of its own end? Five conditions, each good or bad news, with upstream's words.

use std::collections::BTreeMap;

use mizzen_object::condition;
use mizzen_value::{Value, value};

/// How far the deletion of a namespace's content has come.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Progress {
    /// Why not all kinds are known.
    pub discovery: Option<String>,
    /// Why content could not be deleted.
    pub errors: Vec<String>,
    /// How many objects remain of each resource, by resource and group.
    pub remaining: BTreeMap<(String, String), usize>,
    /// How many objects each finalizer holds.
    pub finalizers: BTreeMap<String, usize>,
}

/// A condition that is to be said.
struct News {
    kind: &'static str,
    /// The reason and message, if it is bad.
    bad: Option<(&'static str, String)>,
    good: (&'static str, &'static str),
}

/// Brings conditions up to date; whether that changed anything.
pub(super) fn update(conditions: &mut Vec<Value>, progress: &Progress, now: &str) -> bool {
    let mut changed = false;
    for news in news(progress) {
        changed |= news.set(conditions, now);
    }
    changed
}

fn news(progress: &Progress) -> [News; 5] {
    [
        News {
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
        News {
            kind: "NamespaceDeletionGroupVersionParsingFailure",
            bad: None,
            good: (
                "ParsedGroupVersions",
                "All legacy kube types successfully parsed",
            ),
        },
        News {
            kind: "NamespaceDeletionContentFailure",
            bad: failed(&progress.errors),
            good: (
                "ContentDeleted",
                "All content successfully deleted, may be waiting on finalization",
            ),
        },
        News {
            kind: "NamespaceContentRemaining",
            bad: remaining(&progress.remaining),
            good: ("ContentRemoved", "All content successfully removed"),
        },
        News {
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

impl News {
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

    /// The conditions that are bad news, after conditions that were all good.
    #[track_caller]
    fn check(progress: Progress, expected: &[&str]) {
        let mut conditions = Vec::new();
        assert!(update(&mut conditions, &Progress::default(), THEN));
        assert!(!update(&mut conditions, &Progress::default(), NOW));
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
    fn good_news_is_said_once() {
        check(Progress::default(), &[]);
    }

    #[test]
    fn what_remains_is_counted() {
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
            Progress {
                remaining,
                finalizers,
                ..Progress::default()
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
            Progress {
                errors: vec!["b".into(), "a".into()],
                discovery: Some("none".into()),
                ..Progress::default()
            },
            &[
                "DiscoveryFailed: none",
                "ContentDeletionFailed: Failed to delete all resource types, 2 remaining: a, b",
            ],
        );
    }

    #[test]
    fn other_words_for_the_same_news_keep_its_time() {
        let mut conditions = Vec::new();
        let failure = |why: &str| Progress {
            errors: vec![why.into()],
            ..Progress::default()
        };
        update(&mut conditions, &failure("a"), THEN);
        assert!(update(&mut conditions, &failure("b"), NOW));
        assert_eq!(conditions[2]["lastTransitionTime"].str(), THEN);
    }
}
