//! Which revision is the set's? The one that restores its template: the latest, an earlier one, or a new one.

use std::sync::Arc;

use mizzen_sdk::Object;

use crate::history::revision;

/// What makes a revision the latest.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Choice {
    /// It is.
    Keep(Arc<Object>),
    /// An earlier one becomes the latest again, by this number.
    Renumber(Arc<Object>, i64),
    /// There is none: one with this number is made.
    Create(i64),
}

/// Chooses among `revisions`, which are in order.
pub(super) fn choose(set: &Object, revisions: &[Arc<Object>]) -> Choice {
    let (patch, number) = (revision::patch(set), revision::next_number(revisions));
    let equal = revisions
        .iter()
        .rfind(|known| revision::restores(known, &patch));
    match (equal, revisions.last()) {
        (Some(equal), Some(latest)) if equal.name() == latest.name() => {
            Choice::Keep(latest.clone())
        }
        (Some(equal), _) => Choice::Renumber(equal.clone(), number),
        (None, _) => Choice::Create(number),
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
            Arc::new(revision::draft(
                &set(image),
                value!({}),
                &name,
                (revision::HASH_LABEL, "h"),
                at as i64 + 1,
            ))
        };
        let known: Vec<Arc<Object>> = known.split_whitespace().enumerate().map(revision).collect();
        let choice = match choose(&set(image), &known) {
            Choice::Keep(kept) => format!("keep {}", kept.name()),
            Choice::Renumber(old, number) => format!("{} becomes {number}", old.name()),
            Choice::Create(number) => format!("create {number}"),
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
    fn going_back_makes_an_earlier_revision_the_latest() {
        check("a", "a b", "1-a becomes 3");
        check("a", "a a b", "2-a becomes 4");
    }
}
