//! The log backend: one line per event.
//!
//! A blocking request writes its line itself: a write into the page cache costs less than waking
//! another task.
//!
//! Invariant: the file contains whole lines only, also when the disk is full.

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
use crate::counters::{AuditMetrics, AuditPlugin};
use crate::event::StagedEvent;
use rotate::Backups;

const MEGABYTE: u64 = 1024 * 1024;

/// The format of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditLogFormat {
    /// JSON.
    Json,
    /// The legacy format: one line with some fields.
    Legacy,
}

/// Options of the log backend.
#[derive(Debug, Clone)]
pub struct LogFile {
    /// The path; `-` is the standard output.
    pub path: PathBuf,
    /// The format of events.
    pub format: AuditLogFormat,
    /// How many days backups are kept; 0 is no limit.
    pub max_age: u32,
    /// How many backups are kept; 0 is no limit.
    pub max_backups: usize,
    /// The size in megabytes at which the file is rotated; 0 is no limit.
    pub max_size: u64,
    /// Whether backups are compressed.
    pub compress: bool,
    /// How events are delivered.
    pub delivery: Delivery,
}

impl LogFile {
    /// Creates the file, so that errors are found at start-up.
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

/// The log backend.
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

    pub(super) fn serialize(&self, event: StagedEvent) -> Bytes {
        let mut text = match self.file.format {
            AuditLogFormat::Json => event.json(true),
            AuditLogFormat::Legacy => event.legacy_line().into_bytes(),
        };
        text.push(b'\n');
        text.into()
    }

    /// Writes events. Returns whether all were written; lost ones are counted as errors.
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
            // A partial line is removed.
            Err(_) => drop(current.file.set_len(current.size)),
        }
        written
    }

    /// The open file, rotated first if `more` bytes do not fit.
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
            // After an error the next event opens the file again.
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

    /// Removes and compresses backups in the background.
    fn maintain_backups(&self) {
        let (old, now) = (self.old.clone(), self.registry.now());
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(move || old.maintain(now))),
            Err(_) => old.maintain(now),
        }
    }
}
