//! The watch window: the most recent events, kept so that watches can resume.
//!
//! A ring of a space's latest events, oldest first. A watch that starts inside the ring is replayed from it; one
//! that starts before it gets `Expired` and lists again. The same events, undone, give back an older state.
//!
//! Invariant: the ring holds every event of its keyspace with a revision above `floor`, in order, each once. The minimum
//! of events is kept however old they are.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::state::KeyspaceState;
use crate::{Expired, Record, Revision};

/// One change to one key.
#[derive(Clone, Debug)]
pub struct Event {
    /// The transaction that made the change; all its events share it.
    pub revision: Revision,
    /// What was done.
    pub kind: EventKind,
    /// The record after the change; for a delete its final state.
    pub record: Arc<Record>,
    /// The record before the change, if the key had one.
    pub previous: Option<Arc<Record>>,
}

/// What was done to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The record was written.
    Put,
    /// The record was removed.
    Delete,
}

/// How much of the past a space remembers.
#[derive(Clone, Copy, Debug)]
pub struct WindowLimits {
    /// At least this many events are kept however old they are, unless they hold more than four times `bytes`.
    pub min_events: usize,
    /// No more than this many events are kept.
    pub max_events: usize,
    /// Above this many bytes of superseded records only `min_events` are kept.
    pub bytes: u64,
    /// Of older events only `min_events` are kept.
    pub seconds: u64,
    /// Above this many bytes in all spaces together, those that hold the most forget, however few events are left.
    pub total_bytes: u64,
}

impl Default for WindowLimits {
    /// 1,024 to 65,536 events, 16 MiB of superseded records, and as many seconds as upstream's cache.
    /// An idle watcher gets a bookmark once a minute.
    ///
    /// Kubernetes: DefaultEventFreshDuration (apiserver/pkg/storage/cacher/cacher.go).
    fn default() -> WindowLimits {
        WindowLimits {
            min_events: 1024,
            max_events: 65_536,
            bytes: 16 << 20,
            seconds: 75,
            total_bytes: 64 << 20,
        }
    }
}

/// How far the minimum of events may overdraw the byte budget.
const OVERDRAFT: u64 = 4;

/// The ring. A clone is O(1): the first event after it copies the ring once.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    events: Arc<VecDeque<Event>>,
    /// The newest revision of which something may be forgotten.
    floor: Revision,
    /// The bytes of records that only the ring keeps alive.
    bytes: u64,
    bounds: WindowLimits,
    /// How many events were pushed.
    pub n_pushed: u64,
}

impl Window {
    pub(crate) fn new(floor: Revision, bounds: WindowLimits) -> Window {
        Window {
            events: Arc::default(),
            floor,
            bytes: 0,
            bounds,
            n_pushed: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.events.len()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn push(&mut self, event: Event) {
        self.bytes += event.superseded();
        self.n_pushed += 1;
        Arc::make_mut(&mut self.events).push_back(event);
        while self.bounds.exceeded(self.events.len(), self.bytes) {
            self.drop_oldest();
        }
    }

    /// Forgets everything: history begins at `revision`.
    pub(crate) fn restart(&mut self, revision: Revision) {
        self.events = Arc::default();
        self.bytes = 0;
        self.floor = revision;
    }

    /// Forgets events up to `old`, but for the least that is kept.
    pub(crate) fn forget(&mut self, old: Revision) {
        let n_old = self
            .position(old)
            .min(self.events.len().saturating_sub(self.bounds.min_events));
        (0..n_old).for_each(|_| self.drop_oldest());
        if n_old > self.events.len() {
            Arc::make_mut(&mut self.events).shrink_to_fit();
        }
    }

    /// Forgets the oldest events, half of the bytes.
    pub(crate) fn halve(&mut self) {
        let half = self.bytes / 2;
        while self.bytes > half {
            self.drop_oldest();
        }
        Arc::make_mut(&mut self.events).shrink_to_fit();
    }

    fn drop_oldest(&mut self) {
        if let Some(oldest) = Arc::make_mut(&mut self.events).pop_front() {
            self.bytes -= oldest.superseded();
            self.floor = oldest.revision;
        }
    }

    /// Whether everything after `revision` is still here.
    pub(crate) fn reaches(&self, revision: Revision) -> Result<(), Expired> {
        match revision >= self.floor {
            true => Ok(()),
            false => Err(Expired {
                requested: revision,
                oldest: self.floor,
            }),
        }
    }

    /// The newest revision of which something may be forgotten.
    pub(crate) fn floor(&self) -> Revision {
        self.floor
    }

    /// The revision of the last event, or that at which history begins.
    pub(crate) fn last(&self) -> Revision {
        self.events
            .back()
            .map_or(self.floor, |event| event.revision)
    }

    /// The events of one transaction.
    pub(crate) fn at(&self, revision: Revision) -> impl Iterator<Item = &Event> {
        let start = self
            .events
            .partition_point(|event| event.revision < revision);
        let events = self.events.range(start..);
        events.take_while(move |event| event.revision == revision)
    }

    /// The events in `(after, until]`: about `limit`, but never a part of a transaction, so that the last
    /// event's revision is a place to go on from.
    pub(crate) fn between(&self, after: Revision, until: Revision, limit: usize) -> Vec<Event> {
        let start = self.position(after);
        let end = self.position(until).max(start);
        let cut = match self.events.get(start + limit - 1) {
            Some(last) => self.position(last.revision).min(end),
            None => end,
        };
        self.events.range(start..cut).cloned().collect()
    }

    /// Whether no event in `(after, until]` is here.
    pub(crate) fn is_quiet(&self, after: Revision, until: Revision) -> bool {
        self.events
            .get(self.position(after))
            .is_none_or(|event| event.revision > until)
    }

    /// What takes a state back to `revision`.
    pub(crate) fn undo(&self, revision: Revision) -> Result<Undo, Expired> {
        self.reaches(revision)?;
        let kept = self.position(revision);
        let last = kept.checked_sub(1).map(|last| self.events[last].revision);
        let events = self.events.range(kept..).cloned().collect();
        Ok(Undo {
            events,
            revision: last.unwrap_or(self.floor),
        })
    }

    /// The index of the first event after `revision`.
    fn position(&self, revision: Revision) -> usize {
        self.events
            .partition_point(|event| event.revision <= revision)
    }
}

/// Changes to take out of a state again.
pub(crate) struct Undo {
    events: Vec<Event>,
    /// The last change that stays.
    revision: Revision,
}

impl Undo {
    pub(crate) fn apply(self, state: &mut KeyspaceState) {
        for event in self.events.into_iter().rev() {
            state.superseded -= event.superseded();
            state.n_changes -= 1;
            match event.previous {
                Some(previous) => drop(state.insert(previous)),
                None => drop(state.remove(&event.record.key)),
            }
        }
        state.revision = self.revision;
    }
}

impl WindowLimits {
    fn exceeded(&self, n_events: usize, bytes: u64) -> bool {
        n_events > self.max_events
            || bytes > self.bytes.saturating_mul(OVERDRAFT)
            || (bytes > self.bytes && n_events > self.min_events)
    }
}

impl Event {
    /// The terms of the record after the change and before it. One that it keeps may be there twice.
    pub(crate) fn terms(&self) -> impl Iterator<Item = &Arc<str>> {
        let before = self.previous.as_ref();
        // Most changes leave the terms as they were, and then both are one allocation.
        let before = before.filter(|before| !Arc::ptr_eq(&before.terms, &self.record.terms));
        let before = before.into_iter().flat_map(|before| before.terms.iter());
        self.record.terms.iter().chain(before)
    }

    /// The bytes that this change took out of the live state, or that were never in it.
    pub(crate) fn superseded(&self) -> u64 {
        let previous = self
            .previous
            .as_ref()
            .map_or(0, |record| record.memory_bytes());
        let last = if self.kind == EventKind::Delete {
            self.record.memory_bytes()
        } else {
            0
        };
        previous + last
    }
}
