//! The update revision of a set: the latest, an earlier one, or a new one.

use std::sync::Arc;

use mizzen_sdk::Object;

use crate::controller_history::revision;

/// How to get the update revision.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum RevisionChoice {
    /// The latest one matches.
    Keep(Arc<Object>),
    /// An earlier one matches and gets this number.
    Renumber(Arc<Object>, i64),
    /// None matches: create one with this number.
    Create(i64),
}

/// `revisions` is sorted.
pub(super) fn choose_revision(set: &Object, revisions: &[Arc<Object>]) -> RevisionChoice {
    let patch = revision::template_patch(set);
    let number = revision::next_number(revisions);
    let equal = revisions
        .iter()
        .rfind(|known| revision::equals_patch(known, &patch));
    match (equal, revisions.last()) {
        (Some(equal), Some(latest)) if equal.name() == latest.name() => {
            RevisionChoice::Keep(latest.clone())
        }
        (Some(equal), _) => RevisionChoice::Renumber(equal.clone(), number),
        (None, _) => RevisionChoice::Create(number),
    }
}

#[cfg(test)]
mod tests {
    use mizzen_value::value;

    use super::*;

    fn set(image: &str) -> Object {
        Object(
            value!({"metadata": {"name": "s"}, "spec": {"template": {"spec": {"image": image}}}}),
        )
    }

    #[track_caller]
    fn check(image: &str, known: &str, expect: &str) {
        let revision = |(at, image): (usize, &str)| {
            let name = format!("{}-{image}", at + 1);
            Arc::new(revision::new_revision(
                &set(image),
                value!({}),
                &name,
                (revision::HASH_LABEL, "h"),
                at as i64 + 1,
            ))
        };
        let known: Vec<Arc<Object>> = known.split_whitespace().enumerate().map(revision).collect();
        let choice = match choose_revision(&set(image), &known) {
            RevisionChoice::Keep(kept) => format!("keep {}", kept.name()),
            RevisionChoice::Renumber(old, number) => format!("{} becomes {number}", old.name()),
            RevisionChoice::Create(number) => format!("create {number}"),
        };
        assert_eq!(choice, expect);
    }

    #[test]
    fn the_latest_stays_while_nothing_changes() {
        check("b", "a b", "keep 2-b");
    }

    #[test]
    fn a_new_template_makes_a_new_revision() {
        check("a", "", "create 1");
        check("c", "a b", "create 3");
    }

    #[test]
    fn a_rollback_renumbers_an_earlier_revision() {
        check("a", "a b", "1-a becomes 3");
        check("a", "a a b", "2-a becomes 4");
    }
}
