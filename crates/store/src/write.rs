//! Transactions: writes, their preconditions, and their errors.

use std::fmt;
use std::io;
use std::sync::Arc;

use bytes::Bytes;

use crate::record::Attachment;
use crate::{EncryptionError, Keyspace, Record, Revision};

/// One entry of a transaction.
#[derive(Debug)]
pub struct Write {
    /// Where the key lives.
    pub space: Keyspace,
    /// The key.
    pub key: Arc<str>,
    /// What must hold now; else the whole transaction is refused.
    pub expect: Expect,
    /// What then happens.
    pub change: WriteOperation,
    /// Whether a put may take space that is kept for deletes, because it leads to one.
    pub uses_reserve: bool,
}

/// What must hold for a key before its transaction commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// The key has no record.
    Absent,
    /// The key has a record, of any revision.
    Present,
    /// The key's record has exactly this revision.
    At(Revision),
    /// Nothing. A delete still needs a record to delete.
    Any,
}

/// What happens to a key.
#[derive(Debug)]
pub enum WriteOperation {
    /// The draft becomes the key's record.
    Put(Draft),
    /// The record is deleted; the draft is its final state, for watchers.
    Delete(Draft),
    /// Nothing: the entry is there for its expectation.
    Check,
}

/// A record that has no revision yet.
#[derive(Default)]
pub struct Draft {
    /// The bytes, without the revision.
    pub value: Bytes,
    /// The byte offset in `value` at which the revision's decimal digits are inserted.
    pub stamp: Option<usize>,
    /// What the index will find the record by, in any order.
    pub terms: Vec<Arc<str>>,
    /// The Unix second at which [`Store::expire`](crate::Store::expire) removes the record.
    pub expires: Option<u64>,
    /// What [`Record::attach`] returns from the start: what the writer knows, readers need not make again.
    pub attachment: Option<Attachment>,
}

/// Why a transaction was rejected. Nothing was changed, unless the outcome is [`Unknown`](WriteError::Unknown). `write` is the
/// index of the entry at fault.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WriteError {
    /// The key was expected to be absent.
    #[error("already exists")]
    Exists {
        /// The entry at fault.
        write: usize,
        /// What is there.
        actual: Arc<Record>,
    },
    /// The key was expected to have a record.
    #[error("not found")]
    Missing {
        /// The entry at fault.
        write: usize,
    },
    /// The record has moved on.
    #[error("stored at revision {}, expected {expected}", .actual.revision)]
    Conflict {
        /// The entry at fault.
        write: usize,
        /// The revision that the caller had seen.
        expected: Revision,
        /// What is there now.
        actual: Arc<Record>,
    },
    /// The transaction makes no sense in any state of the store.
    #[error("malformed transaction: {why}")]
    Malformed {
        /// The entry at fault.
        write: usize,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The content must be encrypted and cannot be.
    #[error(transparent)]
    Encrypt(#[from] EncryptionError),
    /// The store is closed.
    #[error("store is closed")]
    Closed,
    /// The engine is on another machine, and did not take the transaction. Nothing was changed if `is_known`; else it may
    /// be committed.
    #[error("{message}")]
    Remote {
        /// What the engine answered, or why it did not.
        message: String,
        /// Whether it is known that nothing was changed.
        is_known: bool,
    },
    /// The journal could not take this transaction; it may take the same one later.
    #[error("nothing was stored, because the disk does not take it")]
    NotWritten(#[source] Arc<io::Error>),
    /// The journal could not be synced: the transaction is not visible now, and may be after the store is opened again.
    #[error("the outcome of the write is unknown, because the log could not be synced")]
    Unknown(#[source] Arc<io::Error>),
    /// A sync failed before, so what is on disk is unknown until the store is opened again.
    #[error("nothing was stored, because no write is taken after the log could not be synced")]
    Poisoned(#[source] Arc<io::Error>),
}

impl Write {
    /// An entry that only checks an expectation.
    pub fn check(space: &Keyspace, key: impl Into<Arc<str>>, expect: Expect) -> Write {
        Write {
            space: space.clone(),
            key: key.into(),
            expect,
            change: WriteOperation::Check,
            uses_reserve: false,
        }
    }

    /// An entry that puts a record.
    pub fn put(space: &Keyspace, key: impl Into<Arc<str>>, expect: Expect, draft: Draft) -> Write {
        Write {
            space: space.clone(),
            key: key.into(),
            expect,
            change: WriteOperation::Put(draft),
            uses_reserve: false,
        }
    }

    /// An entry that deletes a record.
    pub fn delete(
        space: &Keyspace,
        key: impl Into<Arc<str>>,
        expect: Expect,
        draft: Draft,
    ) -> Write {
        Write {
            space: space.clone(),
            key: key.into(),
            expect,
            change: WriteOperation::Delete(draft),
            uses_reserve: true,
        }
    }

    /// The same, taken on a full disk too.
    pub fn with_reserve(self) -> Write {
        Write {
            uses_reserve: true,
            ..self
        }
    }

    /// Whether it is refused on a full disk.
    pub(crate) fn needs_space(&self) -> bool {
        matches!(self.change, WriteOperation::Put(_)) && !self.uses_reserve
    }

    pub(crate) fn draft_mut(&mut self) -> Option<&mut Draft> {
        match &mut self.change {
            WriteOperation::Put(draft) | WriteOperation::Delete(draft) => Some(draft),
            WriteOperation::Check => None,
        }
    }

    /// Holds the expectation, and a delete's need of a record, against the key's `current` record. `write` is the index of
    /// the entry, for the error.
    pub fn verify(&self, write: usize, current: Option<&Arc<Record>>) -> Result<(), WriteError> {
        let needs_record = matches!(self.change, WriteOperation::Delete(_));
        match (self.expect, current) {
            (Expect::Absent, Some(actual)) => Err(WriteError::Exists {
                write,
                actual: actual.clone(),
            }),
            (Expect::Present | Expect::At(_), None) => Err(WriteError::Missing { write }),
            (Expect::At(expected), Some(actual)) if actual.revision != expected => {
                Err(WriteError::Conflict {
                    write,
                    expected,
                    actual: actual.clone(),
                })
            }
            (_, None) if needs_record => Err(WriteError::Missing { write }),
            _ => Ok(()),
        }
    }
}

/// The most that one transaction may carry.
const MAX_BYTES: usize = 256 << 20;

/// Refuses what no state of the store could accept, and brings terms into their stored order.
/// Done by the caller's task, so that the sequencer has less to do.
pub(crate) fn normalize(writes: &mut [Write]) -> Result<(), WriteError> {
    for (write, entry) in writes.iter_mut().enumerate() {
        if let Some(draft) = entry.draft_mut() {
            draft
                .normalize()
                .map_err(|why| WriteError::Malformed { write, why })?;
        }
    }
    if writes
        .iter_mut()
        .filter_map(Write::draft_mut)
        .map(|draft| draft.value.len())
        .sum::<usize>()
        > MAX_BYTES
    {
        return Err(WriteError::Malformed {
            write: 0,
            why: "its values are larger than 256 MiB",
        });
    }
    match repeated(writes) {
        Some(write) => Err(WriteError::Malformed {
            write,
            why: "a key occurs twice",
        }),
        None => Ok(()),
    }
}

/// The first entry whose key an earlier one has too. Two versions of a key in one transaction would share a
/// revision, and a watcher could not tell them apart.
fn repeated(writes: &[Write]) -> Option<usize> {
    let mut seen = std::collections::HashSet::with_capacity(writes.len());
    // Most transactions have one entry, and nothing to compare.
    (writes.len() > 1).then_some(())?;
    writes
        .iter()
        .position(|write| !seen.insert((write.space.name(), &*write.key)))
}

impl Draft {
    fn normalize(&mut self) -> Result<(), &'static str> {
        self.sort_terms();
        match self.stamp {
            Some(offset) if offset > self.value.len() => Err("the stamp lies outside the value"),
            _ => Ok(()),
        }
    }

    /// Brings terms into their stored order.
    pub(crate) fn sort_terms(&mut self) {
        self.terms.sort_unstable();
        self.terms.dedup();
    }
}

impl fmt::Debug for Draft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Draft")
            .field("value", &self.value)
            .field("stamp", &self.stamp)
            .field("terms", &self.terms)
            .field("expires", &self.expires)
            .finish_non_exhaustive()
    }
}
