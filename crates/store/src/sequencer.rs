//! The sequencer: decides which transactions commit, and in which order.
//!
//! All transactions that wait are taken as one batch. Each is checked against the state that those before it will
//! leave, then the whole batch goes to the journal at once (many writers, one fsync), and only then is it published
//! and answered.
//!
//! Invariant: what is published was appended. What could not be written leaves no trace, neither here nor on disk. What was
//! written and could not be synced is not published; it may be there after the store is opened again, so its writer is
//! answered that the outcome is unknown, and nothing is written after it.

use std::sync::Arc;

use crate::engine::CommitResult;
use crate::feed::WINDOW_STEP;
use crate::health::Health;
use crate::keyspaces::Keyspaces;
use crate::ledger::RevisionLedger;
use crate::record::DISK_OVERHEAD;
use crate::staged::StagedKeyspace;
use crate::{
    AppendError, EncryptedContent, EventKind, Expect, Journal, JournalEntry, KeyMark, Keyspace,
    Record, Revision, Write, WriteError, WriteOperation,
};

/// How many records one expiry round removes, so that it does not hold up writers for long.
const EXPIRY_ROUND: usize = 512;

/// The one writer of a store.
pub(crate) struct Sequencer {
    spaces: Arc<Keyspaces>,
    journal: Box<dyn Journal>,
    health: Health,
    /// About what all live records take on a disk.
    live_bytes: u64,
    /// What windows were given since they were last looked at all together.
    unbounded_bytes: u64,
}

/// A request to the sequencer.
pub(crate) enum SequencerRequest {
    /// Commit a transaction.
    Commit(Vec<PreparedWrite>),
    /// Delete some of the records that expire at or before a Unix second.
    Expire(u64),
}

/// A write, and its content as it goes to disk if that differs.
pub(crate) struct PreparedWrite {
    pub(crate) write: Write,
    pub(crate) encrypted: Option<EncryptedContent>,
}

impl SequencerRequest {
    /// Whether it is rejected on a full disk.
    fn needs_space(&self) -> bool {
        matches!(self, SequencerRequest::Commit(writes) if writes.iter().any(|prepared| prepared.write.needs_space()))
    }

    /// About what its puts take on a disk, at most.
    fn disk_bytes(&self) -> u64 {
        match self {
            SequencerRequest::Commit(writes) => writes.iter().map(PreparedWrite::disk_bytes).sum(),
            SequencerRequest::Expire(_) => 0,
        }
    }
}

impl PreparedWrite {
    fn disk_bytes(&self) -> u64 {
        let content = match (&self.write.change, &self.encrypted) {
            (WriteOperation::Put(_), Some(encrypted)) => encrypted.bytes.len(),
            (WriteOperation::Put(draft), None) => {
                draft.value.len() + draft.terms.iter().map(|term| term.len() + 4).sum::<usize>()
            }
            _ => return 0,
        };
        (DISK_OVERHEAD + self.write.space.name().len() + self.write.key.len() + content) as u64
    }
}

impl Sequencer {
    pub(crate) fn new(spaces: Arc<Keyspaces>, journal: Box<dyn Journal>) -> Sequencer {
        let live_bytes = spaces
            .all()
            .iter()
            .map(|space| space.state().disk_bytes)
            .sum();
        Sequencer {
            spaces,
            journal,
            health: Health::Writable,
            live_bytes,
            unbounded_bytes: 0,
        }
    }

    /// Commits what can be committed, gives every request its answer by `complete`, then wakes watchers.
    pub(crate) fn run<R>(
        &mut self,
        requests: impl IntoIterator<Item = (SequencerRequest, R)>,
        mut complete: impl FnMut(R, CommitResult),
    ) {
        let requests: Vec<_> = requests.into_iter().collect();
        self.allocate(
            requests
                .iter()
                .map(|(request, _)| request.disk_bytes())
                .sum(),
        );
        let mut batch = CommitBatch::new(self.spaces.ledger());
        let staged: Vec<_> = requests
            .into_iter()
            .map(|(request, to)| (to, self.stage(&mut batch, request)))
            .collect();
        let changed = self.make_durable(&batch).map(|()| self.publish(batch));
        for (to, outcome) in staged {
            let outcome =
                outcome.and_then(|records| changed.as_ref().map(|_| records).map_err(Clone::clone));
            if let Err(
                WriteError::NotWritten(_) | WriteError::Unknown(_) | WriteError::Poisoned(_),
            ) = outcome
            {
                self.spaces.monitor.count_refused();
            }
            complete(to, outcome);
        }
        changed.iter().flatten().for_each(Keyspace::settle);
        self.bound_windows();
        self.compact();
    }

    /// Keeps all windows together within their bound. Looking at all spaces costs, so it is not done with every batch.
    fn bound_windows(&mut self) {
        if self.unbounded_bytes >= WINDOW_STEP {
            self.spaces.bound_windows();
            self.unbounded_bytes = 0;
        }
    }

    /// Makes sure that there is space for `bytes` of puts. Asked with every batch, so that puts are taken again as soon as
    /// there is, and on a full disk also where there are no puts.
    fn allocate(&mut self, bytes: u64) {
        let allocated = match self.health {
            Health::Failed(_) => return,
            _ => self.journal.allocate(bytes, self.live_bytes),
        };
        match (allocated, &self.health) {
            (Ok(()), Health::Full(_)) => self.set_health(Health::Writable),
            (Err(error), Health::Writable) => self.set_health(Health::Full(Arc::new(error))),
            _ => {}
        }
    }

    fn stage(&self, batch: &mut CommitBatch, request: SequencerRequest) -> CommitResult {
        match (&self.health, request) {
            (Health::Failed(cause), _) => Err(WriteError::Poisoned(cause.clone())),
            (Health::Full(cause), request) if request.needs_space() => {
                Err(WriteError::NotWritten(cause.clone()))
            }
            (_, SequencerRequest::Commit(writes)) => batch.stage(writes),
            (_, SequencerRequest::Expire(now)) => self.stage_expired(batch, now),
        }
    }

    /// Every expired record is a transaction of its own, as if its writer had deleted it.
    fn stage_expired(&self, batch: &mut CommitBatch, now: u64) -> CommitResult {
        let mut deletes = Vec::new();
        for space in self.spaces.all() {
            let state = &batch.touch(&space).state;
            let room = EXPIRY_ROUND - deletes.len();
            deletes.extend(
                state
                    .expired(now)
                    .take(room)
                    .map(|record| delete(&space, record)),
            );
        }
        let records: Result<Vec<_>, _> = deletes
            .into_iter()
            .map(|delete| batch.stage(vec![delete]))
            .collect();
        Ok(records?.concat())
    }

    /// Starts a compaction if it is due. One that cannot start is retried later.
    fn compact(&mut self) {
        if !matches!(self.health, Health::Failed(_)) && self.journal.is_bloated() {
            let live = self.spaces.live();
            if let Err(AppendError::Unknown(error)) = self.journal.compact(live) {
                self.set_health(Health::Failed(Arc::new(error)));
            }
        }
        self.spaces
            .monitor
            .set_failed_compactions(self.journal.n_failed_compactions());
    }

    fn make_durable(&mut self, batch: &CommitBatch) -> Result<(), WriteError> {
        if batch.log.is_empty() {
            return Ok(());
        }
        self.journal
            .append(&batch.log)
            .map_err(|error| match error {
                AppendError::NotWritten(error) => {
                    let cause = Arc::new(error);
                    self.set_health(Health::Full(cause.clone()));
                    WriteError::NotWritten(cause)
                }
                AppendError::Unknown(error) => {
                    let cause = Arc::new(error);
                    self.set_health(Health::Failed(cause.clone()));
                    WriteError::Unknown(cause)
                }
            })
    }

    fn publish(&mut self, batch: CommitBatch) -> Vec<Keyspace> {
        let (added, removed) = batch.disk_bytes();
        self.live_bytes = self.live_bytes + added - removed;
        self.unbounded_bytes += batch
            .log
            .iter()
            .map(|entry| entry.event.superseded())
            .sum::<u64>();
        batch.publish(self.spaces.ledger())
    }

    fn set_health(&mut self, health: Health) {
        self.spaces.monitor.set(health.clone());
        self.health = health;
    }
}

fn delete(space: &Keyspace, record: &Record) -> PreparedWrite {
    let write = Write::delete(
        space,
        record.key.clone(),
        Expect::At(record.revision),
        record.redraft(),
    );
    PreparedWrite {
        write,
        encrypted: None,
    }
}

/// Transactions that will become durable and visible together.
struct CommitBatch {
    revision: Revision,
    touched: Vec<StagedKeyspace>,
    log: Vec<JournalEntry>,
}

impl CommitBatch {
    fn new(ledger: &RevisionLedger) -> CommitBatch {
        CommitBatch {
            revision: ledger.revision(),
            touched: Vec::new(),
            log: Vec::new(),
        }
    }

    /// Adds a transaction, all of it or none of it.
    fn stage(&mut self, writes: Vec<PreparedWrite>) -> CommitResult {
        for (write, PreparedWrite { write: entry, .. }) in writes.iter().enumerate() {
            entry.verify(write, self.touch(&entry.space).state.get(&entry.key))?;
        }
        if writes
            .iter()
            .all(|prepared| matches!(prepared.write.change, WriteOperation::Check))
        {
            return Ok(Vec::new());
        }
        self.revision = self.revision.next();
        Ok(writes
            .into_iter()
            .filter_map(|write| self.apply(write))
            .collect())
    }

    fn apply(&mut self, PreparedWrite { write, encrypted }: PreparedWrite) -> Option<Arc<Record>> {
        let (kind, draft) = match write.change {
            WriteOperation::Put(draft) => (EventKind::Put, draft),
            WriteOperation::Delete(draft) => (EventKind::Delete, draft),
            WriteOperation::Check => return None,
        };
        let revision = self.revision;
        let mark = encrypted
            .as_ref()
            .map_or(KeyMark::PLAIN, |encrypted| encrypted.mark);
        let touched = self.touch(&write.space);
        let (key, terms) = touched.share(write.key, &draft.terms);
        let record = Record::stamped(key, revision, terms, draft).marked(mark);
        let event = touched.apply(kind, Arc::new(record));
        let record = event.record.clone();
        let ciphertext = encrypted.map(|encrypted| encrypted.bytes);
        self.log.push(JournalEntry {
            space: write.space.name().clone(),
            event,
            ciphertext,
        });
        Some(record)
    }

    fn touch(&mut self, space: &Keyspace) -> &mut StagedKeyspace {
        let known = self
            .touched
            .iter()
            .position(|touched| touched.space.is(space));
        let index = known.unwrap_or_else(|| {
            self.touched.push(StagedKeyspace::new(space));
            self.touched.len() - 1
        });
        &mut self.touched[index]
    }

    /// About what its records take on a disk, and those that they replace.
    fn disk_bytes(&self) -> (u64, u64) {
        let before = |touched: &StagedKeyspace| touched.space.state().disk_bytes;
        let after = |touched: &StagedKeyspace| touched.state.disk_bytes;
        (
            self.touched.iter().map(after).sum(),
            self.touched.iter().map(before).sum(),
        )
    }

    /// Publishes the batch, all spaces at once, and returns the spaces that it changed.
    fn publish(self, ledger: &RevisionLedger) -> Vec<Keyspace> {
        let mut touched = self.touched;
        touched.retain(|touched| !touched.events.is_empty());
        let turn = ledger.turn();
        // Superseded states are freed after the gate is released.
        let replaced: Vec<_> = touched.iter_mut().map(StagedKeyspace::publish).collect();
        turn.advance(self.revision);
        drop(replaced);
        touched.into_iter().map(|touched| touched.space).collect()
    }
}
