//! A space at one revision.

use std::sync::Arc;

use crate::state::KeyspaceState;
use crate::{Record, Revision};

/// A space at one revision. Taking and cloning one is O(1); holding one keeps the records that it shows in memory.
#[derive(Clone, Debug)]
pub struct Snapshot {
    state: Arc<KeyspaceState>,
    /// From which revision to which one it is known to show the space.
    since: Revision,
    at: Revision,
    /// It is right for the keys alone that begin with this; for all if there is none.
    part: Option<Arc<str>>,
}

impl Snapshot {
    pub(crate) fn new(state: Arc<KeyspaceState>, at: Revision) -> Snapshot {
        Snapshot {
            since: state.revision.min(at),
            state,
            at,
            part: None,
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

    /// The records of this snapshot, but without the keys `gone`, and with `put`: the state at the revision `at`, which
    /// may be an earlier one. It shares the rest, and counts as retaining what it does not share.
    #[must_use]
    pub fn changed(
        &self,
        gone: impl IntoIterator<Item = Arc<str>>,
        put: impl IntoIterator<Item = Arc<Record>>,
        at: Revision,
    ) -> Snapshot {
        let mut state = KeyspaceState::clone(&self.state);
        let mut n_changes = 0;
        for key in gone {
            state.remove(&key);
            n_changes += 1;
        }
        for record in put {
            state.superseded = state.superseded.saturating_sub(record.value.len() as u64);
            state.insert(record);
            n_changes += 1;
        }
        state.n_changes = state.n_changes.saturating_sub(n_changes);
        state.revision = match n_changes {
            0 => state.revision.min(at),
            _ => at,
        };
        Snapshot {
            // A key may have come and gone between the two revisions.
            since: at,
            ..Snapshot::new(Arc::new(state), at)
        }
    }

    /// The same, of which only the keys that begin with `prefix` are known to be right.
    #[must_use]
    pub fn partial(self, prefix: &str) -> Snapshot {
        Snapshot {
            part: (!prefix.is_empty()).then(|| prefix.into()),
            ..self
        }
    }

    /// The same records at another revision, at which they are the same.
    pub(crate) fn moved(&self, at: Revision) -> Snapshot {
        Snapshot { at, ..self.clone() }
    }

    /// Whether it is right for the keys that begin with `prefix`.
    pub(crate) fn covers(&self, prefix: &str) -> bool {
        let part = self.part.as_deref();
        part.is_none_or(|part| prefix.starts_with(part))
    }

    /// Whether it is the same state of the same part, until another revision at most.
    pub(crate) fn is_same(&self, other: &Snapshot) -> bool {
        self.revision() == other.revision() && self.since == other.since && self.part == other.part
    }

    /// Whether it is known to show the space as it was at `revision`.
    pub(crate) fn shows(&self, revision: Revision) -> bool {
        (self.since..=self.at).contains(&revision)
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
