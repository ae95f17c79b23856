//! One version of one key: what was stored, and when.
//!
//! The map, the window and every watcher share a record by `Arc`; its bytes are not copied.
//!
//! Invariant: a record never changes once it is made, apart from its attachment, which is set once.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::{Draft, KeyMark, Revision, Saved};

/// One version of one key.
pub struct Record {
    /// The key within its space.
    pub key: Arc<str>,
    /// The transaction that wrote this version.
    pub revision: Revision,
    /// The bytes, with the revision's digits already stamped in.
    pub value: Bytes,
    /// What the index finds this record by: sorted, without repeats.
    pub terms: Arc<[Arc<str>]>,
    /// The Unix second at which [`Store::expire`](crate::Store::expire) removes the record.
    pub expires: Option<u64>,
    /// Where the stamped digits are; empty where there are none.
    digits: Range<u32>,
    mark: KeyMark,
    attachment: OnceLock<Attachment>,
}

/// What a record takes in memory beside its key and value: itself, its terms, and what is attached to most.
const MEMORY_OVERHEAD: usize = 512;

/// What a record takes on a disk beside its content: numbers, the name of its space, and what encryption adds.
pub(crate) const DISK_OVERHEAD: usize = 128;

/// Data that the layer above attaches to a record.
pub(crate) type Attachment = Box<dyn Any + Send + Sync>;

impl Record {
    /// The record of a draft that another process committed at `revision`, and which lies in the engine as `mark` says.
    pub fn committed(
        key: impl Into<Arc<str>>,
        revision: Revision,
        mut draft: Draft,
        mark: KeyMark,
    ) -> Record {
        draft.sort_terms();
        let terms = draft.terms.as_slice().into();
        Record::stamped(key.into(), revision, terms, draft).marked(mark)
    }

    /// Gives `draft` its revision: the digits are inserted at the draft's stamp.
    pub(crate) fn stamped(
        key: Arc<str>,
        revision: Revision,
        terms: Arc<[Arc<str>]>,
        draft: Draft,
    ) -> Record {
        let (value, digits) = match draft.stamp {
            Some(offset) => stamp(&draft.value, offset, revision),
            None => (draft.value, 0..0),
        };
        let attachment = draft.attachment.map_or_else(OnceLock::new, OnceLock::from);
        Record {
            key,
            revision,
            value,
            terms,
            expires: draft.expires,
            digits,
            mark: KeyMark::PLAIN,
            attachment,
        }
    }

    /// A record as it was saved, for opening.
    pub(crate) fn saved(saved: Saved<'_>, terms: Arc<[Arc<str>]>) -> Record {
        Record {
            key: saved.key.into(),
            revision: saved.revision,
            value: Bytes::copy_from_slice(saved.value),
            terms,
            expires: saved.expires,
            digits: saved.digits,
            mark: KeyMark::PLAIN,
            attachment: OnceLock::new(),
        }
    }

    /// The same, lying on disk as `mark` says.
    pub(crate) fn marked(self, mark: KeyMark) -> Record {
        Record { mark, ..self }
    }

    /// How it lies on disk, as far as this version's writer knows.
    pub fn mark(&self) -> KeyMark {
        self.mark
    }

    /// About what it takes in memory.
    pub(crate) fn memory_bytes(&self) -> u64 {
        (MEMORY_OVERHEAD + self.key.len() + self.value.len()) as u64
    }

    /// About what it takes when it is written to a disk, at most.
    pub(crate) fn disk_bytes(&self) -> u64 {
        let terms: usize = self.terms.iter().map(|term| term.len() + 4).sum();
        (DISK_OVERHEAD + self.key.len() + terms + self.value.len()) as u64
    }

    /// Where in `value` the revision's digits stand, if they were stamped.
    pub fn digits(&self) -> Option<Range<usize>> {
        (!self.digits.is_empty()).then_some(self.digits.start as usize..self.digits.end as usize)
    }

    /// The draft that would write the same content again, under a new revision.
    pub fn redraft(&self) -> Draft {
        let value = match self.digits() {
            Some(digits) => [&self.value[..digits.start], &self.value[digits.end..]]
                .concat()
                .into(),
            None => self.value.clone(),
        };
        Draft {
            value,
            stamp: self.digits().map(|digits| digits.start),
            terms: self.terms.to_vec(),
            expires: self.expires,
            attachment: None,
        }
    }

    /// The attachment, made from the record by the first caller that asks for it.
    ///
    /// # Panics
    /// If another type was attached before: a store's users agree on one.
    pub fn attach<T: Any + Send + Sync>(&self, make: impl FnOnce(&Record) -> T) -> &T {
        self.attachment
            .get_or_init(|| Box::new(make(self)))
            .downcast_ref()
            .expect("all users of a store attach the same type")
    }

    /// The attachment, if there is one of this type.
    pub fn attached<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.attachment.get()?.downcast_ref()
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}@{} ({} bytes)",
            self.key,
            self.revision,
            self.value.len()
        )
    }
}

/// Copies `value` once, into exactly the room it needs, with the revision's digits at `offset`.
fn stamp(value: &[u8], offset: usize, revision: Revision) -> (Bytes, Range<u32>) {
    let digits = revision.to_string();
    let mut stamped = Vec::with_capacity(value.len() + digits.len());
    stamped.extend_from_slice(&value[..offset]);
    stamped.extend_from_slice(digits.as_bytes());
    stamped.extend_from_slice(&value[offset..]);
    (
        stamped.into(),
        offset as u32..(offset + digits.len()) as u32,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(value: &'static str, stamp: Option<usize>, revision: u64) -> Record {
        let draft = Draft {
            value: value.into(),
            stamp,
            ..Draft::default()
        };
        Record::stamped("k".into(), Revision(revision), Arc::new([]), draft)
    }

    #[test]
    fn the_revision_is_stamped_at_its_offset() {
        let record = record(r#"{"v":"","x":1}"#, Some(6), 1234);
        assert_eq!(record.value, r#"{"v":"1234","x":1}"#);
        assert_eq!(record.digits(), Some(6..10));
    }

    #[test]
    fn a_redraft_takes_the_digits_out_again() {
        let redraft = record("ab", Some(1), 77).redraft();
        assert_eq!((redraft.value, redraft.stamp), ("ab".into(), Some(1)));
    }

    #[test]
    fn a_value_without_a_stamp_is_kept_as_it_is() {
        let record = record("ab", None, 77);
        assert_eq!(
            (record.value.as_ref(), record.digits()),
            (b"ab".as_ref(), None)
        );
    }

    #[test]
    fn the_first_attachment_stays() {
        let record = record("ab", None, 1);
        assert_eq!(record.attached::<usize>(), None);
        assert_eq!(record.attach(|record| record.value.len()), &2);
        assert_eq!(record.attach(|_| 9_usize), &2);
    }
}
