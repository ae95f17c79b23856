//! The feed of a keyspace: how an engine publishes what another process decided.
//!
//! Invariant: the revision of a keyspace moves together with its records, and only forwards.

use std::sync::Arc;

use crate::keyspaces::Keyspaces;
use crate::staged::StagedKeyspace;
use crate::state::KeyspaceState;
use crate::{Draft, Event, EventKind, KeyMark, Keyspace, Record, Revision};

/// Fills one keyspace. One task uses it.
pub struct Feed {
    space: Keyspace,
    spaces: Arc<Keyspaces>,
    /// What the window was given since all windows were looked at together.
    unbounded_bytes: u64,
}

/// All records of a keyspace at one revision, which is built record by record.
pub struct Replacement {
    before: Arc<KeyspaceState>,
    state: KeyspaceState,
}

/// A change of one key.
pub struct FeedChange {
    /// The key within the keyspace.
    pub key: Arc<str>,
    /// The revision of the change.
    pub revision: Revision,
    /// The record that was written, and how it lies in the engine; none if the key was deleted.
    pub put: Option<(Draft, KeyMark)>,
}

/// By how many bytes a window may grow before all of them are looked at together.
pub(crate) const WINDOW_STEP: u64 = 1 << 20;

impl Feed {
    pub(crate) fn new(space: Keyspace, spaces: Arc<Keyspaces>) -> Feed {
        space.set_has_feed(true);
        Feed {
            space,
            spaces,
            unbounded_bytes: 0,
        }
    }

    /// The keyspace that is filled.
    pub fn space(&self) -> &Keyspace {
        &self.space
    }

    /// Begins to replace all records by those at `revision`.
    pub fn begin_replacement(&self, revision: Revision) -> Replacement {
        let before = self.space.state();
        let mut state = KeyspaceState::empty(revision);
        state.superseded = before.superseded + before.bytes;
        state.n_changes = before.n_changes;
        Replacement { before, state }
    }

    /// Replaces all records. What happened in between is not known, so that watches from before get
    /// [`Expired`](crate::Expired).
    pub fn replace(&mut self, replacement: Replacement) {
        let Replacement { before, state } = replacement;
        let revision = state.revision;
        self.spaces.ledger().advance_to(revision);
        let turn = self.space.ledger().turn();
        let replaced = self.space.restart(Arc::new(state), revision);
        turn.advance(revision);
        drop((before, replaced));
        self.after_publish();
    }

    /// Applies changes in their order, all of a revision together, and moves the keyspace on to `revision`, before which
    /// there are no others. Changes that it has already are left out. `prepare` gets the events before readers do.
    pub fn apply(
        &mut self,
        changes: impl IntoIterator<Item = FeedChange>,
        revision: Revision,
        prepare: impl FnOnce(&[Event]),
    ) {
        let seen = self.space.revision();
        let mut staged = StagedKeyspace::new(&self.space);
        let changes = changes.into_iter().filter(|change| change.revision > seen);
        let events: Vec<Event> = changes
            .filter_map(|change| stage(&mut staged, change))
            .collect();
        let revision = revision.max(seen);
        if events.is_empty() && revision == seen {
            return;
        }
        prepare(&events);
        let superseded: u64 = events.iter().map(Event::superseded).sum();
        self.unbounded_bytes += superseded;
        self.spaces.ledger().advance_to(revision);
        let turn = self.space.ledger().turn();
        let replaced = (!events.is_empty()).then(|| staged.publish());
        turn.advance(revision);
        drop(replaced);
        self.after_publish();
    }

    fn after_publish(&mut self) {
        self.space.settle();
        if self.unbounded_bytes >= WINDOW_STEP {
            self.spaces.bound_windows();
            self.unbounded_bytes = 0;
        }
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.space.set_has_feed(false);
    }
}

impl Replacement {
    /// Adds a record. One of the same key and revision that was there before is kept as it is; else `decode` makes the draft.
    pub fn add(
        &mut self,
        key: Arc<str>,
        revision: Revision,
        decode: impl FnOnce(&str) -> (Draft, KeyMark),
    ) {
        let known = self.before.get(&key);
        let record = match known.filter(|record| record.revision == revision) {
            Some(record) => record.clone(),
            None => {
                let (mut draft, mark) = decode(&key);
                draft.sort_terms();
                let terms = self.state.intern(&draft.terms);
                Arc::new(Record::stamped(key, revision, terms, draft).marked(mark))
            }
        };
        self.state.n_changes += 1;
        // The revision of the state is that of the list.
        self.state.insert(record);
    }
}

/// Adds a change; none if a key was deleted that is not there.
fn stage(staged: &mut StagedKeyspace, change: FeedChange) -> Option<Event> {
    let FeedChange { key, revision, put } = change;
    let (kind, mut draft, mark) = match put {
        Some((draft, mark)) => (EventKind::Put, draft, mark),
        None => {
            let last = staged.state.get(&key)?;
            (EventKind::Delete, last.redraft(), last.mark())
        }
    };
    draft.sort_terms();
    let (key, terms) = staged.share(key, &draft.terms);
    let record = Record::stamped(key, revision, terms, draft).marked(mark);
    Some(staged.apply(kind, Arc::new(record)))
}
