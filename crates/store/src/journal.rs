//! Durability: the trait between the store and a disk.
//!
//! The store keeps every live record in memory, so a journal never answers a read: it makes batches durable, and
//! tells at opening what they were, or what they add up to.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use crate::state::KeyspaceState;
use crate::{Event, EventKind, OpenError, Record, Revision};

/// Keeps what a store needs to open again. Used by one thread.
pub trait Journal: Send {
    /// Tells `load` the changes that lead to the live state, those of one key in their order, and returns the latest
    /// revision ever appended, or `None` if nothing ever was. Called once, before the first append.
    fn replay(&mut self, load: &mut dyn FnMut(Saved<'_>)) -> Result<Option<Revision>, OpenError>;

    /// Makes sure that there is space for `bytes` of puts, and beyond them for deletes and for writing `live_bytes`, all
    /// that is live, anew. Without it puts are not appended; deletes are all the same.
    fn allocate(&mut self, _bytes: u64, _live_bytes: u64) -> io::Result<()> {
        Ok(())
    }

    /// Makes `batch` durable before returning: each transaction all or not at all. The batch is not empty, in the
    /// order of revisions, and may change a key more than once.
    fn append(&mut self, batch: &[JournalEntry]) -> Result<(), AppendError>;

    /// Whether so much of what it keeps is superseded that [`compact`](Self::compact) is worth its cost.
    fn is_bloated(&self) -> bool {
        false
    }

    /// Begins anew from `live`, which is all that was appended until now. Does the long part elsewhere: the next append
    /// must not wait for it. The old is good until the new is complete.
    fn compact(&mut self, _live: LiveRecords) -> Result<(), AppendError> {
        Ok(())
    }

    /// How many compactions failed so far.
    fn n_failed_compactions(&self) -> u64 {
        0
    }
}

/// Why something was not appended.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// Nothing of it is on disk, and the journal is as it was: the next append may succeed.
    #[error("nothing was written")]
    NotWritten(#[source] io::Error),
    /// It is on disk or not, and nothing more may be appended.
    #[error("what is on disk is unknown")]
    Unknown(#[source] io::Error),
}

/// One event of a batch.
#[derive(Clone, Debug)]
pub struct JournalEntry {
    /// The name of the space that the event changes.
    pub space: Arc<str>,
    /// The event.
    pub event: Event,
    /// The encrypted content of a put, if its space is encrypted.
    pub ciphertext: Option<Bytes>,
}

/// A change as a journal gives it back.
#[derive(Clone, Debug)]
pub struct Saved<'a> {
    /// The name of the record's space.
    pub space: &'a str,
    /// As [`Record::key`].
    pub key: &'a str,
    /// Whether the record was written or removed; what follows is told of written ones only.
    pub kind: EventKind,
    /// As [`Record::revision`].
    pub revision: Revision,
    /// As [`Record::value`], the digits included; or the encrypted content, which includes digits and terms.
    pub value: &'a [u8],
    /// Whether the content is encrypted.
    pub is_encrypted: bool,
    /// Where the digits are; empty where there are none.
    pub digits: Range<u32>,
    /// As [`Record::terms`].
    pub terms: Vec<&'a str>,
    /// As [`Record::expires`].
    pub expires: Option<u64>,
}

/// Every record of a store at one revision.
#[derive(Clone, Debug)]
pub struct LiveRecords {
    /// The revision.
    pub revision: Revision,
    pub(crate) spaces: Vec<(Arc<str>, Arc<KeyspaceState>)>,
}

impl LiveRecords {
    /// Each record with the name of its space.
    pub fn records(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<Record>)> {
        self.spaces
            .iter()
            .flat_map(|(name, state)| state.range("", None).map(move |record| (name, record)))
    }
}

/// The journal of a store in memory: remembers nothing, and so cannot fail.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NoJournal;

impl Journal for NoJournal {
    fn replay(&mut self, _load: &mut dyn FnMut(Saved<'_>)) -> Result<Option<Revision>, OpenError> {
        Ok(None)
    }

    fn append(&mut self, _batch: &[JournalEntry]) -> Result<(), AppendError> {
        Ok(())
    }
}
