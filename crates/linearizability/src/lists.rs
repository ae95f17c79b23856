//! Lists: the state of all keys at exactly one revision.

use crate::revisions::Changes;
use crate::{Action, Freshness, History, List, Outcome, Violation};

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
        if let Freshness::Exact(revision) = list.freshness
            && revision != list.revision
        {
            violations.push(Violation::List {
                revision: list.revision,
                key: String::new(),
                problem: format!("{revision} was requested"),
            });
        }
    }
}

fn problem(history: &History, changes: &Changes<'_>, list: &List, key: &str) -> Option<String> {
    let last = changes.last(key, list.revision);
    match (list.items.get(key), last) {
        (Some(item), _) if item.revision > list.revision => {
            Some(format!("{} is newer than the list", item.revision))
        }
        (Some(item), Some((revision, _))) if revision != item.revision => Some(format!(
            "{} is in the list, {revision} came after it",
            item.revision
        )),
        (None, Some((revision, Some(_)))) if !may_be_deleted(history, list, key) => {
            Some(format!("{revision} is not in the list"))
        }
        _ => None,
    }
}

/// Whether a delete was sent whose revision no watch has shown, by the end of the list.
fn may_be_deleted(history: &History, list: &List, key: &str) -> bool {
    history.operations.iter().any(|operation| {
        operation.key == key
            && operation.called < list.returned
            && matches!(operation.action, Action::Delete { .. })
            && matches!(operation.outcome, Outcome::Deleted | Outcome::Unknown)
    })
}
