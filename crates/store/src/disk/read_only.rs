//! A journal that is read and never written.

use std::io;
use std::path::Path;

use super::file_ops::FileOps;
use super::{DirLock, JournalDir, replay};
use crate::{AppendError, Journal, JournalEntry, OpenError, Revision, Saved};

/// The journal in a directory, which stays as it is. No other process may use it meanwhile.
pub(crate) struct ReadOnlyDisk {
    place: JournalDir,
    /// Held, not read.
    _lock: DirLock,
}

impl ReadOnlyDisk {
    pub(crate) fn open(dir: &Path) -> Result<ReadOnlyDisk, OpenError> {
        let place = JournalDir {
            dir: dir.into(),
            ops: FileOps::default(),
        };
        // A directory in which nothing was ever stored is not made one by reading it.
        std::fs::read_dir(dir).map_err(|source| OpenError::Io {
            path: dir.into(),
            source,
        })?;
        Ok(ReadOnlyDisk {
            _lock: DirLock::acquire(&place.dir.join("lock"))?,
            place,
        })
    }
}

impl Journal for ReadOnlyDisk {
    fn replay(&mut self, load: &mut dyn FnMut(Saved<'_>)) -> Result<Option<Revision>, OpenError> {
        replay::read(&self.place, load)
    }

    fn append(&mut self, _batch: &[JournalEntry]) -> Result<(), AppendError> {
        Err(AppendError::NotWritten(
            io::ErrorKind::ReadOnlyFilesystem.into(),
        ))
    }
}
