//! What keeps others from reading the disk: the seam behind which records are sealed.
//!
//! Memory, snapshots and watches are plain; what goes to a journal may be sealed, space by space. A record's content
//! (value and terms) is sealed as one piece, without its revision, by the task that writes it: many writers seal side
//! by side, and a writer whose content cannot be sealed is refused alone. It is opened again when the store is.
//!
//! Invariant: only what is live is ever opened. So a key may be thrown away once no live record needs it, whatever the
//! log still holds.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::disk::content;
use crate::{Draft, Record};

/// Seals content on its way to disk, and opens it on its way back.
pub trait Sealer: fmt::Debug + Send + Sync {
    /// How content of `space` is written now.
    fn mark(&self, space: &str) -> Mark;

    /// The form in which `plain` goes to disk; none if it goes as it is. What is sealed for one place must not open at
    /// another.
    fn seal(&self, space: &str, key: &str, plain: &[u8]) -> Result<Option<Sealed>, SealError>;

    /// What was sealed for this place, and the mark that it was written with. May block.
    fn open(&self, space: &str, key: &str, sealed: &[u8]) -> Result<(Vec<u8>, Mark), SealError>;

    /// Refuses content of `space` that was written as it is, where all must be sealed.
    fn admit_plain(&self, space: &str) -> Result<(), SealError>;

    /// Whether content that lies on disk so, sealed or not, looks as it would if it were written now.
    fn is_current(&self, space: &str, sealed: Option<&[u8]>) -> bool;

    /// Changes whenever a mark does: then what is on disk is written anew.
    fn generation(&self) -> u64;
}

/// Stands for a way of sealing; equal for what is sealed with the same key in the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mark(pub u32);

impl Mark {
    /// Not sealed at all.
    pub const PLAIN: Mark = Mark(0);
}

/// Content that is sealed.
#[derive(Clone, Debug)]
pub struct Sealed {
    /// The bytes that go to disk.
    pub bytes: Bytes,
    /// How they were made.
    pub mark: Mark,
}

/// Why content cannot be sealed or opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SealError(pub String);

/// Somebody who seals, or nobody.
pub(crate) type MaybeSealer = Option<Arc<dyn Sealer>>;

/// Seals a draft's content, if that is done in `space`.
pub(crate) fn seal(
    sealer: &dyn Sealer,
    space: &str,
    key: &str,
    draft: &Draft,
) -> Result<Option<Sealed>, SealError> {
    if sealer.mark(space) == Mark::PLAIN {
        return Ok(None);
    }
    sealer.seal(space, key, &content::pack(draft))
}

/// Seals a record's content as it would be if it were written now.
pub(crate) fn seal_again(
    sealer: &dyn Sealer,
    space: &str,
    record: &Record,
) -> Result<Option<Sealed>, SealError> {
    if sealer.mark(space) == Mark::PLAIN {
        return Ok(None);
    }
    sealer.seal(space, &record.key, &content::pack(&record.redraft()))
}
