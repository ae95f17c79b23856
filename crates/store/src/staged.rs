//! A keyspace as it will be after changes that are not published yet.

use std::mem;
use std::sync::Arc;

use crate::state::KeyspaceState;
use crate::{Event, EventKind, Keyspace, Record};

/// A space as the batch will leave it.
pub(crate) struct StagedKeyspace {
    pub(crate) space: Keyspace,
    pub(crate) state: KeyspaceState,
    pub(crate) events: Vec<Event>,
}

impl StagedKeyspace {
    pub(crate) fn new(space: &Keyspace) -> StagedKeyspace {
        StagedKeyspace {
            space: space.clone(),
            state: KeyspaceState::clone(&space.state()),
            events: Vec::new(),
        }
    }

    pub(crate) fn apply(&mut self, kind: EventKind, record: Arc<Record>) -> Event {
        let revision = record.revision;
        let previous = match kind {
            EventKind::Put => self.state.insert(record.clone()),
            EventKind::Delete => self.state.remove(&record.key),
        };
        let event = Event {
            revision,
            kind,
            record,
            previous,
        };
        self.state.revision = revision;
        self.state.superseded += event.superseded();
        self.state.n_changes += 1;
        self.events.push(event.clone());
        event
    }

    /// Equal keys and terms of one space are one allocation.
    pub(crate) fn share(&self, key: Arc<str>, terms: &[Arc<str>]) -> (Arc<str>, Arc<[Arc<str>]>) {
        match self.state.get(&key) {
            Some(previous) if *previous.terms == *terms => {
                (previous.key.clone(), previous.terms.clone())
            }
            Some(previous) => (previous.key.clone(), self.state.intern(terms)),
            None => (key, self.state.intern(terms)),
        }
    }

    pub(crate) fn publish(&mut self) -> Arc<KeyspaceState> {
        self.space.publish(
            Arc::new(mem::take(&mut self.state)),
            mem::take(&mut self.events),
        )
    }
}
