//! All spaces of a store, by name.

use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::health::HealthMonitor;
use crate::ledger::RevisionLedger;
use crate::state::KeyspaceState;
use crate::{Keyspace, LiveRecords, Revision, WindowLimits};

/// All spaces of a store.
pub(crate) struct Keyspaces {
    /// The revision of the store: that of all spaces, or of the most recent one.
    ledger: Arc<RevisionLedger>,
    /// Whether each space has a revision of its own, because they are filled one by one.
    are_independent: bool,
    bounds: WindowLimits,
    by_name: RwLock<BTreeMap<Arc<str>, Keyspace>>,
    /// The names of released spaces that are still used.
    released: Mutex<BTreeSet<Arc<str>>>,
    pub(crate) monitor: HealthMonitor,
}

impl Keyspaces {
    pub(crate) fn new(revision: Revision, opened: Revision, bounds: WindowLimits) -> Keyspaces {
        Keyspaces {
            ledger: Arc::new(RevisionLedger::new(revision, opened)),
            are_independent: false,
            bounds,
            by_name: RwLock::default(),
            released: Mutex::default(),
            monitor: HealthMonitor::default(),
        }
    }

    /// The spaces of an engine that fills each of them on its own. A space is at revision zero until it is filled.
    pub(crate) fn independent(bounds: WindowLimits) -> Keyspaces {
        Keyspaces {
            are_independent: true,
            ..Keyspaces::new(Revision::ZERO, Revision::ZERO, bounds)
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

    /// The space of this name, and whether it is new.
    #[cfg(test)]
    pub(crate) fn get(&self, name: &str) -> (Keyspace, bool) {
        self.get_or_open(name, |_| {})
    }

    /// The space of this name, and whether it is new. A new one is opened before any other task can use it.
    pub(crate) fn get_or_open(&self, name: &str, open: impl FnOnce(&Keyspace)) -> (Keyspace, bool) {
        let known = self.by_name.read().get(name).cloned();
        match known {
            Some(space) => (space, false),
            None => self.add_opened(name.into(), KeyspaceState::empty(self.ledger.opened), open),
        }
    }

    /// Adds a space, unless it was added concurrently. Returns whether it was not.
    pub(crate) fn add(&self, name: Arc<str>, state: KeyspaceState) -> (Keyspace, bool) {
        self.add_opened(name, state, |_| {})
    }

    fn add_opened(
        &self,
        name: Arc<str>,
        state: KeyspaceState,
        open: impl FnOnce(&Keyspace),
    ) -> (Keyspace, bool) {
        let mut by_name = self.by_name.write();
        if let Some(space) = by_name.get(&name) {
            return (space.clone(), false);
        }
        let ledger = match self.are_independent {
            true => Arc::new(RevisionLedger::new(Revision::ZERO, Revision::ZERO)),
            false => self.ledger.clone(),
        };
        let space = Keyspace::new(name.clone(), &self.ledger, ledger, state, self.bounds);
        open(&space);
        by_name.insert(name, space.clone());
        (space, true)
    }

    /// Lets a space be dropped once nothing uses it. Only independent spaces are: what others hold is nowhere else.
    pub(crate) fn release(&self, name: &str) {
        if self.are_independent {
            self.released.lock().insert(name.into());
        }
    }

    /// Drops the released spaces that nothing uses any more, and closes each before one of the same name is opened.
    pub(crate) fn drop_released(&self, close: impl Fn(&Keyspace)) {
        let mut released = self.released.lock();
        if released.is_empty() {
            return;
        }
        // While this is held, no task gets a handle of a space that nothing uses.
        let mut by_name = self.by_name.write();
        released.retain(|name| {
            let is_used = by_name.get(name).is_some_and(Keyspace::is_used);
            if !is_used && let Some(space) = by_name.remove(name) {
                close(&space);
            }
            is_used
        });
    }

    /// Drops events that are too old at the Unix second `now` from every window.
    pub(crate) fn age(&self, now: u64) {
        let seconds = self.bounds.seconds;
        self.all().iter().for_each(|space| space.age(now, seconds));
    }

    /// Drops snapshots of each space from before the revision that `revision_of` tells by its name.
    pub(crate) fn compact(&self, revision_of: impl Fn(&str) -> Revision) {
        for space in self.all() {
            space.compact(revision_of(space.name()));
        }
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
        // Of independent spaces each may be compacted on its own.
        let spaces = self.all();
        let compacted = spaces.iter().map(|space| space.ledger().compacted());
        fork.ledger
            .compact(compacted.fold(self.ledger.compacted(), Revision::max));
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
