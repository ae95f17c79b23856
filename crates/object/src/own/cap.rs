//! A bound on how many owners an object remembers.
//!
//! Those who apply are few and stay; those who write in other ways come and go. When there are too many of the
//! latter, the oldest are merged into one nameless entry for each version.

use super::managed::{Entry, Managed, Operation, Owner};
use mizzen_value::Str;

/// How many owners that do not apply are remembered.
const MAX_UPDATERS: usize = 10;

/// The owner of what the forgotten ones owned.
const ANCIENT: &str = "ancient-changes";

/// Merges the oldest owners until there are few enough.
pub(super) fn cap(managed: &mut Managed) {
    let mut surplus = n_updaters(managed).saturating_sub(MAX_UPDATERS);
    if surplus == 0 {
        return;
    }
    let mut firsts: Vec<(Str, Owner)> = Vec::new();
    for owner in oldest_first(managed) {
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

fn n_updaters(managed: &Managed) -> usize {
    managed
        .entries
        .iter()
        .filter(|entry| entry.owner.operation == Operation::Update)
        .count()
}

fn oldest_first(managed: &Managed) -> Vec<Owner> {
    let updaters = managed
        .entries
        .iter()
        .filter(|entry| entry.owner.operation == Operation::Update);
    let mut updaters: Vec<&Entry> = updaters.collect();
    updaters.sort_by_cached_key(|entry| (entry.time().clone(), entry.owner.identity()));
    updaters
        .into_iter()
        .map(|entry| entry.owner.clone())
        .collect()
}

/// Merges the entry of `owner` into the nameless one, which the oldest entry becomes if there is none yet.
fn merge(managed: &mut Managed, version: &Str, first: &Owner, owner: &Owner) {
    let ancient = Owner::new(ANCIENT.into(), Operation::Update, version, Str::default());
    let sources = [
        Some(&ancient),
        managed.get(&ancient).is_none().then_some(first),
        Some(owner),
    ];
    let merged: Vec<&Entry> = sources
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
    let gone: Vec<Owner> = merged
        .into_iter()
        .map(|entry| entry.owner.clone())
        .collect();
    managed.entries.retain(|entry| !gone.contains(&entry.owner));
    managed.set(Entry::new(ancient, version.clone(), time, fields));
}
