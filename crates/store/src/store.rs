//! The store: its keyspaces, the revision counter and the writer.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use tokio::sync::watch;

use crate::disk::{Disk, ReadOnlyDisk};
use crate::disk_engine::DiskEngine;
use crate::engine::CommitResult;
use crate::journal::NoJournal;
use crate::keyspaces::Keyspaces;
use crate::memory::MemoryEngine;
use crate::sequencer::Sequencer;
use crate::state::KeyspaceState;
use crate::{
    Encryptor, Engine, EngineCheck, Expired, Feed, Health, Journal, Keyspace, KeyspaceStats,
    OpenError, ReadError, Record, Revision, Snapshot, WindowLimits, Write, WriteError,
    WriteFailures, load, write,
};

/// A handle on a store; clones share it. When the last one goes, what was accepted is flushed.
#[derive(Clone)]
pub struct Store(Arc<StoreInner>);

struct StoreInner {
    spaces: Arc<Keyspaces>,
    engine: Box<dyn Engine>,
}

/// How a store behaves, beyond where its data is.
#[derive(Clone, Debug)]
pub struct Options {
    /// How much of the past each space remembers.
    pub window: WindowLimits,
    /// The log is compacted when it is larger than this, and than the live records; while it is shorter than eight times this,
    /// only when it is larger than four times the live records. This limits the disk space, and the time at start, that
    /// superseded records cost.
    pub compaction_bytes: u64,
    /// Encryption at rest. A store in memory does not use it.
    pub encryptor: Option<Arc<dyn Encryptor>>,
    /// Acknowledge writes before they are on disk: what the operating system has not written when it crashes is lost, and
    /// the store may not open again. For data of tests, as etcd's flag of this name.
    pub unsafe_no_fsync: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            window: WindowLimits::default(),
            compaction_bytes: 8 << 20,
            encryptor: None,
            unsafe_no_fsync: false,
        }
    }
}

impl Store {
    /// A store that lives as long as the process.
    pub fn in_memory(options: Options) -> Store {
        let spaces = Keyspaces::new(Revision::FIRST, Revision::ZERO, options.window);
        Store::in_memory_with(Arc::new(spaces))
    }

    /// The store in `dir`, which is created if need be. Blocks while it reads what is there.
    pub fn open(dir: impl AsRef<Path>, options: Options) -> Result<Store, OpenError> {
        let disk = Disk::open(dir.as_ref(), &options)?;
        Store::with_journal(disk, options)
    }

    /// The store in `dir`, for reading: nothing is written or removed there, and writes are rejected. No other process may have
    /// it open.
    pub fn open_read_only(dir: impl AsRef<Path>, options: Options) -> Result<Store, OpenError> {
        let disk = ReadOnlyDisk::open(dir.as_ref())?;
        Store::with_journal(disk, options)
    }

    /// Whether writes are accepted.
    pub fn health(&self) -> Health {
        self.0.spaces.monitor.health()
    }

    /// Watches whether writes are accepted.
    pub fn watch_health(&self) -> watch::Receiver<Health> {
        self.0.spaces.monitor.subscribe()
    }

    /// Failures since the store was opened.
    pub fn failures(&self) -> WriteFailures {
        self.0.spaces.monitor.failures()
    }

    /// A store on what `journal` has kept, and that it goes on keeping.
    pub fn with_journal(
        mut journal: impl Journal + 'static,
        options: Options,
    ) -> Result<Store, OpenError> {
        let spaces = Arc::new(load::load(&mut journal, &options)?);
        let sequencer = Sequencer::new(spaces.clone(), Box::new(journal));
        let engine = DiskEngine::start(sequencer, options.encryptor);
        Ok(Store::with(spaces, Box::new(engine)))
    }

    /// A store on an engine that fills each keyspace on its own when it is first used, through the
    /// [`Feed`] that [`Engine::open`] gets.
    pub fn with_engine(engine: Box<dyn Engine>, window: WindowLimits) -> Store {
        Store::with(Arc::new(Keyspaces::independent(window)), engine)
    }

    fn in_memory_with(spaces: Arc<Keyspaces>) -> Store {
        let sequencer = Sequencer::new(spaces.clone(), Box::new(NoJournal));
        Store::with(spaces, Box::new(MemoryEngine::new(sequencer)))
    }

    fn with(spaces: Arc<Keyspaces>, engine: Box<dyn Engine>) -> Store {
        Store(Arc::new(StoreInner { spaces, engine }))
    }

    /// The space of this name, which is created on first use.
    pub fn keyspace(&self, name: &str) -> Keyspace {
        let open = |space: &Keyspace| {
            let feed = Feed::new(space.clone(), self.0.spaces.clone());
            self.0.engine.open(feed);
        };
        self.0.spaces.get_or_open(name, open).0
    }

    /// The caller will not use the space of this name again, unless it asks for it again. An engine that fills keyspaces
    /// closes it in a later [`expire`](Store::expire), once every handle is gone: requests and watches that have one come
    /// to their end. Others keep it, because it has the records.
    pub fn release(&self, name: &str) {
        self.0.spaces.release(name);
    }

    /// Waits until every keyspace that was used so far has been filled.
    pub async fn filled(&self) {
        for space in self.0.spaces.all() {
            self.filled_one(&space).await;
        }
    }

    /// Waits until `space` has been filled for the first time.
    pub async fn filled_one(&self, space: &Keyspace) {
        if self.0.engine.is_shared() {
            space.reached(Revision::FIRST).await;
        }
    }

    /// The record of `key`, with all writes that were acknowledged before the call, by any process.
    pub async fn get(&self, space: &Keyspace, key: &str) -> Result<Option<Arc<Record>>, ReadError> {
        match self.0.engine.is_shared() {
            true => self.0.engine.get(space, key).await,
            false => Ok(space.snapshot().get(key).cloned()),
        }
    }

    /// `space` with all writes that were acknowledged before the call, by any process.
    pub async fn latest(&self, space: &Keyspace) -> Result<Snapshot, ReadError> {
        self.latest_below(space, "").await
    }

    /// The same for the keys that begin with `prefix`; other keys may be missing or outdated.
    pub async fn latest_below(
        &self,
        space: &Keyspace,
        prefix: &str,
    ) -> Result<Snapshot, ReadError> {
        match self.0.engine.is_shared() {
            true => self.0.engine.latest(space, prefix).await,
            false => Ok(space.snapshot()),
        }
    }

    /// `space` as it was at `revision`: from a retained snapshot, from its window, or from the engine.
    pub async fn snapshot_at(
        &self,
        space: &Keyspace,
        revision: Revision,
    ) -> Result<Snapshot, ReadError> {
        self.snapshot_below(space, "", revision).await
    }

    /// The same for the keys that begin with `prefix`; other keys may be missing or of another revision.
    pub async fn snapshot_below(
        &self,
        space: &Keyspace,
        prefix: &str,
        revision: Revision,
    ) -> Result<Snapshot, ReadError> {
        if let Some(kept) = space.retained(revision, prefix) {
            return Ok(kept);
        }
        let seen = space.revision();
        let snapshot = match self.0.engine.is_shared() && revision > seen {
            // The keyspace lags behind: it would show what it has as the state at the revision.
            true => Err(Expired {
                requested: revision,
                oldest: seen,
            }),
            false => space.snapshot_at(revision),
        };
        match snapshot {
            Err(expired) if self.0.engine.is_shared() => {
                let read = self.0.engine.snapshot_at(space, prefix, revision, expired);
                read.await
            }
            snapshot => Ok(snapshot?),
        }
    }

    /// Whether other processes write to the same data, so that snapshots may lag behind.
    pub fn is_shared(&self) -> bool {
        self.0.engine.is_shared()
    }

    /// How many clusters of servers have the data, each of which can be checked.
    pub fn n_clusters(&self) -> usize {
        self.0.engine.n_clusters()
    }

    /// Whether reads and writes are answered now by one of the clusters.
    pub async fn check(&self, check: EngineCheck, cluster: usize) -> Result<(), ReadError> {
        self.0.engine.check(check, cluster).await
    }

    /// The latest revision that readers can see. A snapshot taken after this call shows at least this revision.
    pub fn revision(&self) -> Revision {
        self.0.spaces.ledger().revision()
    }

    /// Waits until readers can see `revision`, however long that takes.
    pub async fn reached(&self, revision: Revision) {
        self.0.spaces.ledger().reached(revision).await;
    }

    /// Compacts revisions before `revision`: [`Keyspace::snapshot_at`] answers [`Expired`] for it. An engine with data that
    /// other processes use, too, compacts what they agree on. Watches go on as far as their window reaches.
    pub async fn compact_history(&self, revision: Revision) {
        let engine = &self.0.engine;
        engine.compact(revision).await;
        if !engine.is_shared() {
            self.0.spaces.ledger().compact(revision);
        }
        let spaces = &self.0.spaces;
        spaces.compact(|space| engine.compacted(space, revision));
    }

    /// Commits a transaction: all of it, durably and under one revision, or none of it. Returns the record of each
    /// put and delete, in order. A transaction of checks alone takes no revision.
    ///
    /// Dropping the future does not take back what was sent: the transaction may still commit.
    pub async fn commit(&self, mut writes: Vec<Write>) -> CommitResult {
        write::normalize(&mut writes)?;
        if let Some(write) = writes
            .iter()
            .position(|write| !write.space.belongs_to(self.0.spaces.ledger()))
        {
            return Err(WriteError::Malformed {
                write,
                why: "the space is another store's",
            });
        }
        self.0.engine.commit(writes).await
    }

    /// Whether a record of `space` is encrypted under an old key, or in plain text and should not be.
    pub fn is_stale(&self, space: &Keyspace, record: &Record) -> bool {
        self.0.engine.is_stale(space.name(), record)
    }

    /// Commits one put or delete.
    ///
    /// # Panics
    /// If the change is a [`Check`](crate::WriteOperation::Check), which has no record to return.
    pub async fn commit_one(&self, write: Write) -> Result<Arc<Record>, WriteError> {
        let mut records = self.commit(vec![write]).await?;
        Ok(records.pop().expect("a put or delete leaves a record"))
    }

    /// Deletes every record that expires at or before `now`, each as a transaction of its own, and returns how many
    /// there were. Watchers get the last value of the record, stamped with the revision of the delete. Events that are
    /// too old by then are dropped, and keyspaces that were [released](Store::release). The caller passes the time, every
    /// few seconds.
    pub async fn expire(&self, now: u64) -> Result<usize, WriteError> {
        self.0.spaces.age(now);
        let close = |space: &Keyspace| self.0.engine.release(space);
        self.0.spaces.drop_released(close);
        self.0.engine.expire(now).await
    }

    /// A store in memory with the same content, past and revision, from which both go their own ways. Costs as many
    /// pointers as there are spaces. What was on disk stays with the original.
    pub fn fork(&self) -> Store {
        Store::in_memory_with(Arc::new(self.0.spaces.fork()))
    }

    /// A store in memory that begins with snapshots of another store's keyspaces, at the latest revision of them.
    pub fn of_snapshots(snapshots: impl IntoIterator<Item = (Arc<str>, Snapshot)>) -> Store {
        let snapshots: Vec<_> = snapshots.into_iter().collect();
        let revisions = snapshots.iter().map(|(_, snapshot)| snapshot.at());
        let revision = revisions.max().unwrap_or(Revision::FIRST);
        let spaces = Keyspaces::new(revision, revision, WindowLimits::default());
        for (name, snapshot) in snapshots {
            spaces.add(name, KeyspaceState::clone(snapshot.state()));
        }
        Store::in_memory_with(Arc::new(spaces))
    }

    /// Every space in figures, by name.
    pub fn stats(&self) -> Vec<KeyspaceStats> {
        self.0.spaces.all().iter().map(Keyspace::stats).collect()
    }

    /// Takes no more writes, makes those that were accepted durable, and gives the data directory back. Reading goes
    /// on; a watcher waits for events that do not come.
    pub async fn close(&self) {
        self.0.engine.close().await;
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Store(at {})", self.revision())
    }
}
