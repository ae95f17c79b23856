//! Reads that may come from a cache: the state of a key at the requested revision, or at a later one.

use crate::lists::{Gap, last_call_at_or_before};
use crate::revisions::Changes;
use crate::{History, Read, Scope, Violation};

/// Checks each read against all that is known of its key.
pub(crate) fn check(history: &History, changes: &Changes<'_>, violations: &mut Vec<Violation>) {
    for read in &history.reads {
        if let Some(problem) = problem(history, changes, read) {
            violations.push(Violation::Read {
                key: read.key.clone(),
                revision: read.not_older_than,
                problem,
            });
        }
    }
}

fn problem(history: &History, changes: &Changes<'_>, read: &Read) -> Option<String> {
    let last = changes.last(&read.key, read.not_older_than);
    match (&read.found, last) {
        (Some(found), Some((revision, _))) if found.revision < revision => Some(format!(
            "{} was found, {revision} came after it",
            found.revision
        )),
        (Some(found), _) => {
            let mut operations = history.operations.iter();
            let is_sent = operations.any(|operation| {
                operation.written() == Some(&found.value) && operation.called < read.returned
            });
            (!is_sent).then(|| format!("{} was found before it was written", found.revision))
        }
        (None, Some((put, Some(_)))) => {
            let gap = Gap {
                put,
                after: last_call_at_or_before(history, &read.key, put),
                end: u64::MAX,
                before: read.returned,
            };
            let scope = Scope::Key(read.key.clone());
            let may_be_gone = gap.may_remove(history, &scope, &read.key);
            (!may_be_gone).then(|| format!("{put} was not found"))
        }
        (None, _) => None,
    }
}
