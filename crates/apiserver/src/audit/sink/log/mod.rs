//! Events that are written to a file, a line each.
//!
//! A request that waits writes its line itself: a write into the page cache costs less than waking another task.
//!
//! Invariant: a line is in the file as a whole or not at all, also when the disk is full.

mod rotate;

use parking_lot::Mutex;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use mizzen_registry::Registry;

use super::Delivery;
use crate::audit::counters::{AuditMetrics, AuditPlugin};
use crate::audit::event::StagedEvent;
use rotate::Backups;

const MEGABYTE: u64 = 1024 * 1024;

/// How an event reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// All of it, as JSON.
    Json,
    /// A part of it, for people.
    Legacy,
}

/// The file that events are written to.
#[derive(Debug, Clone)]
pub struct LogFile {
    /// Where it is; `-` is the standard output.
    pub path: PathBuf,
    /// How events read.
    pub format: LogFormat,
    /// How many days old files are kept; 0 keeps them.
    pub max_age: u32,
    /// How many old files are kept; 0 keeps them all.
    pub max_backups: usize,
    /// How many megabytes it may have before another is begun; 0 is any number.
    pub max_size: u64,
    /// Whether old files are compressed.
    pub compress: bool,
    /// How events get there.
    pub delivery: Delivery,
}

impl LogFile {
    /// Makes the file, so that it is known at once if that cannot be done.
    pub fn create(&self) -> io::Result<()> {
        if self.is_standard_output() {
            return Ok(());
        }
        let directory = self
            .path
            .parent()
            .filter(|path| !path.as_os_str().is_empty());
        if let Some(directory) = directory {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(directory)?;
        }
        open(&self.path).map(drop)
    }

    fn is_standard_output(&self) -> bool {
        self.path == Path::new("-")
    }

    fn max_bytes(&self) -> u64 {
        self.max_size.saturating_mul(MEGABYTE)
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)
}

/// The file while it is written to.
pub(super) struct AuditLog {
    file: LogFile,
    registry: Registry,
    current: Mutex<Option<OpenLogFile>>,
    old: Arc<Backups>,
}

struct OpenLogFile {
    file: File,
    size: u64,
}

impl AuditLog {
    pub(super) fn new(file: LogFile, registry: &Registry) -> AuditLog {
        let old = Arc::new(Backups::new(&file));
        AuditLog {
            file,
            registry: registry.clone(),
            current: Mutex::default(),
            old,
        }
    }

    /// An event as it reads here.
    pub(super) fn serialize(&self, told: StagedEvent) -> Bytes {
        let mut text = match self.file.format {
            LogFormat::Json => told.json(true),
            LogFormat::Legacy => told.legacy_line().into_bytes(),
        };
        text.push(b'\n');
        text.into()
    }

    /// Writes events; whether all were. Those that were not are counted as lost.
    pub(super) fn write_all(&self, texts: &[Bytes], counters: &AuditMetrics) -> bool {
        let mut all = true;
        for text in texts {
            if let Err(error) = self.write(text) {
                counters.record_errors(AuditPlugin::Log, 1, &error.to_string());
                all = false;
            }
        }
        all
    }

    fn write(&self, text: &[u8]) -> io::Result<()> {
        if self.file.is_standard_output() {
            return io::stdout().lock().write_all(text);
        }
        let mut kept = self.current.lock();
        let current = self.file_for(&mut kept, text.len() as u64)?;
        let written = current.file.write_all(text);
        match &written {
            Ok(()) => current.size += text.len() as u64,
            // A part of a line is worse than none.
            Err(_) => drop(current.file.set_len(current.size)),
        }
        written
    }

    /// The file, if `more` bytes fit in it; otherwise it is put aside, and another is begun.
    fn file_for<'a>(
        &self,
        kept: &'a mut Option<OpenLogFile>,
        more: u64,
    ) -> io::Result<&'a mut OpenLogFile> {
        let most = self.file.max_bytes();
        if most > 0 && more > most {
            let problem = format!("write length {more} exceeds maximum file size {most}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
        }
        if kept.is_none() {
            let file = open(&self.file.path)?;
            let size = file.metadata()?.len();
            *kept = Some(OpenLogFile { file, size });
            self.maintain_backups();
        }
        if most > 0
            && kept
                .as_ref()
                .is_some_and(|current| current.size > 0 && current.size + more > most)
        {
            // Whatever goes wrong from here on, the next event opens a file again.
            *kept = None;
            self.old.rotate(&self.file.path, self.registry.moment())?;
            *kept = Some(OpenLogFile {
                file: open(&self.file.path)?,
                size: 0,
            });
            self.maintain_backups();
        }
        Ok(kept.as_mut().expect("it was just opened"))
    }

    /// Cares for old files, beside everything else.
    fn maintain_backups(&self) {
        let (old, now) = (self.old.clone(), self.registry.now());
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(move || old.maintain(now))),
            Err(_) => old.maintain(now),
        }
    }
}
