//! The file that batches are appended to.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};

use super::frame::{HEADER, Identity, Role};
use super::tip::{Tip, TipFile};
use super::{Place, codec};
use crate::{Entry, Revision};

/// Room is written ahead in pieces of this size: a sync that neither grows the file nor allocates blocks costs the file
/// system no commit of its own, which halves it.
const ROOM: u64 = 1 << 20;

/// A batch goes on in a new frame after this many bytes.
const FRAME: usize = 1 << 20;

/// The most that is kept allocated from one append to the next.
const SPARE: usize = 1 << 20;

/// An open log. What lies before `length` is durable and acknowledged.
pub(super) struct Log {
    identity: Identity,
    file: File,
    tip: TipFile,
    length: u64,
    /// How far the file is written, with zeros at the end.
    room: u64,
    n_changes: u64,
    buffer: Vec<u8>,
}

impl Log {
    /// Begins the log of a new generation. The tip moves to it last.
    pub(super) fn create(place: &Place, generation: u64) -> io::Result<Log> {
        let identity = Identity { role: Role::Log, generation };
        let tip = Tip { generation, length: HEADER };
        // A new directory gets its tip first, for a log without one is taken for damage.
        let early = if generation == 1 { Some(TipFile::open(place, tip)?) } else { None };
        let (file, ()) = place.create(&place.log(generation), |file| file.write_all(&identity.header()))?;
        let tip = early.map_or_else(|| TipFile::open(place, tip), Ok)?;
        Ok(Log { identity, file, tip, length: HEADER, room: HEADER, n_changes: 0, buffer: Vec::new() })
    }

    /// Goes on with a log of which the first `length` bytes hold `n_changes`; what follows is dropped.
    pub(super) fn resume(place: &Place, generation: u64, length: u64, n_changes: u64) -> io::Result<Log> {
        let identity = Identity { role: Role::Log, generation };
        let file = File::options().write(true).open(place.log(generation))?;
        if file.metadata()?.len() != length {
            // Part of a torn batch could otherwise be taken for the successor of what is written next.
            file.set_len(length)?;
            file.sync_all()?;
        }
        let tip = TipFile::open(place, Tip { generation, length })?;
        Ok(Log { identity, file, tip, length, room: length, n_changes, buffer: Vec::new() })
    }

    pub(super) fn generation(&self) -> u64 {
        self.identity.generation
    }

    pub(super) fn len(&self) -> u64 {
        self.length
    }

    /// Makes `batch` durable.
    pub(super) fn append(&mut self, mut batch: &[Entry]) -> io::Result<()> {
        self.n_changes += batch.len() as u64;
        while !batch.is_empty() {
            batch = self.frame(batch);
        }
        self.flush()
    }

    /// Says that nothing follows, and that nothing is missing.
    pub(super) fn seal(&mut self, revision: Revision) -> io::Result<()> {
        let n_changes = self.n_changes;
        self.identity.frame(self.length, &mut self.buffer, |buffer| codec::seal(buffer, revision, n_changes));
        self.flush()
    }

    /// Frames whole transactions until there are enough bytes, and returns what is left.
    fn frame<'a>(&mut self, batch: &'a [Entry]) -> &'a [Entry] {
        let mut bytes = 0;
        let mut n_entries = 0;
        for transaction in batch.chunk_by(|one, next| one.event.revision == next.event.revision) {
            bytes += transaction.iter().map(|entry| entry.event.record.value.len()).sum::<usize>();
            n_entries += transaction.len();
            if bytes > FRAME {
                break;
            }
        }
        let (framed, left) = batch.split_at(n_entries);
        let revision = framed.last().map_or(Revision::ZERO, |entry| entry.event.revision);
        self.identity.frame(self.length, &mut self.buffer, |buffer| {
            codec::batch(buffer, revision);
            framed.iter().for_each(|entry| codec::entry(buffer, entry));
        });
        left
    }

    fn flush(&mut self) -> io::Result<()> {
        let end = self.length + self.buffer.len() as u64;
        self.make_room(end)?;
        self.file.seek(SeekFrom::Start(self.length))?;
        self.file.write_all(&self.buffer)?;
        self.file.sync_data()?;
        self.length = end;
        self.buffer.clear();
        self.buffer.shrink_to(SPARE);
        self.tip.write(Tip { generation: self.identity.generation, length: self.length })
    }

    fn make_room(&mut self, end: u64) -> io::Result<()> {
        if end > self.room {
            self.file.seek(SeekFrom::Start(self.room))?;
            let room = (end + ROOM).next_multiple_of(ROOM);
            io::copy(&mut io::Read::take(io::repeat(0), room - self.room), &mut self.file)?;
            self.room = room;
        }
        Ok(())
    }
}

impl Drop for Log {
    /// Leaves exactly what was acknowledged, as far as the file system lets it: only tidier, and faster to open.
    fn drop(&mut self) {
        let _ = self.file.set_len(self.length);
    }
}
