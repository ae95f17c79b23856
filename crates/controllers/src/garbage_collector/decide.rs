//! Must an object go? That depends on what has become of those that own it.

use super::name::Uid;

/// What has become of an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// It is there.
    Solid,
    /// There is no such object.
    Absent,
    /// It waits for its dependents to go before it.
    Waiting,
}

/// What is known of an object whose owners were looked up.
#[derive(Debug, Clone, Default)]
pub(super) struct Case {
    /// What has become of each owner.
    pub owners: Vec<(Uid, Owner)>,
    /// Whether others depend on it.
    pub has_dependents: bool,
    /// Whether it is to go after its dependents.
    pub is_foreground: bool,
    /// Whether its dependents are to stay.
    pub is_orphaning: bool,
}

/// What is to be done with an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It stays.
    Keep,
    /// It stays, but does not belong to these any more.
    Strip(Vec<Uid>),
    /// It goes, its dependents before it, because an owner waits for all of them.
    DeleteForeground,
    /// It goes, and this becomes of its dependents.
    Delete(&'static str),
}

/// Decides.
pub(super) fn decide(case: &Case) -> Verdict {
    let has = |state: Owner| case.owners.iter().any(|(_, owner)| *owner == state);
    if case.owners.is_empty() {
        return Verdict::Keep;
    }
    if has(Owner::Solid) {
        let lost = case
            .owners
            .iter()
            .filter(|(_, owner)| *owner != Owner::Solid);
        let lost: Vec<Uid> = lost.map(|(uid, _)| uid.clone()).collect();
        return if lost.is_empty() {
            Verdict::Keep
        } else {
            Verdict::Strip(lost)
        };
    }
    if has(Owner::Waiting) && case.has_dependents {
        return Verdict::DeleteForeground;
    }
    Verdict::Delete(match (case.is_orphaning, case.is_foreground) {
        (true, _) => "Orphan",
        (false, true) => "Foreground",
        (false, false) => "Background",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use Owner::{Absent, Solid, Waiting};

    /// Owners are called by their place.
    #[track_caller]
    fn check(owners: &[Owner], has_dependents: bool, expected: Verdict) {
        let owners: Vec<(Uid, Owner)> = owners
            .iter()
            .enumerate()
            .map(|(at, owner)| (at.to_string().as_str().into(), *owner))
            .collect();
        assert_eq!(
            decide(&Case {
                owners,
                has_dependents,
                ..Case::default()
            }),
            expected
        );
    }

    fn strip(uids: &[&str]) -> Verdict {
        Verdict::Strip(uids.iter().map(|uid| Uid::from(*uid)).collect())
    }

    #[test]
    fn one_owner_is_enough_to_stay() {
        check(&[], false, Verdict::Keep);
        check(&[Solid], false, Verdict::Keep);
        check(&[Solid, Solid], true, Verdict::Keep);
        check(&[Absent, Solid, Waiting], true, strip(&["0", "2"]));
    }

    #[test]
    fn without_owners_it_goes() {
        check(&[Absent], true, Verdict::Delete("Background"));
        check(&[Absent, Absent], false, Verdict::Delete("Background"));
    }

    #[test]
    fn an_owner_that_waits_waits_for_dependents_of_dependents_too() {
        check(&[Waiting], true, Verdict::DeleteForeground);
        check(&[Absent, Waiting], true, Verdict::DeleteForeground);
        check(&[Waiting], false, Verdict::Delete("Background"));
    }

    #[test]
    fn what_was_asked_for_earlier_is_honoured() {
        let case = Case {
            owners: vec![("0".into(), Absent)],
            is_foreground: true,
            ..Case::default()
        };
        assert_eq!(decide(&case), Verdict::Delete("Foreground"));
        assert_eq!(
            decide(&Case {
                is_orphaning: true,
                ..case
            }),
            Verdict::Delete("Orphan")
        );
    }
}
