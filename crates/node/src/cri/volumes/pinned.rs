//! Files that are opened where they are, and never by a link.
//!
//! A container may replace a file of its volume by a link at any time. What the agent changes or
//! mounts there is therefore opened without following links, and used by its descriptor.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use nix::libc::{O_NOFOLLOW, O_PATH};

/// An open file or directory, or a link itself.
pub(super) struct Pinned(File);

impl Pinned {
    /// Opens a path whose directories no container can change.
    pub(super) fn open(path: &Path) -> io::Result<Pinned> {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(O_PATH | O_NOFOLLOW);
        Ok(Pinned(options.open(path)?))
    }

    /// Opens an entry of this directory.
    pub(super) fn entry(&self, name: &OsStr) -> io::Result<Pinned> {
        Pinned::open(&self.path().join(name))
    }

    /// The path of the descriptor, which leads to this file whatever its name is now.
    pub(super) fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.0.as_raw_fd()).into()
    }

    pub(super) fn metadata(&self) -> io::Result<Metadata> {
        self.0.metadata()
    }

    /// Calls `visit` for everything below a directory on the same file system, then for itself.
    /// What has gone meanwhile is left out.
    pub(super) fn walk(
        &self,
        visit: &mut dyn FnMut(&Pinned, &Metadata) -> io::Result<()>,
    ) -> io::Result<()> {
        use std::os::unix::fs::MetadataExt as _;

        let own = self.metadata()?;
        if own.is_dir() {
            for entry in fs::read_dir(self.path())? {
                let below = match self.entry(&entry?.file_name()) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    below => below?,
                };
                if below.metadata()?.dev() == own.dev() {
                    below.walk(visit)?;
                }
            }
        }
        visit(self, &own)
    }
}
