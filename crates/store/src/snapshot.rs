//! A space at one revision.

use std::sync::Arc;

use crate::state::KeyspaceState;
use crate::{Record, Revision};

/// A space at one revision. Taking and cloning one is O(1); holding one keeps the records that it shows in memory.
///
/// Invariant: a snapshot of a part of a space is not retained: a later list of another part would find nothing in it.
#[derive(Clone, Debug)]
pub struct Snapshot {
    state: Arc<KeyspaceState>,
    at: Revision,
    /// Whether it is right for the keys alone that a reader asked for.
    is_partial: bool,
}

impl Snapshot {
    pub(crate) fn new(state: Arc<KeyspaceState>, at: Revision) -> Snapshot {
        Snapshot {
            state,
            at,
            is_partial: false,
        }
    }

    /// The snapshot of a keyspace that has exactly these records at the revision `at`.
    pub fn of_records(records: impl IntoIterator<Item = Arc<Record>>, at: Revision) -> Snapshot {
        let mut state = KeyspaceState::empty(at);
        for record in records {
            state.insert(record);
        }
        Snapshot::new(Arc::new(state), at)
    }

    /// The same records, which are also those at the later revision `at`.
    #[must_use]
    pub fn unchanged_until(&self, at: Revision) -> Snapshot {
        Snapshot {
            at: self.at.max(at),
            ..self.clone()
        }
    }

    /// The same, of which only the keys that a reader asked for are known to be right.
    #[must_use]
    pub fn partial(self) -> Snapshot {
        Snapshot {
            is_partial: true,
            ..self
        }
    }

    pub(crate) fn is_partial(&self) -> bool {
        self.is_partial
    }

    pub(crate) fn state(&self) -> &Arc<KeyspaceState> {
        &self.state
    }

    /// The store's revision that this snapshot shows: exactly the writes up to it. What a list reports, and where a
    /// watch goes on.
    pub fn at(&self) -> Revision {
        self.at
    }

    /// The last revision that changed this space: at most [`at`](Self::at). Two snapshots of a space with the same
    /// one are equal.
    pub fn revision(&self) -> Revision {
        self.state.revision
    }

    /// What [`Keyspace::superseded`](crate::Keyspace::superseded) was then.
    pub fn superseded(&self) -> u64 {
        self.state.superseded
    }

    /// The number of records.
    pub fn len(&self) -> usize {
        self.state.len()
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The record of `key`.
    pub fn get(&self, key: &str) -> Option<&Arc<Record>> {
        self.state.get(key)
    }

    /// Records whose key begins with `prefix`, in byte order of keys, from after the key `after`.
    pub fn range<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
    ) -> impl Iterator<Item = &'a Arc<Record>> {
        self.state.range(prefix, after)
    }

    /// As [`range`](Self::range), but only records that carry `term`. Costs what it finds, not what there is.
    pub fn with_term<'a>(
        &'a self,
        term: &'a str,
        prefix: &'a str,
        after: Option<&'a str>,
    ) -> impl Iterator<Item = &'a Arc<Record>> {
        self.state.with_term(term, prefix, after)
    }

    /// How many keys begin with `prefix`: O(log n) if it is empty or ends with `/`, else it counts.
    pub fn count(&self, prefix: &str) -> usize {
        self.state.count(prefix)
    }
}
