//! Snapshots kept for those who read a list in pages.
//!
//! A page's continue token names a revision. While its snapshot is kept here the next page costs what the first
//! did, however much was written in between; once it has gone the window may still rebuild it.
//!
//! Invariant: at most `MAX_SNAPSHOTS` per space, and together they keep alive at most `MAX_SUPERSEDED` bytes of
//! values that are no longer live. No clock is needed: a space that nobody writes to keeps nothing extra alive.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::state::State;
use crate::{Revision, Snapshot};

/// More readers than this page through one space at different revisions only if they are attackers.
pub(crate) const MAX_SNAPSHOTS: usize = 64;

/// What the past may cost a space in memory beside its window.
pub(crate) const MAX_SUPERSEDED: u64 = 64 << 20;

/// The least recently used is in front.
#[derive(Debug, Default)]
pub(crate) struct Retained {
    snapshots: VecDeque<Snapshot>,
}

impl Retained {
    pub(crate) fn len(&self) -> usize {
        self.snapshots.len()
    }

    pub(crate) fn keep(&mut self, snapshot: &Snapshot) {
        let known = self.snapshots.iter().position(|kept| kept.revision() == snapshot.revision());
        let at = match known.and_then(|known| self.snapshots.remove(known)) {
            Some(kept) => kept.at().max(snapshot.at()),
            None => snapshot.at(),
        };
        self.snapshots.push_back(Snapshot::new(snapshot.state().clone(), at));
        if self.snapshots.len() > MAX_SNAPSHOTS {
            self.snapshots.pop_front();
        }
    }

    /// A kept snapshot that shows the space as it was at `revision`.
    pub(crate) fn find(&mut self, revision: Revision) -> Option<Snapshot> {
        let shows = |kept: &Snapshot| kept.revision() <= revision && revision <= kept.at();
        let found = self.snapshots.iter().position(shows)?;
        let snapshot = self.snapshots.remove(found)?;
        self.snapshots.push_back(snapshot.clone());
        Some(Snapshot::new(snapshot.state().clone(), revision))
    }

    /// Lets go of snapshots that have become expensive, now that `state` is current.
    pub(crate) fn prune(&mut self, state: &Arc<State>) {
        let cost = |kept: &Snapshot| state.superseded.saturating_sub(kept.state().superseded);
        self.snapshots.retain(|kept| cost(kept) <= MAX_SUPERSEDED);
    }
}
