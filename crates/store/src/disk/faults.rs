//! File operations that fail, and the page cache between them and the disk.
//!
//! A kill leaves what was written; a power cut leaves what was synced, and of the rest any pages. After a failed sync the
//! kernel takes pages for clean that are not on disk: a later sync succeeds and does not write them. Of a page that was not
//! synced, any sectors may be on disk.
//!
//! A slow disk is one whose syncs wait until the test lets them end.

use std::collections::BTreeMap;
use std::io::{Seek as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tempfile::TempDir;

use super::*;
use crate::disk::base::COMPACTION_THREAD;

const PAGE: u64 = 4096;

/// What a disk writes whole or not at all.
const SECTOR: usize = 512;

/// How long an operation is held at most, so that a test that fails ends.
const HOLD: Duration = Duration::from_secs(60);

/// How operations fail. By default none does.
#[derive(Debug, Default)]
pub(crate) struct Faults(Mutex<FaultPlan>, Condvar);

#[derive(Debug, Default)]
struct FaultPlan {
    /// How many operations succeed before one fails, and how.
    countdown: Option<(usize, Failure)>,
    /// How many writes are correct before one has a flipped bit.
    flip: Option<usize>,
    /// The directory is on a disk of this size.
    disk: Option<(PathBuf, u64)>,
    /// Every sync fails.
    unsynced: bool,
    n_failed: usize,
    /// Compactions are waited for, so that operations have one order.
    in_order: bool,
    /// Compactions go no further.
    are_compactions_held: bool,
    /// Which syncs do not end.
    held_syncs: Vec<SyncedFile>,
    /// Which threads wait at a sync.
    waiting_syncs: Vec<SyncedFile>,
    /// The most bytes of a base that were written and not synced.
    unsynced_base: u64,
    cache: Option<PageCache>,
}

/// What a sync is of, as told by its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SyncedFile {
    /// A base, and its name.
    Base,
    /// A log, and what else the writer of logs syncs.
    Log,
}

impl SyncedFile {
    fn of_this_thread() -> SyncedFile {
        match thread::current().name() == Some(COMPACTION_THREAD) {
            true => SyncedFile::Base,
            false => SyncedFile::Log,
        }
    }
}

/// How an operation fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The error; that of a sync is always an I/O error.
    pub(crate) error: io::ErrorKind,
    /// How much of a failed write is in the file, in quarters.
    pub(crate) quarters: usize,
    /// Whether all later operations fail, too.
    pub(crate) is_lasting: bool,
}

impl Failure {
    /// A disk that fills up takes a part of what is written.
    pub(crate) const FULL: Failure = Failure {
        error: io::ErrorKind::StorageFull,
        quarters: 2,
        is_lasting: false,
    };

    /// A disk that is gone.
    pub(crate) const GONE: Failure = Failure {
        error: io::ErrorKind::Other,
        quarters: 2,
        is_lasting: true,
    };
}

impl Faults {
    /// Lets an operation fail, after `countdown` that succeed.
    pub(crate) fn fail_after(&self, countdown: usize, failure: Failure) {
        self.0.lock().countdown = Some((countdown, failure));
    }

    /// Flips a bit of a write, after `countdown` that are correct.
    pub(crate) fn flip_after(&self, countdown: usize) {
        self.0.lock().flip = Some(countdown);
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
            cache: plan.cache.take(),
            ..FaultPlan::default()
        };
    }

    pub(crate) fn n_failed(&self) -> usize {
        self.0.lock().n_failed
    }

    pub(crate) fn keep_order(&self) {
        self.0.lock().in_order = true;
    }

    /// Lets compactions wait at their next operation.
    pub(crate) fn hold_compactions(&self) {
        let mut plan = self.0.lock();
        plan.in_order = false;
        plan.are_compactions_held = true;
    }

    /// Lets compactions go on, and be waited for.
    pub(crate) fn release_compactions(&self) {
        let mut plan = self.0.lock();
        plan.in_order = true;
        plan.are_compactions_held = false;
        self.1.notify_all();
    }

    /// Lets the syncs of `file` wait until they are released.
    pub(crate) fn hold_syncs(&self, file: SyncedFile) {
        self.0.lock().held_syncs.push(file);
    }

    pub(crate) fn release_syncs(&self, file: SyncedFile) {
        self.0.lock().held_syncs.retain(|held| *held != file);
        self.1.notify_all();
    }

    /// Waits until a sync of `file` waits.
    pub(crate) fn until_held(&self, file: SyncedFile) {
        let mut plan = self.0.lock();
        let is_missing = |plan: &mut FaultPlan| !plan.waiting_syncs.contains(&file);
        let waited = self.1.wait_while_for(&mut plan, is_missing, HOLD);
        assert!(!waited.timed_out(), "no sync of {file:?} waits");
    }

    /// The most bytes of a base that were written and not synced at one time. Known where pages are cached.
    pub(crate) fn unsynced_base(&self) -> u64 {
        self.0.lock().unsynced_base
    }

    pub(crate) fn is_in_order(&self) -> bool {
        self.0.lock().in_order
    }

    /// Remembers what is not synced, for `kill` and `cut_power`.
    pub(crate) fn cache_pages(&self) {
        self.0.lock().cache = Some(PageCache::default());
    }

    pub(super) fn write(&self, file: &mut File, bytes: &[u8]) -> io::Result<()> {
        let start = file.stream_position()?;
        let growth = (start + bytes.len() as u64).saturating_sub(file.metadata()?.len());
        let quarters = self
            .0
            .lock()
            .countdown
            .map_or(2, |(_, failure)| failure.quarters);
        let checked = self.check(FileOperation::Write(growth));
        let mut bytes = match &checked {
            Ok(()) => bytes.to_vec(),
            Err(_) => bytes[..bytes.len() * quarters / 4].to_vec(),
        };
        let mut guard = self.0.lock();
        let plan = &mut *guard;
        if plan.flip.is_some_and(|countdown| countdown == 0) && !bytes.is_empty() {
            let at = bytes.len() / 2;
            bytes[at] ^= 1 << (at % 8);
            plan.n_failed += 1;
        }
        plan.flip = plan.flip.and_then(|countdown| countdown.checked_sub(1));
        if let Some(cache) = &mut plan.cache {
            cache.note_write(file, start, bytes.len() as u64)?;
            if SyncedFile::of_this_thread() == SyncedFile::Base {
                let unsynced = cache.n_dirty(file.metadata()?.ino()) * PAGE;
                plan.unsynced_base = plan.unsynced_base.max(unsynced);
            }
        }
        file.write_all(&bytes)?;
        checked
    }

    pub(super) fn note_sync(&self, file: &File, succeeded: bool) {
        if let Some(cache) = &mut self.0.lock().cache {
            cache.note_sync(file, succeeded);
        }
    }

    pub(super) fn note_rename(&self, from: &Path, to: &Path) {
        if let Some(cache) = &mut self.0.lock().cache {
            cache.renames.push((from.into(), to.into()));
        }
    }

    /// What is cut off a file is never written back.
    pub(super) fn forget_pages(&self, file: &File, length: u64) {
        let inode = file.metadata().map_or(0, |file| file.ino());
        if let Some(cache) = &mut self.0.lock().cache {
            let is_kept = |page: &(u64, u64)| page.0 != inode || page.1 * PAGE < length;
            cache.pages.retain(|page, _| is_kept(page));
        }
    }

    /// The directory as a kill of the process leaves it, on the same machine: what was not synced is still in its cache.
    pub(crate) fn kill(&self, dir: &Path) -> (TempDir, FileOps) {
        let plan = self.0.lock();
        let before = plan.cache.as_ref().expect("pages are cached");
        let mut cache = PageCache::default();
        let copy = tempfile::tempdir_in(dir.parent().unwrap()).unwrap();
        let renamed = |path: &PathBuf| copy.path().join(path.file_name().unwrap());
        for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
            let path = renamed(&entry.path());
            fs::copy(entry.path(), &path).unwrap();
            let inode = fs::metadata(&path).unwrap().ino();
            let pages = before.pages.range((entry.metadata().unwrap().ino(), 0)..);
            let pages = pages.take_while(|page| page.0.0 == entry.metadata().unwrap().ino());
            let copied = pages.map(|(page, content)| ((inode, page.1), content.clone()));
            cache.pages.extend(copied);
        }
        let renames = before.renames.iter();
        cache.renames = renames
            .map(|(from, to)| (renamed(from), renamed(to)))
            .collect();
        let ops = FileOps::default();
        *ops.faults.0.lock() = FaultPlan {
            in_order: plan.in_order,
            cache: Some(cache),
            ..FaultPlan::default()
        };
        (copy, ops)
    }

    /// Takes back what was not synced in `dir`, as far as `choose` says: names, and of each page all, nothing or some sectors.
    pub(crate) fn cut_power(&self, dir: &Path, mut choose: impl FnMut() -> bool) {
        let mut plan = self.0.lock();
        let cache = plan.cache.as_mut().expect("pages are cached");
        for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
            let metadata = entry.metadata().unwrap();
            let pages = cache.pages.iter().filter(|page| page.0.0 == metadata.ino());
            let file = File::options().write(true).open(entry.path()).unwrap();
            for (&(_, page), content) in pages {
                if !choose() {
                    continue;
                }
                let offset = page * PAGE;
                let length = metadata.len().saturating_sub(offset).min(PAGE) as usize;
                let mut durable = content.durable.clone();
                durable.resize(length, 0);
                let is_torn = choose();
                for (sector, durable) in durable.chunks(SECTOR).enumerate() {
                    if !is_torn || choose() {
                        let offset = offset + (sector * SECTOR) as u64;
                        file.write_all_at(durable, offset).unwrap();
                    }
                }
            }
        }
        for (from, to) in cache.renames.drain(..).rev().filter(|_| choose()) {
            // A file that was removed since is gone.
            let _ = fs::rename(to, from);
        }
        cache.pages.clear();
    }

    pub(super) fn check(&self, operation: FileOperation) -> io::Result<()> {
        let mut plan = self.0.lock();
        let synced = SyncedFile::of_this_thread();
        if synced == SyncedFile::Base {
            let is_held = |plan: &mut FaultPlan| plan.are_compactions_held;
            self.1.wait_while_for(&mut plan, is_held, HOLD);
        }
        if operation == FileOperation::Sync && plan.held_syncs.contains(&synced) {
            plan.waiting_syncs.push(synced);
            self.1.notify_all();
            let is_held = |plan: &mut FaultPlan| plan.held_syncs.contains(&synced);
            self.1.wait_while_for(&mut plan, is_held, HOLD);
            plan.waiting_syncs.retain(|waiting| *waiting != synced);
        }
        let due = match plan.countdown {
            Some((0, failure)) => {
                plan.countdown.take_if(|_| !failure.is_lasting);
                Some(failure)
            }
            Some((left, failure)) => {
                plan.countdown = Some((left - 1, failure));
                None
            }
            None => None,
        };
        let error = match (operation, due) {
            (FileOperation::Sync, due) if due.is_some() || plan.unsynced => io::ErrorKind::Other,
            (_, Some(failure)) => failure.error,
            (FileOperation::Write(growth) | FileOperation::Allocate(growth), None)
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

/// What is written and not on disk.
#[derive(Debug, Default)]
struct PageCache {
    /// By inode and number.
    pages: BTreeMap<(u64, u64), CachedPage>,
    /// Renames since the directory was synced.
    renames: Vec<(PathBuf, PathBuf)>,
}

#[derive(Clone, Debug)]
struct CachedPage {
    /// What is on disk; shorter than a page where the file ended.
    durable: Vec<u8>,
    /// Whether a sync writes it. Not so after one that failed.
    is_dirty: bool,
}

impl PageCache {
    fn note_write(&mut self, file: &File, start: u64, length: u64) -> io::Result<()> {
        let inode = file.metadata()?.ino();
        // The file may be open for writing only.
        let reader = File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        for page in start / PAGE..(start + length).div_ceil(PAGE) {
            if let Some(cached) = self.pages.get_mut(&(inode, page)) {
                cached.is_dirty = true;
                continue;
            }
            let mut durable = vec![0; PAGE as usize];
            let n_read = reader.read_at(&mut durable, page * PAGE)?;
            durable.truncate(n_read);
            let is_dirty = true;
            self.pages
                .insert((inode, page), CachedPage { durable, is_dirty });
        }
        Ok(())
    }

    /// How many pages of a file a sync would write.
    fn n_dirty(&self, inode: u64) -> u64 {
        let pages = self.pages.range((inode, 0)..=(inode, u64::MAX));
        pages.filter(|(_, cached)| cached.is_dirty).count() as u64
    }

    fn note_sync(&mut self, file: &File, succeeded: bool) {
        let metadata = file.metadata().unwrap();
        if metadata.is_dir() && succeeded {
            self.renames.clear();
        }
        let inode = metadata.ino();
        match succeeded {
            true => self
                .pages
                .retain(|page, cached| page.0 != inode || !cached.is_dirty),
            false => {
                let pages = self.pages.iter_mut().filter(|page| page.0.0 == inode);
                pages.for_each(|(_, cached)| cached.is_dirty = false);
            }
        }
    }
}
