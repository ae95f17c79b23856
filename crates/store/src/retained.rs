//! Snapshots that are retained for paginated lists.
//!
//! A page's continue token names a revision. While its snapshot is kept here the next page costs what the first
//! did, however much was written in between; once it has gone the window may still rebuild it.
//!
//! Invariant: at most `MAX_SNAPSHOTS` per space, the latest; together they keep alive at most `MAX_SUPERSEDED` bytes of
//! values that are no longer live and of trees that are no longer current. Reading one does not keep it longer: it goes when its revision is compacted.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::state::KeyspaceState;
use crate::{Revision, Snapshot};

/// More readers than this page through one space at different revisions only if they are attackers.
pub(crate) const MAX_SNAPSHOTS: usize = 64;

/// What the past may cost a space in memory beside its window.
pub(crate) const MAX_SUPERSEDED: u64 = 64 << 20;

/// The oldest is in front.
#[derive(Debug, Default)]
pub(crate) struct Retained {
    snapshots: VecDeque<Snapshot>,
}

impl Retained {
    pub(crate) fn len(&self) -> usize {
        self.snapshots.len()
    }

    pub(crate) fn keep(&mut self, snapshot: &Snapshot) {
        let same = |kept: &&mut Snapshot| kept.is_same(snapshot);
        if let Some(known) = self.snapshots.iter_mut().find(same) {
            if known.at() < snapshot.at() {
                *known = snapshot.clone();
            }
            return;
        }
        self.snapshots.push_back(snapshot.clone());
        if self.snapshots.len() > MAX_SNAPSHOTS {
            self.snapshots.pop_front();
        }
    }

    /// A kept snapshot that shows the keys that begin with `prefix` as they were at `revision`.
    pub(crate) fn find(&self, revision: Revision, prefix: &str) -> Option<Snapshot> {
        let shows = |kept: &&Snapshot| kept.shows(revision) && kept.covers(prefix);
        let kept = self.snapshots.iter().find(shows)?;
        Some(kept.moved(revision))
    }

    /// Drops snapshots that are older than `revision`.
    pub(crate) fn compact(&mut self, revision: Revision) {
        self.snapshots.retain(|kept| kept.at() >= revision);
    }

    /// Drops the oldest snapshots when they retain too much, now that `state` is current.
    pub(crate) fn prune(&mut self, state: &Arc<KeyspaceState>) {
        let (mut newer, mut tree_bytes) = (&**state, 0);
        let mut n_kept = 0;
        for kept in self.snapshots.iter().rev().map(|kept| &**kept.state()) {
            tree_bytes += own_tree_bytes(kept, newer);
            if state.superseded.saturating_sub(kept.superseded) + tree_bytes > MAX_SUPERSEDED {
                break;
            }
            (newer, n_kept) = (kept, n_kept + 1);
        }
        self.snapshots.drain(..self.snapshots.len() - n_kept);
    }
}

/// About what the trees of `state` take that a `newer` state does not share: a few nodes for each change, but never more
/// than all of them.
fn own_tree_bytes(state: &KeyspaceState, newer: &KeyspaceState) -> u64 {
    const BYTES_PER_CHANGE: u64 = 4096;
    const BYTES_PER_RECORD: u64 = 128;
    let n_changes = newer.n_changes.saturating_sub(state.n_changes);
    (n_changes * BYTES_PER_CHANGE).min(state.len() as u64 * BYTES_PER_RECORD)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Draft, Record};

    #[test]
    fn trees_that_are_no_longer_current_are_bounded_too() {
        let (mut retained, mut state) = (Retained::default(), KeyspaceState::empty(Revision::ZERO));
        // Nothing is superseded: there are only new records.
        for n in 0..60_000 {
            let record = Record::stamped(
                n.to_string().into(),
                Revision(n),
                Arc::new([]),
                Draft::default(),
            );
            state.insert(Arc::new(record));
            (state.revision, state.n_changes) = (Revision(n), n + 1);
            if n >= 10_000 && n % 1000 == 0 {
                let state = Arc::new(state.clone());
                retained.keep(&Snapshot::new(state.clone(), Revision(n)));
                retained.prune(&state);
            }
        }
        // A thousand changes between two snapshots cost 4 MB.
        assert!(
            (14..=17).contains(&retained.len()),
            "{} snapshots",
            retained.len()
        );
        assert!(
            retained.find(Revision(59_000), "").is_some()
                && retained.find(Revision(10_000), "").is_none()
        );
    }

    #[test]
    fn a_snapshot_that_was_read_again_counts_as_what_it_does_not_share() {
        let mut retained = Retained::default();
        let mut state = KeyspaceState::empty(Revision(5));
        (state.superseded, state.n_changes) = (9 * MAX_SUPERSEDED, 1_000_000);
        let state = Arc::new(state);
        let now = Snapshot::new(state.clone(), Revision(9));
        retained.keep(&now.changed([], [], Revision(12)));
        retained.prune(&state);
        assert!(retained.find(Revision(12), "").is_some());
        assert!(
            retained.find(Revision(11), "").is_none(),
            "of no other revision"
        );
    }
}
