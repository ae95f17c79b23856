//! One after the other: decides which transactions commit, and in which order.
//!
//! All transactions that wait are taken as one batch. Each is checked against the state that those before it will
//! leave, then the whole batch goes to the journal at once (many writers, one fsync), and only then is it published
//! and answered.
//!
//! Invariant: what is published was appended; what could not be appended leaves no trace but the poison.

use std::io;
use std::mem;
use std::sync::Arc;

use crate::ledger::Ledger;
use crate::spaces::Spaces;
use crate::state::State;
use crate::{
    Change, Draft, Entry, Event, EventKind, Expect, Journal, Mark, Record, Revision, Sealed, Space, Write,
    WriteError,
};

/// The records of one transaction's changes, in its order.
pub(crate) type Outcome = Result<Vec<Arc<Record>>, WriteError>;

/// How many records one expiry round removes, so that it does not hold up writers for long.
const EXPIRY_ROUND: usize = 512;

/// The one writer of a store.
pub(crate) struct Sequencer {
    spaces: Arc<Spaces>,
    journal: Box<dyn Journal>,
    poison: Option<Arc<io::Error>>,
}

/// What is asked of the sequencer.
pub(crate) enum Request {
    /// Commit a transaction.
    Commit(Vec<Prepared>),
    /// Delete some of the records that expire at or before a Unix second.
    Expire(u64),
}

/// A write, and its content in the form in which it goes to disk if that is another one.
pub(crate) struct Prepared {
    pub(crate) write: Write,
    pub(crate) sealed: Option<Sealed>,
}

impl Sequencer {
    pub(crate) fn new(spaces: Arc<Spaces>, journal: Box<dyn Journal>) -> Sequencer {
        Sequencer { spaces, journal, poison: None }
    }

    /// Commits what can be committed, gives every request its answer by `answer`, then wakes watchers.
    pub(crate) fn run<R>(
        &mut self,
        requests: impl IntoIterator<Item = (Request, R)>,
        mut answer: impl FnMut(R, Outcome),
    ) {
        let mut batch = Batch::new(self.spaces.ledger());
        let staged: Vec<_> =
            requests.into_iter().map(|(request, to)| (to, self.stage(&mut batch, request))).collect();
        let changed = self.make_durable(&batch).map(|()| batch.publish(self.spaces.ledger()));
        for (to, outcome) in staged {
            answer(to, outcome.and_then(|records| changed.as_ref().map(|_| records).map_err(Clone::clone)));
        }
        changed.iter().flatten().for_each(Space::settle);
        self.compact();
    }

    fn stage(&self, batch: &mut Batch, request: Request) -> Outcome {
        if let Some(cause) = &self.poison {
            return Err(WriteError::Poisoned(cause.clone()));
        }
        match request {
            Request::Commit(writes) => batch.stage(writes),
            Request::Expire(now) => self.stage_expired(batch, now),
        }
    }

    /// Every expired record is a transaction of its own, as if its writer had deleted it.
    fn stage_expired(&self, batch: &mut Batch, now: u64) -> Outcome {
        let mut deletes = Vec::new();
        for space in self.spaces.all() {
            let state = &batch.touch(&space).state;
            let room = EXPIRY_ROUND - deletes.len();
            deletes.extend(state.expired(now).take(room).map(|record| delete(&space, record)));
        }
        let records: Result<Vec<_>, _> =
            deletes.into_iter().map(|delete| batch.stage(vec![delete])).collect();
        Ok(records?.concat())
    }

    /// Lets the journal forget what is superseded. If that cannot even begin, its log may be in no state to go on.
    fn compact(&mut self) {
        if self.poison.is_none() && self.journal.is_bloated() {
            let live = self.spaces.live();
            if let Err(error) = self.journal.compact(live) {
                self.poison(Arc::new(error));
            }
        }
    }

    fn make_durable(&mut self, batch: &Batch) -> Result<(), WriteError> {
        if batch.log.is_empty() {
            return Ok(());
        }
        self.journal.append(&batch.log).map_err(|error| {
            let cause = Arc::new(error);
            self.poison(cause.clone());
            WriteError::Journal(cause)
        })
    }

    /// What is on disk is not known any more: from here on nothing is written.
    fn poison(&mut self, cause: Arc<io::Error>) {
        self.spaces.set_broken();
        self.poison = Some(cause);
    }
}

fn delete(space: &Space, record: &Record) -> Prepared {
    let write = Write::delete(space, record.key.clone(), Expect::At(record.revision), record.redraft());
    Prepared { write, sealed: None }
}

/// Transactions that will become durable and visible together.
struct Batch {
    revision: Revision,
    touched: Vec<Touched>,
    log: Vec<Entry>,
}

/// A space as the batch will leave it.
struct Touched {
    space: Space,
    state: State,
    events: Vec<Event>,
}

impl Batch {
    fn new(ledger: &Ledger) -> Batch {
        Batch { revision: ledger.revision(), touched: Vec::new(), log: Vec::new() }
    }

    /// Adds a transaction, all of it or none of it.
    fn stage(&mut self, writes: Vec<Prepared>) -> Outcome {
        for (write, Prepared { write: entry, .. }) in writes.iter().enumerate() {
            entry.verify(write, self.touch(&entry.space).state.get(&entry.key))?;
        }
        if writes.iter().all(|prepared| matches!(prepared.write.change, Change::Check)) {
            return Ok(Vec::new());
        }
        self.revision = self.revision.next();
        Ok(writes.into_iter().filter_map(|write| self.apply(write)).collect())
    }

    fn apply(&mut self, Prepared { write, sealed }: Prepared) -> Option<Arc<Record>> {
        let (kind, draft) = match write.change {
            Change::Put(draft) => (EventKind::Put, draft),
            Change::Delete(draft) => (EventKind::Delete, draft),
            Change::Check => return None,
        };
        let revision = self.revision;
        let mark = sealed.as_ref().map_or(Mark::PLAIN, |sealed| sealed.mark);
        let event = self.touch(&write.space).apply(write.key, revision, kind, draft, mark);
        let record = event.record.clone();
        let sealed = sealed.map(|sealed| sealed.bytes);
        self.log.push(Entry { space: write.space.name().clone(), event, sealed });
        Some(record)
    }

    fn touch(&mut self, space: &Space) -> &mut Touched {
        let known = self.touched.iter().position(|touched| touched.space.is(space));
        let index = known.unwrap_or_else(|| {
            self.touched.push(Touched::new(space));
            self.touched.len() - 1
        });
        &mut self.touched[index]
    }

    /// Lets readers see the batch, all spaces at once, and returns the spaces that it changed.
    fn publish(self, ledger: &Ledger) -> Vec<Space> {
        let mut touched = self.touched;
        touched.retain(|touched| !touched.events.is_empty());
        let turn = ledger.turn();
        // What readers no longer see is freed after they may look again.
        let replaced: Vec<_> = touched.iter_mut().map(Touched::publish).collect();
        turn.advance(self.revision);
        drop(replaced);
        touched.into_iter().map(|touched| touched.space).collect()
    }
}

impl Touched {
    fn new(space: &Space) -> Touched {
        Touched { space: space.clone(), state: State::clone(&space.state()), events: Vec::new() }
    }

    fn apply(
        &mut self,
        key: Arc<str>,
        revision: Revision,
        kind: EventKind,
        draft: Draft,
        mark: Mark,
    ) -> Event {
        let (key, terms) = self.share(key, &draft.terms);
        let record = Arc::new(Record::stamped(key, revision, terms, draft).marked(mark));
        let previous = match kind {
            EventKind::Put => self.state.insert(record.clone()),
            EventKind::Delete => self.state.remove(&record.key),
        };
        let event = Event { revision, kind, record, previous };
        self.state.revision = revision;
        self.state.superseded += event.superseded();
        self.events.push(event.clone());
        event
    }

    /// Equal keys and terms of one space are one allocation.
    fn share(&self, key: Arc<str>, terms: &[Arc<str>]) -> (Arc<str>, Arc<[Arc<str>]>) {
        match self.state.get(&key) {
            Some(previous) if *previous.terms == *terms => (previous.key.clone(), previous.terms.clone()),
            Some(previous) => (previous.key.clone(), self.state.intern(terms)),
            None => (key, self.state.intern(terms)),
        }
    }

    fn publish(&mut self) -> Arc<State> {
        self.space.publish(Arc::new(mem::take(&mut self.state)), mem::take(&mut self.events))
    }
}
