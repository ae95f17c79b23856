//! The file operations of a journal that can fail, in one place, so that a test can make each of them fail.

use std::fs::{self, File};
use std::io::{self, Seek as _, Write as _};
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
        if cfg!(test) {
            let end = file.stream_position()? + bytes.len() as u64;
            let growth = end.saturating_sub(file.metadata()?.len());
            if let Err(error) = self.check(FileOperation::Write(growth)) {
                // A disk that fills up takes a part of what is written.
                file.write_all(&bytes[..bytes.len() / 2])?;
                return Err(error);
            }
        }
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
        file.set_len(length)
    }

    /// Makes a file's content durable.
    pub(super) fn sync_data(&self, file: &File) -> io::Result<()> {
        self.check(FileOperation::Sync)?;
        match self.skips_sync {
            true => Ok(()),
            false => file.sync_data(),
        }
    }

    /// Makes a file's content and metadata durable.
    pub(super) fn sync_all(&self, file: &File) -> io::Result<()> {
        self.check(FileOperation::Sync)?;
        match self.skips_sync {
            true => Ok(()),
            false => file.sync_all(),
        }
    }

    pub(super) fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.check(FileOperation::Rename)?;
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
pub(super) mod faults {
    use parking_lot::Mutex;
    use std::path::PathBuf;

    use super::*;

    /// How operations fail. By default none does.
    #[derive(Debug, Default)]
    pub(crate) struct Faults(Mutex<FaultPlan>);

    #[derive(Debug, Default)]
    struct FaultPlan {
        /// How many operations succeed before one fails, once.
        countdown: Option<usize>,
        /// The directory is on a disk of this size.
        disk: Option<(PathBuf, u64)>,
        /// Every sync fails.
        unsynced: bool,
        n_failed: usize,
        /// Compactions are waited for, so that operations have one order.
        in_order: bool,
    }

    impl Faults {
        /// Lets one operation fail, after `countdown` that succeed.
        pub(crate) fn fail_after(&self, countdown: usize) {
            self.0.lock().countdown = Some(countdown);
        }

        /// Lets the files of `dir` take no more than `size` bytes.
        pub(crate) fn limit(&self, dir: &Path, size: u64) {
            self.0.lock().disk = Some((dir.into(), size));
        }

        pub(crate) fn fail_syncs(&self) {
            self.0.lock().unsynced = true;
        }

        pub(crate) fn lift(&self) {
            let mut plan = self.0.lock();
            *plan = FaultPlan {
                n_failed: plan.n_failed,
                in_order: plan.in_order,
                ..FaultPlan::default()
            };
        }

        pub(crate) fn n_failed(&self) -> usize {
            self.0.lock().n_failed
        }

        pub(crate) fn keep_order(&self) {
            self.0.lock().in_order = true;
        }

        pub(crate) fn is_in_order(&self) -> bool {
            self.0.lock().in_order
        }

        pub(super) fn check(&self, operation: FileOperation) -> io::Result<()> {
            let mut plan = self.0.lock();
            let is_due = match plan.countdown {
                Some(0) => plan.countdown.take().is_some(),
                Some(left) => plan.countdown.replace(left - 1).is_none(),
                None => false,
            };
            let error = match operation {
                FileOperation::Sync if is_due || plan.unsynced => io::ErrorKind::Other,
                _ if is_due => io::ErrorKind::StorageFull,
                FileOperation::Write(growth) | FileOperation::Allocate(growth)
                    if plan.is_full(growth) =>
                {
                    io::ErrorKind::StorageFull
                }
                _ => return Ok(()),
            };
            plan.n_failed += 1;
            Err(error.into())
        }
    }

    impl FaultPlan {
        fn is_full(&self, growth: u64) -> bool {
            let Some((dir, size)) = self.disk.as_ref().filter(|_| growth > 0) else {
                return false;
            };
            let files = fs::read_dir(dir)
                .unwrap()
                .flatten()
                .filter_map(|entry| entry.metadata().ok());
            files.map(|file| file.len()).sum::<u64>() + growth > *size
        }
    }
}
