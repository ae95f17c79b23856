//! The journal on disk: a log of batches, folded into a base when most of it is superseded.
//!
//! Nothing is ever read back while the store runs, so an engine with trees or levels would only add work: a log makes
//! a batch durable with one write and one `fdatasync`. A generation `g` is two files, the `g.base` that says what was
//! live when it began and the `g.log` of everything since. Compaction seals the log, begins `g+1.log`, writes
//! `g+1.base` in the background and removes what is older once that is complete; so at any moment
//! *newest base + its log + newer logs* is everything.
//!
//! Invariant: all that was acknowledged opens again, or opening fails and names the file. Every byte that counts is
//! under a checksum, a sealed file ends with its seal, and the `tip` says how long the last log must at least be. So
//! only a tail that nobody was promised can be dropped: what a kill or a power cut tore off.

mod base;
mod codec;
pub(crate) mod content;
mod frame;
mod log;
mod replay;
mod seals;
mod tip;

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use self::base::Compaction;
use self::log::Log;
use self::seals::Seals;
use crate::seal::MaybeSealer;
use crate::{Entry, Journal, Live, OpenError, Revision, Saved};

/// A journal in a directory of its own.
pub(crate) struct Disk {
    place: Place,
    /// A log is folded when it is larger than this and larger than the base.
    fold_bytes: u64,
    base_bytes: u64,
    revision: Revision,
    log: Option<Log>,
    compaction: Option<Compaction>,
    seals: Seals,
    /// Held, not read: the lock goes with it, and so after everything above.
    _lock: File,
}

impl Disk {
    /// Takes `dir`, which is created if need be, for this process alone.
    pub(crate) fn open(dir: &Path, fold_bytes: u64, sealer: MaybeSealer) -> Result<Disk, OpenError> {
        create_dir(dir).map_err(|source| OpenError::Io { path: dir.into(), source })?;
        let place = Place { dir: dir.into() };
        let _lock = lock(&place.dir.join("lock"))?;
        place.make_private().map_err(|source| OpenError::Io { path: dir.into(), source })?;
        Ok(Disk {
            place,
            fold_bytes,
            base_bytes: 0,
            revision: Revision::ZERO,
            log: None,
            compaction: None,
            seals: Seals::new(sealer),
            _lock,
        })
    }

    fn start_over(&mut self, live: Live) -> io::Result<()> {
        let log = self.log.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        log.seal(self.revision)?;
        let generation = log.generation() + 1;
        self.log = Some(Log::create(&self.place, generation)?);
        let sealer = self.seals.renew();
        self.compaction = Some(Compaction::start(&self.place, generation, live, sealer)?);
        Ok(())
    }

    /// Takes note of a compaction that has ended. One that failed leaves everything as it was, only larger.
    fn settle(&mut self) {
        if let Some(compaction) = self.compaction.take_if(|compaction| compaction.is_over())
            && let Ok(base_bytes) = compaction.finish()
        {
            self.base_bytes = base_bytes;
        }
    }
}

impl Journal for Disk {
    fn replay(&mut self, load: &mut dyn FnMut(Saved<'_>)) -> Result<Option<Revision>, OpenError> {
        let seals = &mut self.seals;
        let replayed = replay::replay(&self.place, &mut |saved| {
            seals.look_at(&saved);
            load(saved);
        })?;
        self.base_bytes = replayed.base_bytes;
        self.revision = replayed.revision;
        self.log = Some(replayed.log);
        Ok((self.revision > Revision::ZERO).then_some(self.revision))
    }

    fn append(&mut self, batch: &[Entry]) -> io::Result<()> {
        let log = self.log.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        log.append(batch)?;
        self.revision = batch.last().map_or(self.revision, |entry| entry.event.revision);
        self.settle();
        Ok(())
    }

    fn is_bloated(&self) -> bool {
        let log_bytes = self.log.as_ref().map_or(0, Log::len);
        let is_long = log_bytes > self.fold_bytes.max(self.base_bytes);
        // Where nothing was ever written, no key has sealed anything.
        let is_outdated = self.revision > Revision::ZERO && self.seals.are_outdated();
        self.compaction.is_none() && (is_long || is_outdated)
    }

    fn compact(&mut self, live: Live) -> io::Result<()> {
        self.start_over(live)
    }
}

/// Where a journal's files are.
#[derive(Clone, Debug)]
struct Place {
    dir: PathBuf,
}

impl Place {
    fn base(&self, generation: u64) -> PathBuf {
        self.dir.join(format!("{generation:08}.base"))
    }

    fn log(&self, generation: u64) -> PathBuf {
        self.dir.join(format!("{generation:08}.log"))
    }

    fn tip(&self) -> PathBuf {
        self.dir.join("tip")
    }

    /// The generations of which there is a file with this extension, in order.
    fn generations(&self, extension: &str) -> io::Result<Vec<u64>> {
        let mut files = self.files()?;
        files.retain(|file| file.extension == extension);
        files.sort_unstable_by_key(|file| file.generation);
        Ok(files.into_iter().map(|file| file.generation).collect())
    }

    /// All files of some generation.
    fn files(&self) -> io::Result<Vec<Found>> {
        let entries: Vec<_> = fs::read_dir(&self.dir)?.collect::<io::Result<_>>()?;
        Ok(entries.iter().filter_map(|entry| Found::parse(&entry.path())).collect())
    }

    /// Takes from everybody but the owner what they may do with our files.
    fn make_private(&self) -> io::Result<()> {
        let others = [self.tip(), self.dir.join("lock")].into_iter().filter(|path| path.exists());
        #[cfg(unix)]
        for path in self.files()?.into_iter().map(|file| file.path).chain(others) {
            fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
        }
        Ok(())
    }

    /// Makes a file appear under its name whole or not at all: `fill` writes it under another one first.
    fn create<T>(&self, path: &Path, fill: impl FnOnce(&mut File) -> io::Result<T>) -> io::Result<(File, T)> {
        let mut draft = path.as_os_str().to_owned();
        draft.push(DRAFT);
        let mut file = private().read(true).truncate(true).open(&draft)?;
        let filled = fill(&mut file)?;
        file.sync_all()?;
        fs::rename(&draft, path)?;
        self.sync()?;
        Ok((file, filled))
    }

    /// Makes the directory's names durable.
    fn sync(&self) -> io::Result<()> {
        if cfg!(unix) { File::open(&self.dir)?.sync_all() } else { Ok(()) }
    }

    /// Removes what the base of `generation` supersedes, and drafts. What cannot be removed is only in the way.
    fn sweep(&self, generation: u64) {
        let mut files = self.files().unwrap_or_default();
        files.retain(|file| file.generation < generation || file.extension.ends_with(DRAFT));
        files.iter().for_each(|file| drop(fs::remove_file(&file.path)));
    }
}

/// Ends the name of a file that is not complete.
const DRAFT: &str = ".new";

/// A file that is there.
struct Found {
    path: PathBuf,
    generation: u64,
    extension: String,
}

impl Found {
    fn parse(path: &Path) -> Option<Found> {
        let (generation, extension) = path.file_name()?.to_str()?.split_once('.')?;
        Some(Found { path: path.into(), generation: generation.parse().ok()?, extension: extension.into() })
    }
}

/// Creates `dir` for its owner alone: what is stored may be secret.
fn create_dir(dir: &Path) -> io::Result<()> {
    if dir.exists() && !dir.is_dir() {
        return Err(io::Error::new(io::ErrorKind::NotADirectory, "not a directory"));
    }
    if dir.is_dir() {
        return Ok(());
    }
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(dir)?;
    match dir.parent() {
        Some(parent) if parent != Path::new("") => Place { dir: parent.into() }.sync(),
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

fn lock(path: &Path) -> Result<File, OpenError> {
    let failed = |source| OpenError::Io { path: path.into(), source };
    let file = private().truncate(false).open(path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::Locked { path: path.into() }),
        Err(TryLockError::Error(source)) => Err(failed(source)),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use tempfile::{TempDir, tempdir};

    use super::*;
    use crate::{Draft, Event, EventKind, Record};

    /// A journal between two steps of a compaction, as a kill may leave it.
    struct Case {
        dir: TempDir,
        disk: Disk,
    }

    impl Case {
        fn new() -> Case {
            let dir = tempdir().unwrap();
            let mut disk = Disk::open(dir.path(), 1 << 20, None).unwrap();
            disk.replay(&mut |_| {}).unwrap();
            Case { dir, disk }
        }

        fn append(&mut self, key: &str, kind: EventKind) {
            let revision = self.disk.revision.max(Revision::FIRST).next();
            let draft = Draft { value: format!("{revision}").into(), ..Draft::default() };
            let record = Arc::new(Record::stamped(key.into(), revision, Arc::new([]), draft));
            let event = Event { revision, kind, record, previous: None };
            self.disk.append(&[Entry { space: "s".into(), event, sealed: None }]).unwrap();
        }

        fn log(&mut self) -> &mut Log {
            self.disk.log.as_mut().unwrap()
        }

        fn seal(&mut self) {
            let revision = self.disk.revision;
            self.log().seal(revision).unwrap();
        }

        /// What opening finds, and at which revision.
        #[track_caller]
        fn reopen(self) -> (Case, String) {
            let Case { dir, disk } = self;
            drop(disk);
            let mut disk = Disk::open(dir.path(), 1 << 20, None).unwrap();
            let mut live = BTreeMap::new();
            let revision = disk.replay(&mut |saved| match saved.kind {
                EventKind::Put => drop(live.insert(saved.key.to_owned(), saved.revision.0)),
                EventKind::Delete => drop(live.remove(saved.key)),
            });
            (Case { dir, disk }, format!("{live:?} at {}", revision.unwrap().unwrap_or_default()))
        }
    }

    #[test]
    fn a_log_that_was_sealed_and_has_no_successor_gets_one() {
        let mut case = Case::new();
        case.append("a", EventKind::Put);
        case.seal();
        let (mut case, found) = case.reopen();
        assert_eq!(found, r#"{"a": 2} at 2"#);
        assert_eq!(case.log().generation(), 2);
        case.append("b", EventKind::Put);
        assert_eq!(case.reopen().1, r#"{"a": 2, "b": 3} at 3"#);
    }

    #[test]
    fn logs_without_a_base_are_read_one_after_the_other() {
        let mut case = Case::new();
        for key in ["a", "b", "c"] {
            case.append("a", EventKind::Put);
            case.append(key, EventKind::Put);
            case.seal();
            let next = case.log().generation() + 1;
            case.disk.log = Some(Log::create(&case.disk.place, next).unwrap());
        }
        case.append("b", EventKind::Delete);
        assert_eq!(case.reopen().1, r#"{"a": 6, "c": 7} at 8"#);
    }

    #[test]
    fn a_draft_and_what_a_base_supersedes_are_swept() {
        let mut case = Case::new();
        case.append("a", EventKind::Put);
        let old = fs::read(case.disk.place.log(1)).unwrap();
        let live = Live { revision: case.disk.revision, spaces: Vec::new() };
        case.disk.compact(live).unwrap();
        case.disk.compaction.take().unwrap().finish().unwrap();
        // As if the kill had come before the sweep, and another while a base was written.
        fs::write(case.disk.place.log(1), old).unwrap();
        fs::write(case.dir.path().join("00000003.base.new"), "half").unwrap();
        let (case, found) = case.reopen();
        assert_eq!(found, "{} at 2", "the base says that nothing is live");
        let mut names: Vec<_> =
            fs::read_dir(&case.dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["00000002.base", "00000002.log", "lock", "tip"]);
    }

    #[test]
    fn a_kill_between_tip_and_first_log_leaves_an_empty_directory() {
        let case = Case::new();
        fs::remove_file(case.disk.place.log(1)).unwrap();
        assert_eq!(case.reopen().1, "{} at 0");
    }
}
