//! The file operations of a journal that can fail, in one place, so that a test can make each of them fail.

use std::fs::{self, File};
use std::io;
#[cfg(not(test))]
use std::io::Write as _;
use std::path::Path;

/// Executes file operations.
#[derive(Clone, Debug, Default)]
pub(super) struct FileOps {
    /// Whether nothing is synced: [`Options::unsafe_no_fsync`](crate::Options::unsafe_no_fsync).
    skips_sync: bool,
    #[cfg(test)]
    pub(super) faults: std::sync::Arc<faults::Faults>,
}

/// What is done to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileOperation {
    /// Bytes are written, of which so many lie beyond the end of the file.
    #[cfg(test)]
    Write(u64),
    Allocate(u64),
    Truncate,
    Sync,
    Rename,
}

impl FileOps {
    /// Operations of a store that is synced, or not.
    pub(super) fn new(skips_sync: bool) -> FileOps {
        FileOps {
            skips_sync,
            #[cfg(test)]
            faults: Default::default(),
        }
    }

    /// Writes all of `bytes` where the file's cursor is.
    pub(super) fn write(&self, file: &mut File, bytes: &[u8]) -> io::Result<()> {
        #[cfg(test)]
        return self.faults.write(file, bytes);
        #[cfg(not(test))]
        file.write_all(bytes)
    }

    /// Makes sure that the first `length` bytes of a file have their place on the disk. New ones read as zero. A file system
    /// that cannot allocate ahead only gets a longer file: writing as many zeros would hold up all writers.
    pub(super) fn allocate(&self, file: &File, length: u64) -> io::Result<()> {
        let present = file.metadata()?.len();
        self.check(FileOperation::Allocate(length.saturating_sub(present)))?;
        #[cfg(target_os = "linux")]
        loop {
            let flags = nix::fcntl::FallocateFlags::empty();
            match nix::fcntl::fallocate(file, flags, 0, length as i64) {
                // A signal came, such as that of a profiler.
                Err(nix::errno::Errno::EINTR) => continue,
                Err(nix::errno::Errno::EOPNOTSUPP) => break,
                outcome => return outcome.map_err(io::Error::from),
            }
        }
        file.set_len(length.max(present))
    }

    /// Cuts a file.
    pub(super) fn truncate(&self, file: &File, length: u64) -> io::Result<()> {
        self.check(FileOperation::Truncate)?;
        #[cfg(test)]
        self.faults.forget_pages(file, length);
        file.set_len(length)
    }

    /// Makes a file's content durable.
    pub(super) fn sync_data(&self, file: &File) -> io::Result<()> {
        self.check_sync(file)?;
        match self.skips_sync {
            true => Ok(()),
            false => file.sync_data(),
        }
    }

    /// Makes a file's content and metadata durable.
    pub(super) fn sync_all(&self, file: &File) -> io::Result<()> {
        self.check_sync(file)?;
        match self.skips_sync {
            true => Ok(()),
            false => file.sync_all(),
        }
    }

    pub(super) fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.check(FileOperation::Rename)?;
        #[cfg(test)]
        self.faults.note_rename(from, to);
        fs::rename(from, to)
    }

    #[cfg(not(test))]
    fn check(&self, _operation: FileOperation) -> io::Result<()> {
        Ok(())
    }

    #[cfg(test)]
    fn check(&self, operation: FileOperation) -> io::Result<()> {
        self.faults.check(operation)
    }

    fn check_sync(&self, _file: &File) -> io::Result<()> {
        let checked = self.check(FileOperation::Sync);
        #[cfg(test)]
        self.faults.note_sync(_file, checked.is_ok());
        checked
    }
}

/// A file as something that is written to.
pub(super) struct FileWriter<'a> {
    pub(super) ops: &'a FileOps,
    pub(super) file: &'a mut File,
}

impl io::Write for FileWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.ops.write(self.file, bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What goes wrong in tests.
#[cfg(test)]
#[path = "faults.rs"]
pub(super) mod faults;
