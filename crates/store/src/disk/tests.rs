//! A journal between the steps of a compaction, and on disks that fail.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tempfile::{TempDir, tempdir};

use super::commit_mark::CommitMark;
use super::file_ops::faults::{Failure, SyncedFile};
use super::*;
use crate::engine::CommitResult;
use crate::keyspaces::Keyspaces;
use crate::sequencer::{PreparedWrite, Sequencer, SequencerRequest};
use crate::{
    Draft, Event, EventKind, Expect, Health, Keyspace, Options, Record, Store, Write, WriteError,
    load,
};

/// A journal between two steps of a compaction, as a kill may leave it.
struct Case {
    dir: TempDir,
    disk: Disk,
}

impl Case {
    fn new() -> Case {
        let dir = tempdir().unwrap();
        let mut disk = Disk::open_with(FileOps::default(), dir.path(), 1 << 20, None).unwrap();
        disk.replay(&mut |_| {}).unwrap();
        Case { dir, disk }
    }

    fn append(&mut self, key: &str, kind: EventKind) {
        let revision = self.disk.revision.max(Revision::FIRST).next();
        self.append_event(key, kind, revision.to_string());
    }

    fn append_value(&mut self, key: &str, value: String) {
        self.append_event(key, EventKind::Put, value);
    }

    fn append_event(&mut self, key: &str, kind: EventKind, value: String) {
        let revision = self.disk.revision.max(Revision::FIRST).next();
        let draft = Draft {
            value: value.into(),
            ..Draft::default()
        };
        let record = Arc::new(Record::stamped(key.into(), revision, Arc::new([]), draft));
        let event = Event {
            revision,
            kind,
            record,
            previous: None,
        };
        self.disk
            .append(&[JournalEntry {
                space: "s".into(),
                event,
                ciphertext: None,
            }])
            .unwrap();
    }

    fn log(&mut self) -> &mut LogFile {
        self.disk.log.as_mut().unwrap()
    }

    fn seal(&mut self) {
        let revision = self.disk.revision;
        self.log().seal(revision).unwrap();
    }

    fn begin_next_log(&mut self) {
        let sealed = CommitMark {
            generation: self.log().generation(),
            length: self.log().len(),
        };
        self.disk.log = Some(LogFile::create(&self.disk.place, sealed).unwrap());
    }

    /// What opening finds, and at which revision.
    #[track_caller]
    fn reopen(self) -> (Case, String) {
        let Case { dir, disk } = self;
        drop(disk);
        let mut disk = Disk::open_with(FileOps::default(), dir.path(), 1 << 20, None).unwrap();
        let mut live = BTreeMap::new();
        let revision = disk.replay(&mut |saved| match saved.kind {
            EventKind::Put => drop(live.insert(saved.key.to_owned(), saved.revision.0)),
            EventKind::Delete => drop(live.remove(saved.key)),
        });
        (
            Case { dir, disk },
            format!("{live:?} at {}", revision.unwrap().unwrap_or_default()),
        )
    }
}

#[test]
fn a_sealed_log_without_a_successor_gets_one() {
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
        case.begin_next_log();
    }
    case.append("b", EventKind::Delete);
    assert_eq!(case.reopen().1, r#"{"a": 6, "c": 7} at 8"#);
}

#[test]
fn a_draft_and_superseded_files_are_removed() {
    let mut case = Case::new();
    case.append("a", EventKind::Put);
    let old = fs::read(case.disk.place.log(1)).unwrap();
    let live = LiveRecords {
        revision: case.disk.revision,
        spaces: Vec::new(),
    };
    case.disk.compact(live).unwrap();
    case.disk.compaction.take().unwrap().finish().unwrap();
    // As if the kill had come before the sweep, and another while a base was written.
    fs::write(case.disk.place.log(1), old).unwrap();
    fs::write(case.dir.path().join("00000003.base.new"), "half").unwrap();
    let (case, found) = case.reopen();
    assert_eq!(found, "{} at 2", "the base says that nothing is live");
    let mut names: Vec<_> = fs::read_dir(&case.dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["00000002.base", "00000002.log", "lock", "tip"]);
}

/// A child process has copies of all files between `fork` and `exec`.
#[test]
fn a_copy_of_the_lock_file_does_not_keep_a_closed_directory_locked() {
    let Case { dir, disk } = Case::new();
    let copy = disk._lock.0.try_clone().unwrap();
    let open = || Disk::open_with(FileOps::default(), dir.path(), 1 << 20, None).map(drop);
    assert!(matches!(open(), Err(OpenError::Locked { .. })));
    drop(disk);
    open().unwrap();
    drop(copy);
}

#[test]
fn a_kill_between_commit_mark_and_first_log_leaves_an_empty_directory() {
    let case = Case::new();
    fs::remove_file(case.disk.place.log(1)).unwrap();
    assert_eq!(case.reopen().1, "{} at 0");
}

#[test]
fn logs_may_be_longer_than_a_small_base_and_as_long_as_a_large_one() {
    let mut case = Case::new();
    let mib = |n: u64| n << 20;
    for (base, logs) in [(0, 1), (1, 4), (2, 8), (3, 8), (8, 8), (20, 20)] {
        case.disk.base_bytes = mib(base);
        assert_eq!(case.disk.max_log_bytes(), mib(logs), "base of {base} MiB");
    }
    case.disk.base_bytes = mib(1);
    while !case.disk.is_bloated() {
        case.append_value("a", "x".repeat(500 << 10));
    }
    assert_eq!(case.disk.log_bytes() / mib(1), 4);
}

/// A store's sequencer on a disk with injected faults.
struct Faulty {
    dir: TempDir,
    ops: FileOps,
    spaces: Arc<Keyspaces>,
    sequencer: Sequencer,
}

impl Faulty {
    /// Compacts often, and in order, so that a countdown always leads to the same operation.
    fn new(compaction_bytes: u64) -> Faulty {
        let dir = dir_in_memory();
        let ops = FileOps::default();
        ops.faults.keep_order();
        Faulty::open(dir, ops, compaction_bytes)
    }

    fn try_open(
        dir: &TempDir,
        ops: &FileOps,
        compaction_bytes: u64,
    ) -> Result<(Arc<Keyspaces>, Sequencer), OpenError> {
        let mut disk = Disk::open_with(ops.clone(), dir.path(), compaction_bytes, None)?;
        let spaces = Arc::new(load::load(&mut disk, &Options::default())?);
        let sequencer = Sequencer::new(spaces.clone(), Box::new(disk));
        Ok((spaces, sequencer))
    }

    #[track_caller]
    fn open(dir: TempDir, ops: FileOps, compaction_bytes: u64) -> Faulty {
        let (spaces, sequencer) = Faulty::try_open(&dir, &ops, compaction_bytes).unwrap();
        Faulty {
            dir,
            ops,
            spaces,
            sequencer,
        }
    }

    fn reopen(self, compaction_bytes: u64) -> Faulty {
        let Faulty {
            dir,
            ops,
            sequencer,
            ..
        } = self;
        drop(sequencer);
        Faulty::open(dir, ops, compaction_bytes)
    }

    fn run(&mut self, request: SequencerRequest) -> CommitResult {
        let mut answer = Err(WriteError::Closed);
        self.sequencer
            .run([(request, ())], |(), outcome| answer = outcome);
        answer
    }

    fn commit(&mut self, write: Write) -> Result<(), WriteError> {
        self.run(SequencerRequest::Commit(vec![PreparedWrite {
            write,
            encrypted: None,
        }]))
        .map(drop)
    }

    fn put(&mut self, key: &str, value: &str) -> Result<(), WriteError> {
        let draft = Draft {
            value: value.to_owned().into(),
            ..Draft::default()
        };
        self.commit(Write::put(&self.spaces.get("s").0, key, Expect::Any, draft))
    }

    fn delete(&mut self, key: &str) -> Result<(), WriteError> {
        self.commit(Write::delete(
            &self.spaces.get("s").0,
            key,
            Expect::Any,
            Draft::default(),
        ))
    }

    fn content(&self) -> Content {
        content(&self.spaces)
    }

    fn health(&self) -> Health {
        self.spaces.monitor.health()
    }

    /// The files that are not complete.
    fn drafts(&self) -> Vec<PathBuf> {
        let paths = fs::read_dir(&self.dir)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        paths
            .filter(|path| path.to_string_lossy().ends_with(DRAFT))
            .collect()
    }
}

fn dir_in_memory() -> TempDir {
    let memory = Path::new("/dev/shm");
    let dir = match memory.is_dir() {
        true => tempfile::tempdir_in(memory),
        false => tempdir(),
    };
    dir.unwrap()
}

type Content = BTreeMap<String, String>;

fn content(spaces: &Keyspaces) -> Content {
    content_of(&spaces.get("s").0)
}

fn content_of(space: &Keyspace) -> Content {
    let snapshot = space.snapshot();
    let text = |record: &Record| String::from_utf8(record.value.to_vec()).unwrap();
    snapshot
        .range("", None)
        .map(|record| (record.key.to_string(), text(record)))
        .collect()
}

/// What a store was asked to hold.
#[derive(Default)]
struct Wanted {
    acknowledged: Content,
    /// What may be there instead after a restart: with the write whose result was unknown.
    uncertain: Option<Content>,
}

impl Wanted {
    /// Writes and deletes, and checks what is there at each step.
    fn write_to(case: &mut Faulty, name: &str) -> Wanted {
        let mut wanted = Wanted::default();
        for n in 0..14 {
            // Some take whole pages, which no later write dirties again.
            let length = if n % 3 == 0 { 9000 } else { 200 };
            let (key, value) = (format!("{}", n % 5), format!("{n}{}", "x".repeat(length)));
            let is_delete = n % 4 == 3 && wanted.acknowledged.contains_key(&key);
            let mut next = wanted.acknowledged.clone();
            let outcome = match is_delete {
                true => case.delete(&key),
                false => case.put(&key, &value),
            };
            match is_delete {
                true => drop(next.remove(&key)),
                false => drop(next.insert(key, value)),
            }
            match outcome {
                Ok(()) => wanted.acknowledged = next,
                Err(WriteError::NotWritten(_)) => {
                    assert!(!matches!(case.health(), Health::Failed(_)))
                }
                Err(WriteError::Unknown(_)) => wanted.uncertain = Some(next),
                Err(WriteError::Poisoned(_)) => assert!(matches!(case.health(), Health::Failed(_))),
                Err(error) => panic!("{error}"),
            }
            assert_eq!(case.content(), wanted.acknowledged, "{name}, write {n}");
        }
        wanted
    }

    #[track_caller]
    fn check(&self, found: &Content, name: &str) {
        let is_allowed = *found == self.acknowledged || Some(found) == self.uncertain.as_ref();
        assert!(is_allowed, "{name}: {found:?}");
    }
}

/// The logs are compacted several times in a test.
const COMPACTION: u64 = 1200;

/// Writes and deletes on a disk of which one operation fails, and checks what is there at each step and after opening it
/// again. Returns whether the operation was reached.
fn check_failure_of(countdown: usize, failure: Failure) -> bool {
    let name = format!("operation {countdown}, {failure:?}");
    let mut case = Faulty::new(COMPACTION);
    case.ops.faults.fail_after(countdown, failure);
    let mut wanted = Wanted::write_to(&mut case, &name);
    let was_reached = case.ops.faults.n_failed() > 0;
    case.ops.faults.lift();
    if !matches!(case.health(), Health::Failed(_)) {
        case.put("after", "1").unwrap();
        assert!(matches!(case.health(), Health::Writable), "{name}");
        wanted.acknowledged.insert("after".into(), "1".into());
        assert_eq!(case.drafts(), [] as [PathBuf; 0], "{name}");
    }
    let mut case = case.reopen(COMPACTION);
    wanted.check(&case.content(), &name);
    case.put("again", "1").unwrap();
    was_reached
}

#[test]
fn after_any_failed_operation_acknowledged_writes_stay_and_rejected_ones_leave_no_trace() {
    let io_error = Failure {
        error: io::ErrorKind::Other,
        ..Failure::FULL
    };
    let failures = [
        Failure::FULL,
        Failure {
            quarters: 0,
            ..io_error
        },
        Failure {
            quarters: 4,
            ..io_error
        },
        Failure::GONE,
    ];
    for failure in failures {
        let mut n_operations = 0;
        while check_failure_of(n_operations, failure) {
            n_operations += 1;
        }
        assert!(
            n_operations > 60,
            "{n_operations} operations were made to fail"
        );
    }
}

/// Lets an operation fail, kills the process, and cuts the power of the next one, which had opened what the first one
/// left; or cuts the power at once. Of pages that were not synced some are on disk.
fn check_power_cut_at(countdown: usize, failure: Failure, seed: u64) -> bool {
    let name = format!("operation {countdown}, {failure:?}, seed {seed}");
    let mut random = seed;
    let mut choose = || {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        random >> 63 == 1
    };
    let mut case = Faulty::new(COMPACTION);
    case.ops.faults.cache_pages();
    case.ops.faults.fail_after(countdown, failure);
    let wanted = Wanted::write_to(&mut case, &name);
    let was_reached = case.ops.faults.n_failed() > 0;

    let (dir, ops) = case.ops.faults.kill(case.dir.path());
    if seed.is_multiple_of(2) {
        ops.faults.cut_power(dir.path(), &mut choose);
    }
    let mut case = Faulty::open(dir, ops, 1 << 20);
    let mut found = case.content();
    wanted.check(&found, &name);
    case.put("again", "1").unwrap();
    found.insert("again".into(), "1".into());

    let (dir, ops) = case.ops.faults.kill(case.dir.path());
    ops.faults.cut_power(dir.path(), choose);
    let case = Faulty::open(dir, ops, 1 << 20);
    assert_eq!(case.content(), found, "{name}, after another power cut");
    was_reached
}

#[test]
fn after_a_power_cut_at_any_operation_acknowledged_writes_are_there_whatever_pages_are_torn() {
    let once = Failure {
        is_lasting: false,
        ..Failure::GONE
    };
    for (failure, seed) in [Failure::GONE, once]
        .into_iter()
        .flat_map(|failure| (0..2).map(move |seed| (failure, seed)))
    {
        let mut n_operations = 0;
        while check_power_cut_at(n_operations, failure, seed) {
            n_operations += 1;
        }
        assert!(
            n_operations > 60,
            "power was cut at {n_operations} operations"
        );
    }
}

#[test]
fn a_bit_that_is_flipped_in_any_write_is_detected_or_of_no_consequence() {
    let (mut n_writes, mut n_detected) = (0, 0);
    loop {
        let mut case = Faulty::new(COMPACTION);
        case.ops.faults.cache_pages();
        case.ops.faults.flip_after(n_writes);
        let name = format!("write {n_writes}");
        let wanted = Wanted::write_to(&mut case, &name);
        if case.ops.faults.n_failed() == 0 {
            break;
        }
        let (dir, ops) = case.ops.faults.kill(case.dir.path());
        match Faulty::try_open(&dir, &ops, COMPACTION) {
            Ok((spaces, _)) => wanted.check(&content(&spaces), &name),
            Err(OpenError::Corrupt { path, .. }) if path.parent() == Some(dir.path()) => {
                n_detected += 1
            }
            Err(error) => panic!("{name}: {error}"),
        }
        n_writes += 1;
    }
    assert!(
        n_writes > 30 && n_detected > 2,
        "{n_detected} of {n_writes} were detected"
    );
}

/// A store that has filled a small disk, and what it holds.
fn full() -> (Faulty, Content) {
    let mut case = Faulty::new(1 << 20);
    case.ops.faults.limit(case.dir.path(), 8 << 20);
    let mut acknowledged = Content::new();
    let value = "x".repeat(64 << 10);
    // A refused put lets the log be compacted, and then there may be space once more.
    let mut n_refused = 0;
    while n_refused < 3 {
        let key = format!("{:03}", acknowledged.len());
        match case.put(&key, &value) {
            Ok(()) => drop(acknowledged.insert(key, value.clone())),
            Err(WriteError::NotWritten(cause)) if cause.kind() == io::ErrorKind::StorageFull => {
                n_refused += 1
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(acknowledged.len() > 20, "{} fit", acknowledged.len());
    (case, acknowledged)
}

#[test]
fn a_full_disk_rejects_only_puts() {
    let (mut case, acknowledged) = full();
    assert!(matches!(case.health(), Health::Full(_)));
    let n_refused = case.spaces.monitor.failures().refused_writes;
    assert!(matches!(
        case.put("more", "x"),
        Err(WriteError::NotWritten(_))
    ));
    assert_eq!(case.spaces.monitor.failures().refused_writes, n_refused + 1);
    assert_eq!(case.content(), acknowledged);
    let space = case.spaces.get("s").0;
    let mut watch = space.watch(space.snapshot().at()).unwrap();
    case.delete("000").unwrap();
    assert_eq!(watch.ready().unwrap().len(), 1);
    let marked = Draft {
        value: "going".into(),
        ..Draft::default()
    };
    case.commit(Write::put(&space, "001", Expect::Present, marked).with_reserve())
        .unwrap();
    assert_eq!(case.drafts(), [] as [PathBuf; 0]);
}

#[test]
fn deletes_and_a_compaction_free_space_on_a_full_disk() {
    let (mut case, mut acknowledged) = full();
    for key in acknowledged
        .keys()
        .cloned()
        .collect::<Vec<_>>()
        .iter()
        .step_by(2)
    {
        case.delete(key).unwrap();
        acknowledged.remove(key);
    }
    case.put("more", "x").unwrap();
    acknowledged.insert("more".into(), "x".into());
    assert!(matches!(case.health(), Health::Writable));
    assert_eq!(case.spaces.monitor.failures().compactions, 0);
    let case = case.reopen(1 << 20);
    assert_eq!(case.content(), acknowledged);
}

#[test]
fn a_disk_that_is_filled_during_a_compaction_is_freed_by_deletes() {
    let mut case = Faulty::new(1 << 20);
    case.ops.faults.limit(case.dir.path(), 12 << 20);
    case.ops.faults.hold_compactions();
    let value = "x".repeat(64 << 10);
    let fill = |case: &mut Faulty, mut n: usize| {
        while case.put(&format!("{n:03}"), &value).is_ok() {
            n += 1;
        }
        n
    };
    let n_first = fill(&mut case, 0);
    let is_compacting = case.dir.path().join("00000002.log").exists()
        && !case.dir.path().join("00000002.base").exists();
    assert!(is_compacting);
    assert!(n_first > 40, "{n_first} fit");
    assert!(matches!(case.health(), Health::Full(_)));
    case.ops.faults.release_compactions();
    let n_all = fill(&mut case, n_first);
    for n in 0..n_all / 2 {
        case.delete(&format!("{n:03}")).unwrap();
    }
    case.put("more", "x").unwrap();
    assert_eq!(case.spaces.monitor.failures().compactions, 0);
    assert_eq!(case.content().len(), n_all - n_all / 2 + 1);
}

#[test]
fn deletes_of_many_small_records_are_never_rejected_on_a_full_disk() {
    let mut case = Faulty::new(64 << 20);
    for n in 0..16_000 {
        case.put(&format!("{n:05}{}", "k".repeat(60)), "").unwrap();
    }
    // What deletes free is little beside what is live, and longer than the tail of the log.
    case.put("large", &"x".repeat(20 << 20)).unwrap();
    let taken = fs::read_dir(&case.dir)
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap().len());
    case.ops.faults.limit(case.dir.path(), taken.sum());
    assert!(matches!(
        case.put("more", &"x".repeat(4 << 20)),
        Err(WriteError::NotWritten(_))
    ));
    for n in 0..16_000 {
        case.delete(&format!("{n:05}{}", "k".repeat(60))).unwrap();
    }
    assert_eq!(case.content().into_keys().collect::<Vec<_>>(), ["large"]);
}

#[test]
fn writes_resume_when_other_processes_free_the_disk() {
    let (mut case, acknowledged) = full();
    // Not even a write is needed for the store to notice.
    case.run(SequencerRequest::Expire(0)).unwrap();
    assert!(matches!(case.health(), Health::Full(_)));
    case.ops.faults.lift();
    case.run(SequencerRequest::Expire(0)).unwrap();
    assert!(matches!(case.health(), Health::Writable));
    case.put("more", "x").unwrap();
    assert_eq!(case.content().len(), acknowledged.len() + 1);
}

#[test]
fn a_failed_compaction_is_retried() {
    let mut case = Faulty::new(1 << 20);
    case.put("a", "1").unwrap();
    // There is space for a batch and for nothing that a compaction writes.
    let taken = |dir: &TempDir| -> u64 {
        fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().metadata().unwrap().len())
            .sum()
    };
    case.ops.faults.limit(case.dir.path(), taken(&case.dir));
    fs::remove_file(case.dir.path().join("reserve")).unwrap();
    fs::write(case.dir.path().join("another"), vec![0; 2 << 20]).unwrap();
    for n in 0..30 {
        let _ = case.put("a", &format!("{n}{}", "x".repeat(100 << 10)));
    }
    assert_eq!(case.drafts(), [] as [PathBuf; 0]);
    case.ops.faults.lift();
    fs::remove_file(case.dir.path().join("another")).unwrap();
    for n in 0..30 {
        case.put("a", &format!("{n}{}", "x".repeat(100 << 10)))
            .unwrap();
    }
    let bases = JournalDir {
        dir: case.dir.path().into(),
        ops: case.ops.clone(),
    }
    .generations("base")
    .unwrap();
    assert_eq!(bases.len(), 1, "{bases:?}");
    assert!(taken(&case.dir) < 6 << 20, "{}", taken(&case.dir));
}

#[test]
fn logs_of_an_interrupted_compaction_are_compacted_after_opening() {
    let mut case = Case::new();
    // Each is shorter than what is compacted; together they are not.
    for n in 0..3 {
        for m in 0..5 {
            case.append_value("a", format!("{n}{m}{}", "x".repeat(100 << 10)));
        }
        case.seal();
        case.begin_next_log();
    }
    let (case, _) = case.reopen();
    assert!(case.disk.log_bytes() > 1 << 20 && case.disk.is_bloated());
}

#[test]
fn a_write_whose_fsync_failed_is_reported_as_unknown_and_later_writes_are_rejected() {
    let mut case = Faulty::new(1 << 20);
    case.put("a", "1").unwrap();
    case.ops.faults.fail_syncs();
    assert!(matches!(case.put("b", "1"), Err(WriteError::Unknown(_))));
    case.ops.faults.lift();
    assert!(matches!(case.put("c", "1"), Err(WriteError::Poisoned(_))));
    assert!(matches!(case.delete("a"), Err(WriteError::Poisoned(_))));
    assert!(matches!(case.health(), Health::Failed(_)));
    assert_eq!(
        case.content().into_keys().collect::<Vec<_>>(),
        ["a"],
        "what is not durable is not shown"
    );
    // What a kill would leave: the write came back, which is why it was not answered as refused.
    let copy = tempdir().unwrap();
    for entry in fs::read_dir(&case.dir).unwrap().map(Result::unwrap) {
        fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    let mut killed = Faulty::open(copy, FileOps::default(), 1 << 20);
    assert_eq!(killed.content().into_keys().collect::<Vec<_>>(), ["a", "b"]);
    killed.put("c", "1").unwrap();
}

#[test]
fn a_base_is_synced_in_pieces() {
    let mut case = Faulty::new(3 << 20);
    case.ops.faults.cache_pages();
    for n in 0..60 {
        case.put(&format!("{n:02}"), &"x".repeat(64 << 10)).unwrap();
    }
    assert!(case.dir.path().join("00000002.base").exists());
    let unsynced = case.ops.faults.unsynced_base();
    assert!(
        (1 << 19..3 << 19).contains(&unsynced),
        "{unsynced} bytes were synced at once"
    );
}

/// A store on a disk whose syncs can be slow.
struct Slow {
    store: Store,
    space: Keyspace,
    ops: FileOps,
    dir: TempDir,
}

impl Slow {
    fn new() -> Slow {
        let (dir, ops) = (dir_in_memory(), FileOps::default());
        ops.faults.cache_pages();
        let disk = Disk::open_with(ops.clone(), dir.path(), 1 << 20, None).unwrap();
        let store = Store::with_journal(disk, Options::default()).unwrap();
        let space = store.keyspace("s");
        Slow {
            store,
            space,
            ops,
            dir,
        }
    }

    fn put(&self, key: &str, value: &str) -> impl Future<Output = CommitResult> + use<> {
        let draft = Draft {
            value: value.to_owned().into(),
            ..Draft::default()
        };
        let write = Write::put(&self.space, key, Expect::Any, draft);
        let store = self.store.clone();
        async move { store.commit(vec![write]).await }
    }

    /// Writes while syncs of the log are slow, and checks that this is acknowledged and shown once it is synced.
    async fn check_slow_write(&self, key: &str) {
        let before = self.store.revision();
        let mut watch = self.space.watch(before).unwrap();
        self.ops.faults.hold_syncs(SyncedFile::Log);
        let write = tokio::spawn(self.put(key, "1"));
        tokio::task::yield_now().await;
        self.ops.faults.until_held(SyncedFile::Log);
        tokio::task::yield_now().await;
        assert!(!write.is_finished(), "acknowledged before it is synced");
        assert_eq!(self.store.revision(), before);
        assert!(self.space.snapshot().get(key).is_none());
        assert_eq!(watch.ready().unwrap().len(), 0);
        self.ops.faults.release_syncs(SyncedFile::Log);
        write.await.unwrap().unwrap();
        assert!(self.space.snapshot().get(key).is_some());
        assert_eq!(watch.ready().unwrap().len(), 1);
    }

    fn content(&self) -> Content {
        content_of(&self.space)
    }
}

#[tokio::test]
async fn on_a_slow_disk_a_write_is_acknowledged_and_shown_after_its_sync() {
    let case = Slow::new();
    case.put("a", "1").await.unwrap();
    case.check_slow_write("b").await;
}

#[tokio::test]
async fn a_base_on_a_slow_disk_holds_up_no_write_read_or_watch() {
    let case = Slow::new();
    case.ops.faults.hold_syncs(SyncedFile::Base);
    let value = "x".repeat(64 << 10);
    for _ in 0..20 {
        case.put("a", &value).await.unwrap();
    }
    case.ops.faults.until_held(SyncedFile::Base);
    let base = case.dir.path().join("00000002.base");

    // More than the logs may have before a compaction, and more than the room of the new one.
    let mut watch = case.space.watch(case.store.revision()).unwrap();
    for n in 0..40 {
        case.put(&format!("b{n:02}"), &value).await.unwrap();
        assert_eq!(case.space.snapshot().len(), n + 2);
        assert_eq!(watch.ready().unwrap().len(), 1);
    }
    case.check_slow_write("c").await;
    assert!(!base.exists());

    // A power cut meanwhile.
    let (copy, ops) = case.ops.faults.kill(case.dir.path());
    let mut n_choices = 0;
    ops.faults.cut_power(copy.path(), || {
        n_choices += 1;
        n_choices % 3 > 0
    });
    assert_eq!(
        Faulty::open(copy, ops, 1 << 20).content(),
        case.content(),
        "after a power cut"
    );

    case.ops.faults.release_syncs(SyncedFile::Base);
    let published = tokio::time::timeout(Duration::from_secs(60), async {
        while !base.exists() {
            tokio::task::yield_now().await;
        }
    });
    published.await.expect("the compaction ends");
    let content = case.content();
    case.store.close().await;
    let case = Faulty::open(case.dir, FileOps::default(), 1 << 20);
    assert_eq!(case.content(), content);
}
