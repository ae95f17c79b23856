//! Decides what to do with an object, given the state of its owners. Pure.

use super::identity::Uid;

/// The state of an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OwnerState {
    /// It exists.
    Solid,
    /// It does not exist.
    Dangling,
    /// It is in foreground deletion.
    WaitingForDependentsDeletion,
}

/// An object with classified owner references.
#[derive(Debug, Clone, Default)]
pub(super) struct DeletionCase {
    pub owners: Vec<(Uid, OwnerState)>,
    pub has_dependents: bool,
    /// Whether it has the foregroundDeletion finalizer.
    pub is_foreground: bool,
    /// Whether it has the orphan finalizer.
    pub is_orphaning: bool,
}

/// What to do with an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CollectionAction {
    Keep,
    /// Remove the references to these owners.
    RemoveOwners(Vec<Uid>),
    /// Delete in the foreground, because an owner waits for all dependents.
    DeleteForeground,
    /// Delete with this propagation policy.
    Delete(&'static str),
}

pub(super) fn choose_action(case: &DeletionCase) -> CollectionAction {
    let has = |state: OwnerState| case.owners.iter().any(|(_, owner)| *owner == state);
    if case.owners.is_empty() {
        return CollectionAction::Keep;
    }
    if has(OwnerState::Solid) {
        let lost = case
            .owners
            .iter()
            .filter(|(_, owner)| *owner != OwnerState::Solid);
        let lost: Vec<Uid> = lost.map(|(uid, _)| uid.clone()).collect();
        return if lost.is_empty() {
            CollectionAction::Keep
        } else {
            CollectionAction::RemoveOwners(lost)
        };
    }
    if has(OwnerState::WaitingForDependentsDeletion) && case.has_dependents {
        return CollectionAction::DeleteForeground;
    }
    CollectionAction::Delete(match (case.is_orphaning, case.is_foreground) {
        (true, _) => "Orphan",
        (false, true) => "Foreground",
        (false, false) => "Background",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use OwnerState::{Dangling, Solid, WaitingForDependentsDeletion};

    /// Owners are named by their index.
    #[track_caller]
    fn check(owners: &[OwnerState], has_dependents: bool, expected: CollectionAction) {
        let owners: Vec<(Uid, OwnerState)> = owners
            .iter()
            .enumerate()
            .map(|(at, owner)| (at.to_string().as_str().into(), *owner))
            .collect();
        assert_eq!(
            choose_action(&DeletionCase {
                owners,
                has_dependents,
                ..DeletionCase::default()
            }),
            expected
        );
    }

    fn strip(uids: &[&str]) -> CollectionAction {
        CollectionAction::RemoveOwners(uids.iter().map(|uid| Uid::from(*uid)).collect())
    }

    #[test]
    fn one_solid_owner_keeps_the_object() {
        check(&[], false, CollectionAction::Keep);
        check(&[Solid], false, CollectionAction::Keep);
        check(&[Solid, Solid], true, CollectionAction::Keep);
        check(
            &[Dangling, Solid, WaitingForDependentsDeletion],
            true,
            strip(&["0", "2"]),
        );
    }

    #[test]
    fn without_owners_it_is_deleted() {
        check(&[Dangling], true, CollectionAction::Delete("Background"));
        check(
            &[Dangling, Dangling],
            false,
            CollectionAction::Delete("Background"),
        );
    }

    #[test]
    fn an_owner_in_foreground_deletion_waits_for_indirect_dependents() {
        check(
            &[WaitingForDependentsDeletion],
            true,
            CollectionAction::DeleteForeground,
        );
        check(
            &[Dangling, WaitingForDependentsDeletion],
            true,
            CollectionAction::DeleteForeground,
        );
        check(
            &[WaitingForDependentsDeletion],
            false,
            CollectionAction::Delete("Background"),
        );
    }

    #[test]
    fn an_earlier_propagation_policy_is_honoured() {
        let case = DeletionCase {
            owners: vec![("0".into(), Dangling)],
            is_foreground: true,
            ..DeletionCase::default()
        };
        assert_eq!(choose_action(&case), CollectionAction::Delete("Foreground"));
        assert_eq!(
            choose_action(&DeletionCase {
                is_orphaning: true,
                ..case
            }),
            CollectionAction::Delete("Orphan")
        );
    }
}
