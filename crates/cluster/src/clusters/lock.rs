//! The lock of a running cluster: a POSIX record lock on a file in its directory.
//!
//! Unlike flock, the kernel reports the pid of its holder (`F_GETLK`) without acquiring it, so that `mizzen status` never
//! disturbs a cluster that starts, and a pid is never stale. The lock ends with the process.
//!
//! Invariant: a process opens the file once: closing any descriptor of it would release the lock.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;

use super::directory::ClusterDirectoryError;

/// A lock that this process holds.
#[derive(Debug)]
pub(crate) struct ClusterLock {
    _file: File,
}

/// The outcome of an attempt to lock.
pub(super) enum LockAttempt {
    /// This process has the lock.
    Acquired(ClusterLock),
    /// Another process has it.
    Held,
}

impl ClusterLock {
    /// Acquires the lock, if no other process has it.
    pub(super) fn acquire(path: &Path) -> Result<LockAttempt, ClusterDirectoryError> {
        let failed = |source: io::Error| ClusterDirectoryError::at(path)(source);
        loop {
            let file = OpenOptions::new()
                .create(true)
                .truncate(false)
                .write(true)
                .mode(0o600)
                .open(path)
                .map_err(failed)?;
            match fcntl(&file, FcntlArg::F_SETLK(&whole_file())) {
                Ok(_) => {}
                Err(Errno::EACCES | Errno::EAGAIN) => return Ok(LockAttempt::Held),
                Err(errno) => return Err(failed(errno.into())),
            }
            // A purge may have deleted the file between the two steps; then the lock excludes no other process.
            let locked = file.metadata().map_err(failed)?;
            let is_current = std::fs::metadata(path)
                .is_ok_and(|found| (found.dev(), found.ino()) == (locked.dev(), locked.ino()));
            if is_current {
                return Ok(LockAttempt::Acquired(ClusterLock { _file: file }));
            }
        }
    }

    /// The pid of the process that has the lock; 0 if that process is in another PID namespace.
    pub(super) fn holder(path: &Path) -> Result<Option<i32>, ClusterDirectoryError> {
        let failed = |source: io::Error| ClusterDirectoryError::at(path)(source);
        let file = match OpenOptions::new().write(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(failed)?,
        };
        let mut lock = whole_file();
        fcntl(&file, FcntlArg::F_GETLK(&mut lock)).map_err(|errno| failed(errno.into()))?;
        let is_free = lock.l_type == libc::F_UNLCK as libc::c_short;
        Ok((!is_free).then_some(lock.l_pid.max(0)))
    }
}

/// An exclusive lock of a whole file.
fn whole_file() -> libc::flock {
    libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}
