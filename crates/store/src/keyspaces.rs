//! All spaces of a store, by name.

use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::health::HealthMonitor;
use crate::ledger::RevisionLedger;
use crate::revision_times::RevisionTimes;
use crate::state::KeyspaceState;
use crate::{Keyspace, LiveRecords, Revision, WindowLimits};

/// All spaces of a store.
pub(crate) struct Keyspaces {
    ledger: Arc<RevisionLedger>,
    bounds: WindowLimits,
    ages: Mutex<RevisionTimes>,
    by_name: RwLock<BTreeMap<Arc<str>, Keyspace>>,
    pub(crate) monitor: HealthMonitor,
}

impl Keyspaces {
    pub(crate) fn new(revision: Revision, opened: Revision, bounds: WindowLimits) -> Keyspaces {
        Keyspaces {
            ledger: Arc::new(RevisionLedger::new(revision, opened)),
            bounds,
            ages: Mutex::default(),
            by_name: RwLock::default(),
            monitor: HealthMonitor::default(),
        }
    }

    pub(crate) fn ledger(&self) -> &Arc<RevisionLedger> {
        &self.ledger
    }

    pub(crate) fn all(&self) -> Vec<Keyspace> {
        self.by_name.read().values().cloned().collect()
    }

    /// All records. Called by the writer, so nothing changes meanwhile.
    pub(crate) fn live(&self) -> LiveRecords {
        let spaces = self
            .all()
            .iter()
            .map(|space| (space.name().clone(), space.state()))
            .collect();
        LiveRecords {
            revision: self.ledger.revision(),
            spaces,
        }
    }

    pub(crate) fn get(&self, name: &str) -> Keyspace {
        let known = self.by_name.read().get(name).cloned();
        known.unwrap_or_else(|| self.add(name.into(), KeyspaceState::empty(self.ledger.opened)))
    }

    /// Adds a space, unless it was added concurrently.
    pub(crate) fn add(&self, name: Arc<str>, state: KeyspaceState) -> Keyspace {
        let mut by_name = self.by_name.write();
        let space = || Keyspace::new(name.clone(), self.ledger.clone(), state, self.bounds);
        by_name.entry(name.clone()).or_insert_with(space).clone()
    }

    /// Drops events that are too old at the Unix second `now` from every window.
    pub(crate) fn age(&self, now: u64) {
        let revision = self.ledger.revision();
        let old = self.ages.lock().note(now, revision, self.bounds.seconds);
        if let Some(old) = old {
            self.all().iter().for_each(|space| space.forget(old));
        }
    }

    /// Drops snapshots from before `revision`.
    pub(crate) fn compact(&self, revision: Revision) {
        self.ledger.compact(revision);
        self.all().iter().for_each(|space| space.compact(revision));
    }

    /// Halves the largest windows until all together are within their limit.
    pub(crate) fn bound_windows(&self) {
        let mut windows: Vec<_> = self
            .all()
            .into_iter()
            .map(|space| (space.window_bytes(), space))
            .collect();
        let mut total: u64 = windows.iter().map(|(bytes, _)| bytes).sum();
        while total > self.bounds.total_bytes {
            let Some((bytes, space)) = windows.iter_mut().max_by_key(|(bytes, _)| *bytes) else {
                return;
            };
            space.halve_window();
            let left = space.window_bytes();
            total -= *bytes - left;
            *bytes = left;
        }
    }

    pub(crate) fn fork(&self) -> Keyspaces {
        let _gate = self.ledger.still();
        let fork = Keyspaces::new(self.ledger.revision(), self.ledger.opened, self.bounds);
        fork.ledger.compact(self.ledger.compacted());
        let forked = self
            .by_name
            .read()
            .iter()
            .map(|(name, space)| (name.clone(), space.fork(&fork.ledger)))
            .collect();
        *fork.by_name.write() = forked;
        fork
    }
}
