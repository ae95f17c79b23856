//! What is in a frame: a batch of changes, or the seal that ends a file.
//!
//! Numbers are little-endian and of fixed width, texts and values have their length in front.

use crate::{EventKind, JournalEntry, Record, Revision, Saved};

const BATCH: u8 = b'B';
const SEAL: u8 = b'S';
const PUT: u8 = b'P';
const PUT_ENCRYPTED: u8 = b'X';
const DELETE: u8 = b'D';

/// Stands for a record that does not expire, or whose revision is stamped nowhere.
pub(super) const NEVER: u64 = u64::MAX;

/// A frame's payload.
pub(super) enum Payload<'a> {
    /// Changes, the last of which happened at `revision`.
    Batch {
        revision: Revision,
        changes: ChangeIter<'a>,
    },
    /// The end of a file that holds everything up to `revision` in `n_changes` changes.
    Seal { revision: Revision, n_changes: u64 },
}

/// Begins a batch; its changes follow.
pub(super) fn batch(buffer: &mut Vec<u8>, revision: Revision) {
    buffer.push(BATCH);
    number(buffer, revision.0);
}

pub(super) fn seal(buffer: &mut Vec<u8>, revision: Revision, n_changes: u64) {
    buffer.push(SEAL);
    number(buffer, revision.0);
    number(buffer, n_changes);
}

pub(super) fn entry(buffer: &mut Vec<u8>, entry: &JournalEntry) {
    match (entry.event.kind, &entry.ciphertext) {
        (EventKind::Put, Some(content)) => {
            put_encrypted(buffer, &entry.space, &entry.event.record, content)
        }
        (EventKind::Put, None) => put(buffer, &entry.space, &entry.event.record),
        (EventKind::Delete, _) => delete(buffer, &entry.space, &entry.event.record),
    }
}

pub(super) fn put(buffer: &mut Vec<u8>, space: &str, record: &Record) {
    buffer.push(PUT);
    place(buffer, space, record);
    number(buffer, record.expires.unwrap_or(NEVER));
    let digits = record.digits().unwrap_or_default();
    number(buffer, digits.start as u64);
    number(buffer, digits.end as u64);
    number(buffer, record.terms.len() as u64);
    record
        .terms
        .iter()
        .for_each(|term| bytes(buffer, term.as_bytes()));
    bytes(buffer, &record.value);
}

/// A put with encrypted content.
pub(super) fn put_encrypted(buffer: &mut Vec<u8>, space: &str, record: &Record, content: &[u8]) {
    buffer.push(PUT_ENCRYPTED);
    place(buffer, space, record);
    number(buffer, record.expires.unwrap_or(NEVER));
    bytes(buffer, content);
}

fn delete(buffer: &mut Vec<u8>, space: &str, record: &Record) {
    buffer.push(DELETE);
    place(buffer, space, record);
}

fn place(buffer: &mut Vec<u8>, space: &str, record: &Record) {
    bytes(buffer, space.as_bytes());
    bytes(buffer, record.key.as_bytes());
    number(buffer, record.revision.0);
}

pub(super) fn number(buffer: &mut Vec<u8>, number: u64) {
    buffer.extend_from_slice(&number.to_le_bytes());
}

pub(super) fn bytes(buffer: &mut Vec<u8>, bytes: &[u8]) {
    buffer.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    buffer.extend_from_slice(bytes);
}

/// `None` if the payload is not one of ours, although its checksum says so.
pub(super) fn decode(payload: &[u8]) -> Option<Payload<'_>> {
    let mut reader = PayloadReader::new(payload);
    match reader.byte()? {
        BATCH => Some(Payload::Batch {
            revision: reader.revision()?,
            changes: ChangeIter { reader },
        }),
        SEAL => Some(Payload::Seal {
            revision: reader.revision()?,
            n_changes: reader.number()?,
        }),
        _ => None,
    }
}

/// The changes of a batch; one that cannot be read is `None`, and the last.
pub(super) struct ChangeIter<'a> {
    reader: PayloadReader<'a>,
}

impl<'a> Iterator for ChangeIter<'a> {
    type Item = Option<Saved<'a>>;

    fn next(&mut self) -> Option<Option<Saved<'a>>> {
        if self.reader.rest.is_empty() {
            return None;
        }
        let change = self.reader.change();
        if change.is_none() {
            self.reader.rest = &[];
        }
        Some(change)
    }
}

pub(super) struct PayloadReader<'a> {
    rest: &'a [u8],
}

impl<'a> PayloadReader<'a> {
    pub(super) fn new(rest: &'a [u8]) -> PayloadReader<'a> {
        PayloadReader { rest }
    }

    fn change(&mut self) -> Option<Saved<'a>> {
        let tag = self.byte()?;
        let kind = match tag {
            PUT | PUT_ENCRYPTED => EventKind::Put,
            DELETE => EventKind::Delete,
            _ => return None,
        };
        let (space, key, revision) = (self.text()?, self.text()?, self.revision()?);
        let is_encrypted = tag == PUT_ENCRYPTED;
        let (value, digits, terms) = (&[][..], 0..0, Vec::new());
        let bare = Saved {
            space,
            key,
            kind,
            revision,
            value,
            is_encrypted,
            digits,
            terms,
            expires: None,
        };
        match tag {
            PUT => self.content(bare),
            PUT_ENCRYPTED => Some(Saved {
                expires: self.expires()?,
                value: self.bytes()?,
                ..bare
            }),
            _ => Some(bare),
        }
    }

    fn content(&mut self, bare: Saved<'a>) -> Option<Saved<'a>> {
        let expires = self.expires()?;
        let digits = u32::try_from(self.number()?).ok()?..u32::try_from(self.number()?).ok()?;
        let terms = (0..self.number()?)
            .map(|_| self.text())
            .collect::<Option<_>>()?;
        let value = self.bytes()?;
        let inside = digits.start <= digits.end && digits.end as usize <= value.len();
        inside.then_some(Saved {
            value,
            digits,
            terms,
            expires,
            ..bare
        })
    }

    fn expires(&mut self) -> Option<Option<u64>> {
        Some(Some(self.number()?).filter(|&at| at != NEVER))
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|byte| byte[0])
    }

    fn revision(&mut self) -> Option<Revision> {
        self.number().map(Revision)
    }

    pub(super) fn number(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    pub(super) fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }

    pub(super) fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = u32::from_le_bytes(self.take(4)?.try_into().ok()?);
        self.take(length as usize)
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(taken)
    }
}
