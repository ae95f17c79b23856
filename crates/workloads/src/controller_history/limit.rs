//! Which old revisions are deleted.

use std::collections::HashSet;
use std::sync::Arc;

use mizzen_sdk::Object;

/// The revisions beyond `limit`, oldest first, of those that no pod uses. `revisions` is sorted.
pub(crate) fn unused_over_limit(
    revisions: &[Arc<Object>],
    live: &HashSet<&str>,
    limit: i64,
) -> Vec<Arc<Object>> {
    let unused: Vec<&Arc<Object>> = revisions
        .iter()
        .filter(|revision| !live.contains(revision.name()))
        .collect();
    let n_gone = usize::try_from(unused.len() as i64 - limit).unwrap_or_default();
    let n_gone = if limit < 0 { 0 } else { n_gone };
    unused.into_iter().take(n_gone).cloned().collect()
}

/// The revisions beyond `limit`, oldest first, except those whose `label` is in `live`. Kubernetes:
/// a DaemonSet's limit counts revisions that pods use, a StatefulSet's does not
/// (pkg/controller/daemon/update.go, cleanupHistory).
pub(crate) fn over_limit(
    revisions: &[Arc<Object>],
    label: &str,
    live: &HashSet<&str>,
    limit: i64,
) -> Vec<Arc<Object>> {
    let n_gone = usize::try_from(revisions.len() as i64 - limit).unwrap_or_default();
    let unused = revisions
        .iter()
        .filter(|revision| !live.contains(revision.label(label).unwrap_or_default()));
    unused.take(n_gone).cloned().collect()
}

#[cfg(test)]
mod tests {
    use mizzen_value::value;

    use super::*;

    fn revisions(names: &str) -> Vec<Arc<Object>> {
        let revision = |name| {
            Arc::new(Object(
                value!({"metadata": {"name": name, "labels": {"hash": name}}}),
            ))
        };
        names.split_whitespace().map(revision).collect()
    }

    fn names(revisions: Vec<Arc<Object>>) -> String {
        revisions
            .iter()
            .map(|revision| revision.name())
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[track_caller]
    fn check_unused(all: &str, live: &str, limit: i64, expect: &str) {
        assert_eq!(
            names(unused_over_limit(
                &revisions(all),
                &live.split(' ').collect(),
                limit
            )),
            expect
        );
    }

    #[track_caller]
    fn check(all: &str, live: &str, limit: i64, expect: &str) {
        assert_eq!(
            names(over_limit(
                &revisions(all),
                "hash",
                &live.split(' ').collect(),
                limit
            )),
            expect
        );
    }

    #[test]
    fn the_oldest_unused_revisions_are_deleted() {
        check_unused("1 2 3 4 5", "5", 2, "1 2");
        check_unused("1 2 3 4 5", "1 5", 2, "2");
    }

    #[test]
    fn no_revision_is_deleted_within_the_limit() {
        check_unused("1 2 3", "3", 2, "");
        check_unused("1 2 3", "", -1, "");
        check_unused("1 2", "", 0, "1 2");
    }

    #[test]
    fn revisions_that_pods_use_count_and_stay() {
        check("1 2 3 4", "1", 2, "2 3");
        check("1 2 3 4", "1 2 3", 2, "4");
        check("1 2", "", 10, "");
        check("1 2", "", 0, "1 2");
    }
}
