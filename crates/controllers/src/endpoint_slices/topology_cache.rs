//! The topology cache: which services have endpoints allocated to zones, and whether the allocation
//! is still balanced.

use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, HashSet};

use mizzen_sdk::Key;
use mizzen_sdk::event::Note;

use super::zones::{ByZone, is_overloaded};
use crate::services::member::IpFamily;

/// The zones' shares and the allocations of services.
#[derive(Default)]
pub(crate) struct TopologyCache(Mutex<TopologyState>);

#[derive(Default)]
struct TopologyState {
    /// Each zone's share of the CPUs; the outer option is none until nodes were read.
    ratios: Option<Option<ByZone>>,
    /// The allocation of each service.
    shares: HashMap<Key, BTreeMap<IpFamily, ByZone<usize>>>,
    /// The services for which an event said that hints are enabled.
    reported: HashSet<Key>,
}

impl TopologyCache {
    /// Each zone's share; computed with `look` the first time.
    pub(super) fn ratios(&self, look: impl FnOnce() -> Option<ByZone>) -> Option<ByZone> {
        self.0.lock().ratios.get_or_insert_with(look).clone()
    }

    /// Sets the shares after nodes changed; returns the services with an overloaded zone.
    pub(super) fn set_ratios(&self, ratios: Option<ByZone>) -> Vec<Key> {
        let mut state = self.0.lock();
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

    /// Sets the allocation of a service, or why it has none, or that it wants none; returns the
    /// event to record.
    pub(super) fn set_hints(
        &self,
        key: &Key,
        family: IpFamily,
        shares: Option<Result<ByZone<usize>, String>>,
    ) -> Option<Note> {
        let mut state = self.0.lock();
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
                state.reported.insert(key.clone()).then_some(note)
            }
            Some(Err(why)) => {
                state.forget(key, family);
                disabled(&why)
            }
            None if state.forget(key, family) => disabled("Topology Aware Hints has been disabled"),
            None => None,
        }
    }

    /// Removes a deleted service.
    pub(super) fn remove(&self, key: &Key) {
        let mut state = self.0.lock();
        state.shares.remove(key);
        state.reported.remove(key);
    }
}

impl TopologyState {
    /// Removes one family of a service; whether the service had an allocation.
    fn forget(&mut self, key: &Key, family: IpFamily) -> bool {
        if let Some(shares) = self.shares.get_mut(key) {
            shares.remove(&family);
            if shares.is_empty() {
                self.shares.remove(key);
            }
        }
        self.reported.remove(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares<T: Copy>(pairs: &[(&str, T)]) -> ByZone<T> {
        pairs
            .iter()
            .map(|(zone, share)| (zone.to_string(), *share))
            .collect()
    }

    #[test]
    fn hints_are_reported_once_and_recomputed_when_nodes_change() {
        let (topology_cache, key) = (TopologyCache::default(), Key::new("a", "s"));
        let note = |shares| {
            topology_cache
                .set_hints(&key, IpFamily::V4, shares)
                .map(|note| note.message)
        };
        assert_eq!(note(None), None);
        let even = shares(&[("a", 1), ("b", 1)]);
        let enabled = "Topology Aware Hints has been enabled, addressType: IPv4";
        assert_eq!(note(Some(Ok(even.clone()))).as_deref(), Some(enabled));
        assert_eq!(note(Some(Ok(even))), None);
        assert!(
            topology_cache
                .set_ratios(Some(shares(&[("a", 0.5), ("b", 0.5)])))
                .is_empty()
        );
        assert_eq!(
            topology_cache.set_ratios(None).as_slice(),
            std::slice::from_ref(&key)
        );
        let disabled = "Topology Aware Hints has been disabled, addressType: IPv4";
        assert_eq!(
            topology_cache
                .set_hints(&key, IpFamily::V4, None)
                .map(|note| note.message)
                .as_deref(),
            Some(disabled)
        );
        assert!(topology_cache.set_ratios(None).is_empty());
    }
}
