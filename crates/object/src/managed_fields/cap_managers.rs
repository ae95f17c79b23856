//! A limit on the number of managers of an object. Kubernetes: managedfields' capmanagers.go.
//!
//! Appliers are few and stay; updaters come and go. If there are too many updaters, the oldest
//! entries are merged into one entry for each version.

use super::entry::{ManagedFields, ManagedFieldsEntry, ManagedFieldsOperation, ManagerIdentifier};
use mizzen_value::Str;

/// The maximum number of updaters.
const MAX_UPDATERS: usize = 10;

/// The manager of merged entries.
const ANCIENT: &str = "ancient-changes";

/// Merges the oldest entries until there are few enough.
pub(super) fn cap_managers(managed: &mut ManagedFields) {
    let is_updater =
        |entry: &&ManagedFieldsEntry| entry.owner.operation == ManagedFieldsOperation::Update;
    let mut updaters: Vec<&ManagedFieldsEntry> =
        managed.entries.iter().filter(is_updater).collect();
    let mut surplus = updaters.len().saturating_sub(MAX_UPDATERS);
    if surplus == 0 {
        return;
    }
    updaters.sort_by_cached_key(|entry| (entry.time().clone(), entry.owner.identity()));
    let oldest_first: Vec<ManagerIdentifier> = updaters
        .into_iter()
        .map(|entry| entry.owner.clone())
        .collect();
    let mut firsts: Vec<(Str, ManagerIdentifier)> = Vec::new();
    for owner in oldest_first {
        if surplus == 0 {
            return;
        }
        let Some(at) = managed.position(&owner) else {
            continue;
        };
        let version = managed.entries[at].api_version.clone();
        match firsts.iter().find(|(known, _)| *known == version) {
            None => firsts.push((version, owner)),
            Some((_, first)) => {
                merge(managed, &version, first, &owner);
                surplus -= 1;
            }
        }
    }
}

/// Merges the entry of `owner` into that of `ancient-changes`, which starts as the oldest entry.
fn merge(
    managed: &mut ManagedFields,
    version: &Str,
    first: &ManagerIdentifier,
    owner: &ManagerIdentifier,
) {
    let ancient = ManagerIdentifier::new(
        ANCIENT.into(),
        ManagedFieldsOperation::Update,
        version,
        Str::default(),
    );
    let sources = [
        Some(&ancient),
        managed.get(&ancient).is_none().then_some(first),
        Some(owner),
    ];
    let merged: Vec<&ManagedFieldsEntry> = sources
        .into_iter()
        .flatten()
        .filter_map(|owner| managed.get(owner))
        .collect();
    let Some(time) = merged.iter().map(|entry| entry.time()).max().cloned() else {
        return;
    };
    let fields = merged
        .iter()
        .fold(Default::default(), |all: super::FieldSet, entry| {
            all.union(entry.fields())
        });
    let gone: Vec<ManagerIdentifier> = merged
        .into_iter()
        .map(|entry| entry.owner.clone())
        .collect();
    managed.entries.retain(|entry| !gone.contains(&entry.owner));
    managed.set(ManagedFieldsEntry::new(
        ancient,
        version.clone(),
        time,
        fields,
    ));
}
