//! Lists: the state of all keys at exactly one revision.

use crate::revisions::Changes;
use crate::{Action, Freshness, History, List, Operation, Outcome, Scope, Violation};

/// Checks each list against all that is known of its revision.
pub(crate) fn check(history: &History, changes: &Changes<'_>, violations: &mut Vec<Violation>) {
    let keys = history.keys();
    for list in &history.lists {
        let problems = keys
            .iter()
            .filter_map(|&key| Some((key, problem(history, changes, list, key)?)));
        violations.extend(problems.map(|(key, problem)| Violation::List {
            revision: list.revision,
            key: key.into(),
            problem,
        }));
        let (is_requested, requested) = match list.freshness {
            Freshness::MostRecent => continue,
            Freshness::Exact(revision) => (list.revision == revision, revision),
            Freshness::NotOlderThan(revision) => (list.revision >= revision, revision),
        };
        if !is_requested {
            violations.push(Violation::List {
                revision: list.revision,
                key: String::new(),
                problem: format!("{requested} was requested"),
            });
        }
    }
}

fn problem(history: &History, changes: &Changes<'_>, list: &List, key: &str) -> Option<String> {
    let last = changes.last(key, list.revision);
    match (list.items.get(key), last) {
        (Some(item), _) if !list.scope.has(key, &item.value) => {
            Some(format!("{:?} is not in {:?}", item.value, list.scope))
        }
        (Some(item), _) if item.revision > list.revision => {
            Some(format!("{} is newer than the list", item.revision))
        }
        (Some(item), Some((revision, _))) if revision != item.revision => Some(format!(
            "{} is in the list, {revision} came after it",
            item.revision
        )),
        (None, Some((revision, Some(value)))) if list.scope.has(key, value) => {
            let may_be_gone = may_be_gone(history, list, key, revision);
            (!may_be_gone).then(|| format!("{revision} is not in the list"))
        }
        _ => None,
    }
}

/// Whether `key` may have been removed between `put`, the last known change of it before the list, and the list.
fn may_be_gone(history: &History, list: &List, key: &str, put: u64) -> bool {
    let gap = Gap {
        put,
        after: last_call_at_or_before(history, key, put),
        end: list.revision,
        before: first_return_at_or_after(history, list),
    };
    put != list.revision && gap.may_remove(history, &list.scope, key)
}

/// The revisions from `put` up to `end`, and the times within which a request took one of them.
pub(crate) struct Gap {
    pub(crate) put: u64,
    pub(crate) after: u64,
    pub(crate) end: u64,
    pub(crate) before: u64,
}

impl Gap {
    /// Whether a delete whose revision no watch has shown, or a put without a response that took the object out of the
    /// scope, may lie in it.
    pub(crate) fn may_remove(&self, history: &History, scope: &Scope, key: &str) -> bool {
        let mut operations = history.operations.iter().filter(|it| it.key == key);
        operations.any(|operation| {
            let is_unknown = operation.outcome == Outcome::Unknown;
            let (removes, expected) = match &operation.action {
                Action::Delete { expected } => (
                    is_unknown || operation.outcome == Outcome::Deleted,
                    *expected,
                ),
                // Of one with a response the revision is known.
                Action::Create { value } => (is_unknown && !scope.has(key, value), None),
                Action::Update { value, expected } => {
                    (is_unknown && !scope.has(key, value), *expected)
                }
                Action::Get => (false, None),
            };
            // What it replaced was written by the put, or by a request that had no response.
            let fits = expected.is_none_or(|expected| (self.put..self.end).contains(&expected));
            let is_between = operation.deadline() > self.after && operation.called < self.before;
            removes && fits && is_between
        })
    }
}

/// When the last request was sent that took `revision` or an earlier one, or saw that `revision` was the last of `key`. What
/// had ended by then has an earlier revision.
pub(crate) fn last_call_at_or_before(history: &History, key: &str, revision: u64) -> u64 {
    let is_so = |operation: &&Operation| match &operation.outcome {
        Outcome::Stored { revision: own } => *own <= revision,
        Outcome::Found(version) => operation.key == key && version.revision == revision,
        _ => false,
    };
    let operations = history.operations.iter().filter(is_so);
    let shows = |list: &&List| {
        let item = list.items.get(key);
        list.freshness == Freshness::MostRecent && item.is_some_and(|it| it.revision == revision)
    };
    let lists = history.lists.iter().filter(shows);
    let calls = operations.map(|operation| operation.called);
    let calls = calls.chain(lists.map(|list| list.called));
    calls.max().unwrap_or_default()
}

/// When a client first saw the revision of `list` or a later one. What was sent after that has a later revision.
fn first_return_at_or_after(history: &History, list: &List) -> u64 {
    let seen = history.operations.iter().filter_map(|operation| {
        let revision = match &operation.outcome {
            Outcome::Stored { revision } => *revision,
            Outcome::Found(version) => version.revision,
            _ => return None,
        };
        (revision >= list.revision).then_some(operation.returned)
    });
    let others = history.lists.iter();
    let others = others.filter(|other| other.revision >= list.revision);
    let returns = seen.chain(others.map(|other| other.returned));
    returns.min().unwrap_or(list.returned)
}
