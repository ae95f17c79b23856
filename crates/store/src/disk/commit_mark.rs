//! The commit mark: how much of the log is acknowledged.
//!
//! Written after each append, without a sync of its own: it survives the process at once and a power cut a little
//! late, but never says more than was durable before. So a log that is shorter than its tip was damaged, and what is
//! torn beyond it was never acknowledged.

use std::fs::{self, File};
use std::io::{self, Seek};
use std::path::Path;

use super::JournalDir;
use super::file_ops::FileOps;
use crate::{AppendError, OpenError};

/// The first `length` bytes of the log of `generation` were acknowledged, and all logs before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CommitMark {
    pub(super) generation: u64,
    pub(super) length: u64,
}

impl CommitMark {
    /// The tip of a directory, if it has one.
    pub(super) fn read(path: &Path) -> Result<Option<CommitMark>, OpenError> {
        match fs::read(path) {
            Ok(bytes) => CommitMark::decode(&bytes)
                .map(Some)
                .ok_or_else(|| damaged(path)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(OpenError::Io {
                path: path.into(),
                source,
            }),
        }
    }

    fn encode(self) -> [u8; 20] {
        let mut bytes = [0; 20];
        bytes[..8].copy_from_slice(&self.generation.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.length.to_le_bytes());
        let checksum = crc32fast::hash(&bytes[..16]);
        bytes[16..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<CommitMark> {
        let number = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let tip = CommitMark {
            generation: number(0)?,
            length: number(8)?,
        };
        (tip.encode() == *bytes).then_some(tip)
    }
}

fn damaged(path: &Path) -> OpenError {
    OpenError::Corrupt {
        path: path.into(),
        detail: "its checksum does not match".into(),
    }
}

/// The tip's file, open for writing, and what it says.
pub(super) struct CommitMarkFile {
    file: File,
    tip: CommitMark,
}

impl CommitMarkFile {
    /// Opens the tip of `place`, which is created, durably, where there is none.
    pub(super) fn open(place: &JournalDir, tip: CommitMark) -> io::Result<CommitMarkFile> {
        let path = place.tip();
        let file = match path.exists() {
            true => File::options().write(true).open(&path)?,
            false => {
                place
                    .create(&path, |file| place.ops.write(file, &tip.encode()))?
                    .0
            }
        };
        let mut file = CommitMarkFile { file, tip };
        file.put(&place.ops, tip)?;
        Ok(file)
    }

    /// The same file, for the log that follows. It moves with the first append: until then nothing was promised there.
    pub(super) fn share(&self) -> io::Result<CommitMarkFile> {
        Ok(CommitMarkFile {
            file: self.file.try_clone()?,
            tip: self.tip,
        })
    }

    /// Moves the tip, or leaves it where it was.
    pub(super) fn write(&mut self, ops: &FileOps, tip: CommitMark) -> Result<(), AppendError> {
        match self.put(ops, tip) {
            Ok(()) => {
                self.tip = tip;
                Ok(())
            }
            Err(cause) => Err(match self.put(ops, self.tip) {
                Ok(()) => AppendError::NotWritten(cause),
                Err(_) => AppendError::Unknown(cause),
            }),
        }
    }

    fn put(&mut self, ops: &FileOps, tip: CommitMark) -> io::Result<()> {
        self.file.rewind()?;
        ops.write(&mut self.file, &tip.encode())
    }
}
