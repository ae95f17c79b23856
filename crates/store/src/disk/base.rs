//! Compaction: writes the live state to a new base, so that older files can be removed.

use std::io::{self, BufWriter, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use super::file_ops::FileWriter;
use super::frame::{FileIdentity, FileRole, HEADER};
use super::{JournalDir, codec};
use crate::encryption::{self, MaybeEncryptor};
use crate::{LiveRecords, Record};

/// How many bytes of records go into one frame.
const FRAME: usize = 256 << 10;

/// A base is synced in pieces of this size: a sync of the log waits for what the disk was given before it, and that must not
/// be a whole base.
const SYNC_PIECE: u64 = 1 << 20;

/// The name of the thread that writes a base.
pub(super) const COMPACTION_THREAD: &str = "store-compact";

/// A base that is being written in the background.
pub(super) struct Compaction {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<u64>>>,
}

impl Compaction {
    /// Writes `live` as the base of `generation`, whose log has begun, and then removes what is older. If the base has a
    /// draft, that is where it is written.
    pub(super) fn start(
        place: &JournalDir,
        generation: u64,
        live: LiveRecords,
        encryptor: MaybeEncryptor,
        has_draft: bool,
    ) -> io::Result<Compaction> {
        let (place, stop) = (place.clone(), Arc::<AtomicBool>::default());
        let stopped = stop.clone();
        let work = move || {
            let identity = FileIdentity {
                role: FileRole::Base,
                generation,
            };
            let path = place.base(generation);
            let (_, length) = place.draft(&path, has_draft, |file| {
                let sink = BufWriter::new(FileWriter {
                    ops: &place.ops,
                    file,
                });
                let mut base = BaseWriter {
                    identity,
                    file: sink,
                    length: HEADER,
                    synced: 0,
                    buffer: Vec::new(),
                    encryptor,
                };
                base.file.write_all(&identity.header())?;
                base.write_records(&live, &stopped)?;
                base.file.flush()?;
                let length = base.length;
                drop(base);
                place.ops.truncate(file, length)?;
                Ok(length)
            })?;
            place.publish(&path)?;
            place.sweep(generation);
            Ok(length)
        };
        let thread = thread::Builder::new()
            .name(COMPACTION_THREAD.into())
            .spawn(work)?;
        Ok(Compaction {
            stop,
            thread: Some(thread),
        })
    }

    pub(super) fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for the end.
    #[cfg(test)]
    pub(super) fn wait(&self) {
        while !self.is_over() {
            thread::yield_now();
        }
    }

    /// The length of the base.
    pub(super) fn finish(mut self) -> io::Result<u64> {
        let thread = self.thread.take().ok_or(io::ErrorKind::NotFound)?;
        thread
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("compaction panicked")))
    }
}

impl Drop for Compaction {
    /// Gives up: the old files are still good. Waits, because the directory must be left alone after this.
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct BaseWriter<'a> {
    identity: FileIdentity,
    file: BufWriter<FileWriter<'a>>,
    length: u64,
    /// How much of it is durable.
    synced: u64,
    buffer: Vec<u8>,
    encryptor: MaybeEncryptor,
}

impl BaseWriter<'_> {
    fn write_records(&mut self, live: &LiveRecords, stop: &AtomicBool) -> io::Result<()> {
        let mut records = live.records().peekable();
        let mut n_records = 0;
        while records.peek().is_some() {
            if stop.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let encryptor = self.encryptor.clone();
            self.frame(|buffer| {
                codec::batch(buffer, live.revision);
                while let Some((space, record)) = records.next_if(|_| buffer.len() < FRAME) {
                    put(buffer, &encryptor, space, record)?;
                    n_records += 1;
                }
                Ok(())
            })?;
        }
        self.frame(|buffer| {
            codec::seal(buffer, live.revision, n_records);
            Ok(())
        })
    }

    fn frame(&mut self, fill: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> io::Result<()> {
        self.buffer.clear();
        let mut filled = Ok(());
        self.identity
            .frame(self.length, &mut self.buffer, |buffer| {
                filled = fill(buffer)
            });
        filled?;
        self.length += self.buffer.len() as u64;
        self.file.write_all(&self.buffer)?;
        match self.length - self.synced >= SYNC_PIECE {
            true => self.sync(),
            false => Ok(()),
        }
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.flush()?;
        let FileWriter { ops, file } = self.file.get_ref();
        ops.sync_data(file)?;
        self.synced = self.length;
        Ok(())
    }
}

/// Writes a record in its current form: a record under an old key is encrypted under the new one.
fn put(
    buffer: &mut Vec<u8>,
    encryptor: &MaybeEncryptor,
    space: &str,
    record: &Record,
) -> io::Result<()> {
    let encrypted = match encryptor {
        Some(encryptor) => {
            encryption::encrypt_record(&**encryptor, space, record).map_err(io::Error::other)?
        }
        None => None,
    };
    match encrypted {
        Some(encrypted) => codec::put_encrypted(buffer, space, record, &encrypted.bytes),
        None => codec::put(buffer, space, record),
    }
    Ok(())
}
