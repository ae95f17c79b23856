//! Which services have their endpoints shared out among zones, and is that still right?

use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, HashMap, HashSet};

use mizzen_sdk::Key;
use mizzen_sdk::event::Note;

use super::zones::{Ratios, is_overloaded};
use crate::services::member::Family;

/// What is remembered of zones and services.
#[derive(Default)]
pub(crate) struct Sharing(Mutex<State>);

#[derive(Default)]
struct State {
    /// Each zone's share of the CPUs; none until somebody has looked.
    ratios: Option<Option<Ratios>>,
    /// How the endpoints of each service are shared out.
    shares: HashMap<Key, BTreeMap<Family, Ratios<usize>>>,
    /// The services that were told that they are shared out.
    told: HashSet<Key>,
}

impl Sharing {
    /// Each zone's share, looked up with `look` if nobody has.
    pub(super) fn ratios(&self, look: impl FnOnce() -> Option<Ratios>) -> Option<Ratios> {
        self.lock().ratios.get_or_insert_with(look).clone()
    }

    /// Takes note of other nodes; the services of which a zone has too few endpoints now.
    pub(super) fn set_ratios(&self, ratios: Option<Ratios>) -> Vec<Key> {
        let mut state = self.lock();
        let is_wrong = |shares: &BTreeMap<_, _>| {
            shares
                .values()
                .any(|shares| is_overloaded(shares, ratios.as_ref()))
        };
        let wrong = state.shares.iter().filter(|(_, shares)| is_wrong(shares));
        let wrong = wrong.map(|(key, _)| key.clone()).collect();
        state.ratios = Some(ratios);
        wrong
    }

    /// Takes note of how the endpoints of a service are shared out, or why they are not, or that nobody wants it; what
    /// is to be told of it.
    pub(super) fn note(
        &self,
        key: &Key,
        family: Family,
        shares: Option<Result<Ratios<usize>, String>>,
    ) -> Option<Note> {
        let mut state = self.lock();
        let disabled = |why: &str| {
            let text = format!("{why}, addressType: {}", family.name());
            Some(Note::warning("TopologyAwareHintsDisabled", "Hinting", text))
        };
        match shares {
            Some(Ok(shares)) => {
                state
                    .shares
                    .entry(key.clone())
                    .or_default()
                    .insert(family, shares);
                let text = format!(
                    "Topology Aware Hints has been enabled, addressType: {}",
                    family.name()
                );
                let note = Note::normal("TopologyAwareHintsEnabled", "Hinting", text);
                state.told.insert(key.clone()).then_some(note)
            }
            Some(Err(why)) => {
                state.forget(key, family);
                disabled(&why)
            }
            None if state.forget(key, family) => disabled("Topology Aware Hints has been disabled"),
            None => None,
        }
    }

    /// Forgets a service that is gone.
    pub(super) fn forget(&self, key: &Key) {
        let mut state = self.lock();
        state.shares.remove(key);
        state.told.remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }
}

impl State {
    /// Forgets one family of a service; whether the service was shared out.
    fn forget(&mut self, key: &Key, family: Family) -> bool {
        if let Some(shares) = self.shares.get_mut(key) {
            shares.remove(&family);
            if shares.is_empty() {
                self.shares.remove(key);
            }
        }
        self.told.remove(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares<T: Copy>(pairs: &[(&str, T)]) -> Ratios<T> {
        pairs
            .iter()
            .map(|(zone, share)| (zone.to_string(), *share))
            .collect()
    }

    #[test]
    fn a_service_is_told_once_and_looked_at_again_when_nodes_change() {
        let (sharing, key) = (Sharing::default(), Key::new("a", "s"));
        let note = |shares| {
            sharing
                .note(&key, Family::V4, shares)
                .map(|note| note.message)
        };
        assert_eq!(note(None), None);
        let even = shares(&[("a", 1), ("b", 1)]);
        let enabled = "Topology Aware Hints has been enabled, addressType: IPv4";
        assert_eq!(note(Some(Ok(even.clone()))).as_deref(), Some(enabled));
        assert_eq!(note(Some(Ok(even))), None);
        assert!(
            sharing
                .set_ratios(Some(shares(&[("a", 0.5), ("b", 0.5)])))
                .is_empty()
        );
        assert_eq!(
            sharing.set_ratios(None).as_slice(),
            std::slice::from_ref(&key)
        );
        let disabled = "Topology Aware Hints has been disabled, addressType: IPv4";
        assert_eq!(
            sharing
                .note(&key, Family::V4, None)
                .map(|note| note.message)
                .as_deref(),
            Some(disabled)
        );
        assert!(sharing.set_ratios(None).is_empty());
    }
}
