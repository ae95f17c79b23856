//! The journal on disk: a log of batches, compacted into a base when most of it is superseded.
//!
//! Nothing is ever read back while the store runs, so an engine with trees or levels would only add work: a log makes
//! a batch durable with one write and one `fdatasync`. A generation `g` is two files, the `g.base` that says what was
//! live when it began and the `g.log` of everything since. Compaction seals the log, begins `g+1.log`, writes
//! `g+1.base` in the background and removes what is older once that is complete; so at any moment
//! *newest base + its log + newer logs* is everything.
//!
//! A full disk: puts are rejected before they take the last of the space. Deletes go into the preallocated tail of the
//! log, a compaction into the `reserve`, and a failed write leaves no trace.
//!
//! Invariant: all that was acknowledged opens again, or opening fails and names the file. Every byte that counts is
//! under a checksum, a sealed file ends with its seal, and the `tip` says how long the last log must at least be. So
//! only an unacknowledged tail can be dropped: a write that a kill or a power cut interrupted.

mod backup;
mod base;
mod codec;
mod commit_mark;
pub(crate) mod content;
mod create;
mod encryption_state;
mod file_ops;
mod frame;
mod log;
mod read_only;
mod replay;
mod reserve;
#[cfg(test)]
mod tests;

pub use self::backup::backup;
pub use self::create::{CreatedRecord, create};
pub(crate) use self::read_only::ReadOnlyDisk;

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use self::base::Compaction;
use self::encryption_state::EncryptionState;
use self::file_ops::FileOps;
use self::log::{LogFile, NextLog};
use self::reserve::{NEXT_LOG, Reserve};
use crate::encryption::MaybeEncryptor;
use crate::{AppendError, Journal, JournalEntry, LiveRecords, OpenError, Options, Revision, Saved};

/// On a full disk a compaction is worth its cost if it frees this much, or a sixteenth of what it writes.
const WORTHWHILE: u64 = 128 << 10;

/// How much the log must take on a disk that was full for puts to be taken again.
const RELIEF: u64 = 1 << 20;

/// How much longer than a small base its logs may get. Each compaction costs writers some latency, and a store of which few
/// records change often would otherwise have one every few seconds.
const LOGS_PER_BASE: u64 = 4;

/// Up to how many times the compaction size that holds: reading so much at start takes about a tenth of a second.
const SHORT_LOGS: u64 = 8;

/// A journal in a directory of its own.
pub(crate) struct Disk {
    place: JournalDir,
    /// The logs are never compacted before they are larger than this.
    compaction_bytes: u64,
    base_bytes: u64,
    /// What the base held, as [`Journal::allocate`] counts it.
    base_live_bytes: u64,
    /// The bytes of the logs since the base, without the one that is written to.
    sealed_bytes: u64,
    live_bytes: u64,
    /// Whether there was too little space for puts when it was last needed.
    is_full: bool,
    revision: Revision,
    log: Option<LogFile>,
    compaction: Option<Compaction>,
    n_failed_compactions: u64,
    retry: Retry,
    reserve: Reserve,
    encryption: EncryptionState,
    /// Held, not read: it is released after everything above is dropped.
    _lock: DirLock,
}

impl Disk {
    /// Takes `dir`, which is created if need be, for this process alone.
    pub(crate) fn open(dir: &Path, options: &Options) -> Result<Disk, OpenError> {
        let ops = FileOps::new(options.unsafe_no_fsync);
        Disk::open_with(
            ops,
            dir,
            options.compaction_bytes,
            options.encryptor.clone(),
        )
    }

    fn open_with(
        ops: FileOps,
        dir: &Path,
        compaction_bytes: u64,
        encryptor: MaybeEncryptor,
    ) -> Result<Disk, OpenError> {
        create_dir(dir).map_err(|source| OpenError::Io {
            path: dir.into(),
            source,
        })?;
        let place = JournalDir {
            dir: dir.into(),
            ops,
        };
        let _lock = DirLock::acquire(&place.dir.join("lock"))?;
        place.make_private().map_err(|source| OpenError::Io {
            path: dir.into(),
            source,
        })?;
        Ok(Disk {
            compaction_bytes,
            base_bytes: 0,
            base_live_bytes: 0,
            sealed_bytes: 0,
            live_bytes: 0,
            is_full: false,
            revision: Revision::ZERO,
            log: None,
            compaction: None,
            n_failed_compactions: 0,
            retry: Retry::default(),
            reserve: Reserve::open(&place),
            encryption: EncryptionState::new(encryptor),
            place,
            _lock,
        })
    }

    /// Allocates what the next compaction needs, and then the log. A disk that was full must have more space for both than
    /// one put takes, so that it is not full again with the next.
    fn try_allocate(&mut self, bytes: u64) -> io::Result<()> {
        // What the compaction that runs gives back when it is over is there for the next one.
        let freed_bytes = match self.compaction {
            Some(_) => self.base_bytes + self.sealed_bytes,
            None => 0,
        };
        let (live_growth, log_growth) = match self.is_full {
            true => (bytes.max(WORTHWHILE), bytes.max(RELIEF)),
            false => (bytes, bytes),
        };
        let needed = self.live_bytes + live_growth + NEXT_LOG;
        self.reserve.ensure(needed.saturating_sub(freed_bytes))?;
        self.log
            .as_mut()
            .ok_or(io::ErrorKind::NotConnected)?
            .allocate(log_growth)
    }

    /// Begins a new generation. All that takes space comes before the old log is sealed: if there is none, nothing has
    /// changed.
    fn start_over(&mut self, live: LiveRecords) -> Result<(), AppendError> {
        let not_open = || AppendError::NotWritten(io::ErrorKind::NotConnected.into());
        let log = self.log.as_mut().ok_or_else(not_open)?;
        let generation = log.generation() + 1;
        let next = NextLog::draft(&self.place, generation).or_else(|_| {
            self.reserve.release_log();
            NextLog::draft(&self.place, generation)
        });
        let next = next.map_err(AppendError::NotWritten)?;
        if let Err(error) = log.seal(self.revision) {
            next.discard();
            return Err(error);
        }
        self.sealed_bytes += log.len();
        // The old log is sealed: without a new one nothing can be written.
        let begun = log
            .share_commit_mark()
            .and_then(|commit_mark| next.begin(commit_mark));
        self.log = Some(begun.map_err(AppendError::Unknown)?);
        let encryptor = self.encryption.renew();
        let has_draft = self.reserve.rename(&draft_of(&self.place.base(generation)));
        self.base_live_bytes = self.live_bytes;
        let compaction = Compaction::start(&self.place, generation, live, encryptor, has_draft);
        self.compaction = Some(compaction.map_err(AppendError::NotWritten)?);
        Ok(())
    }

    /// Takes note of a compaction that has ended. One that failed leaves everything as it was, only larger.
    fn settle(&mut self) {
        #[cfg(test)]
        if self.place.ops.faults.is_in_order() {
            self.compaction.iter().for_each(Compaction::wait);
        }
        let Some(compaction) = self.compaction.take_if(|compaction| compaction.is_over()) else {
            return;
        };
        match compaction.finish() {
            Ok(base_bytes) => {
                self.base_bytes = base_bytes;
                self.sealed_bytes = 0;
                self.retry = Retry::default();
            }
            Err(_) => self.note_failed_compaction(),
        }
    }

    /// The next opportunity is when the logs have grown, on a full disk by a little, or when there is less to write, or
    /// space again.
    fn note_failed_compaction(&mut self) {
        self.n_failed_compactions += 1;
        self.encryption.set_outdated();
        let growth = if self.is_full {
            WORTHWHILE / 2
        } else {
            self.compaction_bytes / 4
        };
        self.retry = Retry {
            log_bytes: self.log_bytes() + growth,
            live_bytes: self.live_bytes.saturating_sub(growth),
        };
    }

    /// The bytes of all logs since the base.
    fn log_bytes(&self) -> u64 {
        self.sealed_bytes + self.log.as_ref().map_or(0, LogFile::len)
    }

    /// How long the logs get before they are compacted.
    fn max_log_bytes(&self) -> u64 {
        let short = (LOGS_PER_BASE * self.base_bytes).min(SHORT_LOGS * self.compaction_bytes);
        self.compaction_bytes.max(self.base_bytes).max(short)
    }

    /// Whether the disk is full and a compaction would give back something of it, or is needed for more deletes.
    fn can_free_space(&self) -> bool {
        let kept_bytes = self.base_live_bytes + self.log_bytes();
        let worthwhile = WORTHWHILE.max(self.live_bytes / 16);
        let is_worthwhile = kept_bytes.saturating_sub(self.live_bytes) >= worthwhile;
        self.is_full && (is_worthwhile || self.log.as_ref().is_some_and(LogFile::is_nearly_full))
    }
}

impl Journal for Disk {
    fn replay(&mut self, load: &mut dyn FnMut(Saved<'_>)) -> Result<Option<Revision>, OpenError> {
        let encryption = &mut self.encryption;
        let replayed = replay::replay(&self.place, &mut |saved| {
            encryption.look_at(&saved);
            load(saved);
        })?;
        self.base_bytes = replayed.base_bytes;
        self.base_live_bytes = replayed.base_bytes;
        self.sealed_bytes = replayed.sealed_bytes;
        self.revision = replayed.revision;
        self.log = Some(replayed.log);
        Ok((self.revision > Revision::ZERO).then_some(self.revision))
    }

    fn allocate(&mut self, bytes: u64, live_bytes: u64) -> io::Result<()> {
        self.live_bytes = live_bytes;
        self.settle();
        let allocated = self.try_allocate(bytes);
        if allocated.is_ok() && self.is_full {
            self.retry = Retry::default();
        }
        self.is_full = allocated.is_err();
        allocated
    }

    fn append(&mut self, batch: &[JournalEntry]) -> Result<(), AppendError> {
        let not_open = || AppendError::NotWritten(io::ErrorKind::NotConnected.into());
        self.log.as_mut().ok_or_else(not_open)?.append(batch)?;
        self.revision = batch
            .last()
            .map_or(self.revision, |entry| entry.event.revision);
        self.settle();
        Ok(())
    }

    fn is_bloated(&self) -> bool {
        let log_bytes = self.log_bytes();
        let is_long = log_bytes > self.max_log_bytes();
        // Where nothing was ever written, no key has encrypted anything.
        let is_outdated = self.revision > Revision::ZERO && self.encryption.are_outdated();
        let is_wanted = is_long || is_outdated || self.can_free_space();
        let is_due = log_bytes >= self.retry.log_bytes
            || self.is_full && self.live_bytes <= self.retry.live_bytes;
        self.compaction.is_none() && is_due && is_wanted
    }

    fn compact(&mut self, live: LiveRecords) -> Result<(), AppendError> {
        let started = self.start_over(live);
        if started.is_err() {
            self.note_failed_compaction();
        }
        #[cfg(test)]
        if self.place.ops.faults.is_in_order() {
            self.settle();
        }
        started
    }

    fn n_failed_compactions(&self) -> u64 {
        self.n_failed_compactions
    }
}

/// When a compaction that failed is tried again; by default at once.
#[derive(Default)]
struct Retry {
    /// How long the logs must be,
    log_bytes: u64,
    /// or how little must be live while the disk is full.
    live_bytes: u64,
}

/// Where a journal's files are.
#[derive(Clone, Debug)]
struct JournalDir {
    dir: PathBuf,
    ops: FileOps,
}

impl JournalDir {
    fn base(&self, generation: u64) -> PathBuf {
        self.dir.join(format!("{generation:08}.base"))
    }

    fn log(&self, generation: u64) -> PathBuf {
        self.dir.join(format!("{generation:08}.log"))
    }

    fn commit_mark(&self) -> PathBuf {
        self.dir.join("tip")
    }

    fn reserve(&self) -> PathBuf {
        self.dir.join("reserve")
    }

    fn remove_reserve(&self) -> io::Result<()> {
        fs::remove_file(self.reserve())
    }

    /// The generations of which there is a file with this extension, in order.
    fn generations(&self, extension: &str) -> io::Result<Vec<u64>> {
        let mut files = self.files()?;
        files.retain(|file| file.extension == extension);
        files.sort_unstable_by_key(|file| file.generation);
        Ok(files.into_iter().map(|file| file.generation).collect())
    }

    /// All files of some generation.
    fn files(&self) -> io::Result<Vec<GenerationFile>> {
        let entries: Vec<_> = fs::read_dir(&self.dir)?.collect::<io::Result<_>>()?;
        Ok(entries
            .iter()
            .filter_map(|entry| GenerationFile::parse(&entry.path()))
            .collect())
    }

    /// Removes the permissions of group and the world from our files.
    fn make_private(&self) -> io::Result<()> {
        let others = [self.commit_mark(), self.reserve(), self.dir.join("lock")]
            .into_iter()
            .filter(|path| path.exists());
        #[cfg(unix)]
        for path in self
            .files()?
            .into_iter()
            .map(|file| file.path)
            .chain(others)
        {
            fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
        }
        Ok(())
    }

    /// Makes a file appear under its name whole or not at all: `fill` writes it under another one first.
    fn create<T>(
        &self,
        path: &Path,
        fill: impl FnOnce(&mut File) -> io::Result<T>,
    ) -> io::Result<(File, T)> {
        let drafted = self.draft(path, false, fill)?;
        self.publish(path)?;
        Ok(drafted)
    }

    /// Writes what is to be the file `path` under a draft's name, into the blocks of the draft if it has one.
    /// If that fails there is no draft.
    fn draft<T>(
        &self,
        path: &Path,
        has_draft: bool,
        fill: impl FnOnce(&mut File) -> io::Result<T>,
    ) -> io::Result<(File, T)> {
        let draft = draft_of(path);
        let write = || {
            let mut file = private().read(true).truncate(!has_draft).open(&draft)?;
            let filled = fill(&mut file)?;
            self.ops.sync_all(&file)?;
            Ok((file, filled))
        };
        let written = write();
        if written.is_err() {
            self.discard_draft(path);
        }
        written
    }

    /// Gives the draft of `path` its name.
    fn publish(&self, path: &Path) -> io::Result<()> {
        if let Err(error) = self.ops.rename(&draft_of(path), path) {
            self.discard_draft(path);
            return Err(error);
        }
        self.sync()
    }

    /// What cannot be removed is only in the way, until the directory is opened again.
    fn discard_draft(&self, path: &Path) {
        let _ = fs::remove_file(draft_of(path));
    }

    /// Makes the directory's names durable.
    fn sync(&self) -> io::Result<()> {
        if cfg!(unix) {
            self.ops.sync_all(&File::open(&self.dir)?)
        } else {
            Ok(())
        }
    }

    /// Removes what the base of `generation` supersedes, and drafts. What cannot be removed is only in the way.
    fn sweep(&self, generation: u64) {
        let mut files = self.files().unwrap_or_default();
        files.retain(|file| file.generation < generation || file.extension.ends_with(DRAFT));
        files
            .iter()
            .for_each(|file| drop(fs::remove_file(&file.path)));
    }
}

/// Ends the name of a file that is not complete.
const DRAFT: &str = ".new";

/// The name of the file at `path` while it is not complete.
fn draft_of(path: &Path) -> PathBuf {
    let mut draft = path.as_os_str().to_owned();
    draft.push(DRAFT);
    draft.into()
}

/// A file that is there.
struct GenerationFile {
    path: PathBuf,
    generation: u64,
    extension: String,
}

impl GenerationFile {
    fn parse(path: &Path) -> Option<GenerationFile> {
        let (generation, extension) = path.file_name()?.to_str()?.split_once('.')?;
        Some(GenerationFile {
            path: path.into(),
            generation: generation.parse().ok()?,
            extension: extension.into(),
        })
    }
}

/// Creates `dir` for its owner alone: what is stored may be secret.
fn create_dir(dir: &Path) -> io::Result<()> {
    if dir.exists() && !dir.is_dir() {
        return Err(io::Error::new(
            io::ErrorKind::NotADirectory,
            "not a directory",
        ));
    }
    if dir.is_dir() {
        return Ok(());
    }
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(dir)?;
    match dir.parent() {
        Some(parent) if parent != Path::new("") => JournalDir {
            dir: parent.into(),
            ops: FileOps::default(),
        }
        .sync(),
        _ => Ok(()),
    }
}

/// How a file is made that its owner alone may read.
fn private() -> OpenOptions {
    let mut options = File::options();
    options.create(true).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// The lock by which one process uses a directory.
struct DirLock(File);

impl DirLock {
    fn acquire(path: &Path) -> Result<DirLock, OpenError> {
        let failed = |source| OpenError::Io {
            path: path.into(),
            source,
        };
        let file = private().truncate(false).open(path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => Ok(DirLock(file)),
            Err(TryLockError::WouldBlock) => Err(OpenError::Locked { path: path.into() }),
            Err(TryLockError::Error(source)) => Err(failed(source)),
        }
    }
}

impl Drop for DirLock {
    /// Closing the file is not enough: a child process that another thread is starting has a copy of it until it
    /// executes its program, and the lock lasts as long as any copy. Unlocking one unlocks all.
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}
