//! The file that batches are appended to.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};

use super::commit_mark::{CommitMark, CommitMarkFile};
use super::file_ops::FileOps;
use super::frame::{FileIdentity, FileRole, HEADER};
use super::reserve::NEXT_LOG;
use super::{JournalDir, codec};
use crate::{AppendError, JournalEntry, Revision};

/// Room is written ahead in pieces of this size: a sync that neither grows the file nor allocates blocks costs the file
/// system no commit of its own, which halves it.
const ROOM: u64 = 1 << 20;

/// What puts leave of that room. When the disk is full, deletes and the seal go there.
const TAIL: u64 = 512 << 10;

/// A batch goes on in a new frame after this many bytes.
const FRAME: usize = 1 << 20;

/// The most that is kept allocated from one append to the next.
const SPARE: usize = 1 << 20;

/// An open log. What lies before `length` is durable and acknowledged.
pub(super) struct LogFile {
    ops: FileOps,
    identity: FileIdentity,
    file: File,
    commit_mark: CommitMarkFile,
    length: u64,
    /// How far the file is written, with zeros at the end.
    room: u64,
    n_changes: u64,
    buffer: Vec<u8>,
}

/// A log that is complete but for its name.
pub(super) struct NextLog {
    place: JournalDir,
    identity: FileIdentity,
    file: File,
}

impl NextLog {
    /// Writes an empty log with its room under a draft's name: all that takes space.
    pub(super) fn draft(place: &JournalDir, generation: u64) -> io::Result<NextLog> {
        let identity = FileIdentity {
            role: FileRole::Log,
            generation,
        };
        let mut start = identity.header();
        start.resize(NEXT_LOG as usize, 0);
        let (file, ()) = place.draft(&place.log(generation), false, |file| {
            place.ops.write(file, &start)
        })?;
        Ok(NextLog {
            place: place.clone(),
            identity,
            file,
        })
    }

    /// Begins the log.
    pub(super) fn begin(self, commit_mark: CommitMarkFile) -> io::Result<LogFile> {
        let NextLog {
            place,
            identity,
            file,
        } = self;
        place.publish(&place.log(identity.generation))?;
        let (ops, room) = (place.ops.clone(), NEXT_LOG);
        Ok(LogFile {
            ops,
            identity,
            file,
            commit_mark,
            length: HEADER,
            room,
            n_changes: 0,
            buffer: Vec::new(),
        })
    }

    /// Removes the draft.
    pub(super) fn discard(self) {
        self.place
            .discard_draft(&self.place.log(self.identity.generation));
    }
}

impl LogFile {
    /// Begins the first log of a directory. It gets its commit mark first, for a log without one is taken for damage.
    pub(super) fn create_first(place: &JournalDir) -> io::Result<LogFile> {
        let commit_mark = CommitMarkFile::open(
            place,
            CommitMark {
                generation: 1,
                length: HEADER,
            },
        )?;
        NextLog::draft(place, 1)?.begin(commit_mark)
    }

    /// Begins the log that follows a sealed one of `commit_mark.length` bytes.
    pub(super) fn create(place: &JournalDir, commit_mark: CommitMark) -> io::Result<LogFile> {
        let next = NextLog::draft(place, commit_mark.generation + 1)?;
        next.begin(CommitMarkFile::open(place, commit_mark)?)
    }

    /// Goes on with a log of which the first `length` bytes hold `n_changes`; what follows is dropped.
    pub(super) fn resume(
        place: &JournalDir,
        generation: u64,
        length: u64,
        n_changes: u64,
    ) -> io::Result<LogFile> {
        let identity = FileIdentity {
            role: FileRole::Log,
            generation,
        };
        let file = File::options().write(true).open(place.log(generation))?;
        if file.metadata()?.len() != length {
            // Part of a torn batch could otherwise be taken for the successor of what is written next.
            place.ops.truncate(&file, length)?;
            place.ops.sync_all(&file)?;
        }
        let commit_mark = CommitMarkFile::open(place, CommitMark { generation, length })?;
        let ops = place.ops.clone();
        Ok(LogFile {
            ops,
            identity,
            file,
            commit_mark,
            length,
            room: length,
            n_changes,
            buffer: Vec::new(),
        })
    }

    pub(super) fn generation(&self) -> u64 {
        self.identity.generation
    }

    /// The commit mark, for the log that follows.
    pub(super) fn share_commit_mark(&self) -> io::Result<CommitMarkFile> {
        self.commit_mark.share()
    }

    pub(super) fn len(&self) -> u64 {
        self.length
    }

    /// Makes room for `bytes` more, and for the tail.
    pub(super) fn allocate(&mut self, bytes: u64) -> io::Result<()> {
        self.make_room(self.length + bytes + TAIL)
    }

    /// Whether half of the tail is used up.
    pub(super) fn is_nearly_full(&self) -> bool {
        self.room.saturating_sub(self.length) < TAIL / 2
    }

    /// Makes `batch` durable.
    pub(super) fn append(&mut self, mut batch: &[JournalEntry]) -> Result<(), AppendError> {
        let n_changes = batch.len() as u64;
        while !batch.is_empty() {
            batch = self.frame(batch);
        }
        self.flush()?;
        self.n_changes += n_changes;
        Ok(())
    }

    /// Says that nothing follows, and that nothing is missing.
    pub(super) fn seal(&mut self, revision: Revision) -> Result<(), AppendError> {
        let n_changes = self.n_changes;
        self.identity
            .frame(self.length, &mut self.buffer, |buffer| {
                codec::seal(buffer, revision, n_changes)
            });
        self.flush()
    }

    /// Frames whole transactions until there are enough bytes, and returns what is left.
    fn frame<'a>(&mut self, batch: &'a [JournalEntry]) -> &'a [JournalEntry] {
        let mut bytes = 0;
        let mut n_entries = 0;
        for transaction in batch.chunk_by(|one, next| one.event.revision == next.event.revision) {
            bytes += transaction
                .iter()
                .map(|entry| entry.event.record.value.len())
                .sum::<usize>();
            n_entries += transaction.len();
            if bytes > FRAME {
                break;
            }
        }
        let (framed, left) = batch.split_at(n_entries);
        let revision = framed
            .last()
            .map_or(Revision::ZERO, |entry| entry.event.revision);
        self.identity
            .frame(self.length, &mut self.buffer, |buffer| {
                codec::batch(buffer, revision);
                framed.iter().for_each(|entry| codec::entry(buffer, entry));
            });
        left
    }

    /// Appends the buffer, or leaves the log as it was. Only after a failed sync is it not known which.
    fn flush(&mut self) -> Result<(), AppendError> {
        let outcome = self.write_buffer();
        self.buffer.clear();
        self.buffer.shrink_to(SPARE);
        outcome
    }

    fn write_buffer(&mut self) -> Result<(), AppendError> {
        let end = self.length + self.buffer.len() as u64;
        self.make_room(end).map_err(AppendError::NotWritten)?;
        if let Err(cause) = self.write_at_end() {
            return Err(self.roll_back(cause));
        }
        self.ops
            .sync_data(&self.file)
            .map_err(AppendError::Unknown)?;
        match self.commit_mark.write(
            &self.ops,
            CommitMark {
                generation: self.identity.generation,
                length: end,
            },
        ) {
            Ok(()) => {
                self.length = end;
                Ok(())
            }
            Err(AppendError::NotWritten(cause)) => Err(self.roll_back(cause)),
            unknown => unknown,
        }
    }

    fn write_at_end(&mut self) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(self.length))?;
        self.ops.write(&mut self.file, &self.buffer)
    }

    /// Takes back what was written of a batch: a part of it could otherwise be taken for the successor of what is
    /// written next.
    fn roll_back(&mut self, cause: io::Error) -> AppendError {
        let cut = self.ops.truncate(&self.file, self.length).and_then(|()| {
            self.room = self.length;
            self.ops.sync_all(&self.file)
        });
        match cut {
            Ok(()) => AppendError::NotWritten(cause),
            Err(_) => AppendError::Unknown(cause),
        }
    }

    fn make_room(&mut self, end: u64) -> io::Result<()> {
        if end <= self.room {
            return Ok(());
        }
        let room = (end + ROOM).next_multiple_of(ROOM);
        let written = self.write_zeros(room - self.room);
        match written {
            Ok(()) => self.room = room,
            // The file is truncated to what was there before; where that fails the rest is zeros, which replay ignores.
            Err(_) => drop(self.ops.truncate(&self.file, self.room)),
        }
        written
    }

    fn write_zeros(&mut self, n_bytes: u64) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(self.room))?;
        let zeros = vec![0; ROOM as usize];
        let mut left = n_bytes as usize;
        while left > 0 {
            let piece = left.min(zeros.len());
            self.ops.write(&mut self.file, &zeros[..piece])?;
            left -= piece;
        }
        Ok(())
    }
}

impl Drop for LogFile {
    /// Leaves exactly what was acknowledged, as far as the file system lets it: only tidier, and faster to open.
    fn drop(&mut self) {
        let _ = self.file.set_len(self.length);
    }
}
