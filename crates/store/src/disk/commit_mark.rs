//! The commit mark: how much of the log is acknowledged.
//!
//! Written after each append, without a sync of its own: it survives the process at once and a power cut a little
//! late, but never says more than was durable before. So a log that is shorter than its commit mark was damaged, and what is
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
    /// The commit mark of a directory, if it has one.
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

    pub(super) fn encode(self) -> [u8; 20] {
        let mut bytes = [0; 20];
        bytes[..8].copy_from_slice(&self.generation.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.length.to_le_bytes());
        let checksum = crc32fast::hash(&bytes[..16]);
        bytes[16..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<CommitMark> {
        let number = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let commit_mark = CommitMark {
            generation: number(0)?,
            length: number(8)?,
        };
        (commit_mark.encode() == *bytes).then_some(commit_mark)
    }
}

fn damaged(path: &Path) -> OpenError {
    OpenError::Corrupt {
        path: path.into(),
        detail: "its checksum does not match".into(),
    }
}

/// The commit mark's file, open for writing, and what it says.
pub(super) struct CommitMarkFile {
    file: File,
    commit_mark: CommitMark,
}

impl CommitMarkFile {
    /// Opens the commit mark of `place`, which is created, durably, where there is none.
    pub(super) fn open(place: &JournalDir, commit_mark: CommitMark) -> io::Result<CommitMarkFile> {
        let path = place.commit_mark();
        let file = match path.exists() {
            true => File::options().write(true).open(&path)?,
            false => {
                place
                    .create(&path, |file| place.ops.write(file, &commit_mark.encode()))?
                    .0
            }
        };
        let mut file = CommitMarkFile { file, commit_mark };
        file.put(&place.ops, commit_mark)?;
        Ok(file)
    }

    /// The same file, for the log that follows. It moves with the first append: until then nothing was promised there.
    pub(super) fn share(&self) -> io::Result<CommitMarkFile> {
        Ok(CommitMarkFile {
            file: self.file.try_clone()?,
            commit_mark: self.commit_mark,
        })
    }

    /// Moves the commit mark, or leaves it where it was.
    pub(super) fn write(
        &mut self,
        ops: &FileOps,
        commit_mark: CommitMark,
    ) -> Result<(), AppendError> {
        match self.put(ops, commit_mark) {
            Ok(()) => {
                self.commit_mark = commit_mark;
                Ok(())
            }
            Err(cause) => Err(match self.put(ops, self.commit_mark) {
                Ok(()) => AppendError::NotWritten(cause),
                Err(_) => AppendError::Unknown(cause),
            }),
        }
    }

    fn put(&mut self, ops: &FileOps, commit_mark: CommitMark) -> io::Result<()> {
        self.file.rewind()?;
        ops.write(&mut self.file, &commit_mark.encode())
    }
}
