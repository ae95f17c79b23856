//! A keyspace: a named ordered map with its watch window.

use parking_lot::{Mutex, RwLock};
use std::fmt;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::ledger::RevisionLedger;
use crate::retained::Retained;
use crate::revision_times::RevisionTimes;
use crate::state::KeyspaceState;
use crate::watch_index::{WatchGroup, WatchIndex};
use crate::window::Window;
use crate::{Event, Expired, Revision, Snapshot, Watch, WatchScope, WindowLimits};

/// A handle on one named ordered map of a store; clones share it.
#[derive(Clone)]
pub struct Keyspace(Arc<KeyspaceInner>);

struct KeyspaceInner {
    name: Arc<str>,
    /// The ledger of the store.
    store: Arc<RevisionLedger>,
    /// The revision that readers of this space see: the ledger of the store, or its own.
    ledger: Arc<RevisionLedger>,
    live: RwLock<PublishedState>,
    retained: Mutex<Retained>,
    /// When its revisions were the latest: those of other spaces may count differently.
    times: Mutex<RevisionTimes>,
    decode_errors: AtomicU64,
    /// Whether a feed has a handle.
    has_feed: AtomicBool,
}

/// What a batch changes in one step.
struct PublishedState {
    state: Arc<KeyspaceState>,
    window: Window,
    watches: WatchIndex,
}

/// A space in figures.
#[derive(Clone, Debug)]
pub struct KeyspaceStats {
    /// The space's name.
    pub name: Arc<str>,
    /// How many records it has.
    pub records: usize,
    /// The bytes of their values.
    pub bytes: u64,
    /// How many events the window holds.
    pub events: usize,
    /// How many events there were since the store was opened.
    pub n_published: u64,
    /// The bytes of records that only the window keeps alive.
    pub superseded: u64,
    /// How many snapshots are kept for paging readers.
    pub snapshots: usize,
    /// How many watches are open.
    pub watches: usize,
    /// How many reads failed because a record could not be decoded.
    pub decode_errors: u64,
}

impl Keyspace {
    /// A space that holds `state` and remembers nothing before the store was opened.
    pub(crate) fn new(
        name: Arc<str>,
        store: &Arc<RevisionLedger>,
        ledger: Arc<RevisionLedger>,
        state: KeyspaceState,
        bounds: WindowLimits,
    ) -> Keyspace {
        let window = Window::new(ledger.opened, bounds);
        Keyspace::with(
            name,
            store.clone(),
            ledger,
            PublishedState {
                state: Arc::new(state),
                window,
                watches: WatchIndex::default(),
            },
        )
    }

    fn with(
        name: Arc<str>,
        store: Arc<RevisionLedger>,
        ledger: Arc<RevisionLedger>,
        live: PublishedState,
    ) -> Keyspace {
        Keyspace(Arc::new(KeyspaceInner {
            name,
            store,
            ledger,
            live: RwLock::new(live),
            retained: Mutex::default(),
            times: Mutex::default(),
            decode_errors: AtomicU64::new(0),
            has_feed: AtomicBool::new(false),
        }))
    }

    /// The same content and past, in a store of its own. The caller holds the gate.
    pub(crate) fn fork(&self, ledger: &Arc<RevisionLedger>) -> Keyspace {
        let live = self.0.live.read();
        let live = PublishedState {
            state: live.state.clone(),
            window: live.window.clone(),
            watches: WatchIndex::default(),
        };
        Keyspace::with(self.0.name.clone(), ledger.clone(), ledger.clone(), live)
    }

    /// The space's name.
    pub fn name(&self) -> &Arc<str> {
        &self.0.name
    }

    /// The latest revision that readers of this space can see; zero before it is filled for the first time.
    pub fn revision(&self) -> Revision {
        self.0.ledger.revision()
    }

    /// Waits until readers of this space can see `revision`, however long that takes.
    pub async fn reached(&self, revision: Revision) {
        self.0.ledger.reached(revision).await;
    }

    /// The space as it is now.
    pub fn snapshot(&self) -> Snapshot {
        let _gate = self.0.ledger.still();
        Snapshot::new(self.state(), self.0.ledger.revision())
    }

    /// The space as it was at `revision`: from a retained snapshot, or by undoing what happened since, which costs
    /// in proportion to that. A revision that is yet to come shows the present; one that was compacted is gone.
    pub fn snapshot_at(&self, revision: Revision) -> Result<Snapshot, Expired> {
        let now = self.snapshot();
        if revision >= now.at() {
            return Ok(now);
        }
        let oldest = self.0.ledger.compacted();
        if revision < oldest {
            return Err(Expired {
                requested: revision,
                oldest,
            });
        }
        if revision >= now.revision() {
            return Ok(Snapshot::new(now.state().clone(), revision));
        }
        if let Some(kept) = self.0.retained.lock().find(revision, "") {
            return Ok(kept);
        }
        let rebuilt = Snapshot::new(self.rebuild(revision)?, revision);
        self.retain(&rebuilt);
        Ok(rebuilt)
    }

    /// Keeps `snapshot` for [`snapshot_at`](Self::snapshot_at), so that a list read in pages costs nothing extra
    /// per page. A space keeps the latest 64 until they are compacted, while they hold at most 64 MiB of values that are
    /// no longer live. A snapshot of a part of the space is kept for lists of that part.
    pub fn retain(&self, snapshot: &Snapshot) {
        self.0.retained.lock().keep(snapshot);
    }

    /// A retained snapshot that shows the keys that begin with `prefix` as they were at `revision`, which is not compacted.
    pub fn retained(&self, revision: Revision, prefix: &str) -> Option<Snapshot> {
        if revision < self.0.ledger.compacted() {
            return None;
        }
        self.0.retained.lock().find(revision, prefix)
    }

    /// Watches the events after `after`.
    pub fn watch(&self, after: Revision) -> Result<Watch, Expired> {
        self.watch_scope(after, WatchScope::Everything)
    }

    /// Watches the events of `scope` after `after`. Other events cost it nothing.
    ///
    /// # Panics
    /// If a prefix does not end with a slash.
    pub fn watch_scope(&self, after: Revision, scope: WatchScope) -> Result<Watch, Expired> {
        if let WatchScope::Prefix(prefix) = &scope {
            assert!(prefix.ends_with('/'), "a prefix ends with a slash");
        }
        // All events in the window are visible, so that no notification of them is still to come.
        let _gate = self.0.ledger.still();
        let mut live = self.0.live.write();
        live.window.reaches(after)?;
        let group = live.watches.join(&scope);
        let joined = live.window.last();
        Ok(Watch::new(self.clone(), scope, group, (joined, after)))
    }

    /// A watch of `scope` ends.
    pub(crate) fn leave(&self, scope: &WatchScope) {
        self.0.live.write().watches.leave(scope);
    }

    /// The bytes of all values that were ever replaced or deleted here: how much it grew since is what a reader of an old
    /// state may keep alive.
    pub fn superseded(&self) -> u64 {
        self.0.live.read().state.superseded
    }

    /// Counts a read that failed because a record could not be decoded. What a record means is the caller's business.
    pub fn count_decode_error(&self) {
        self.0.decode_errors.fetch_add(1, Ordering::Relaxed);
    }

    /// The space in figures.
    pub fn stats(&self) -> KeyspaceStats {
        let snapshots = self.0.retained.lock().len();
        let live = self.0.live.read();
        KeyspaceStats {
            name: self.0.name.clone(),
            records: live.state.len(),
            bytes: live.state.bytes,
            events: live.window.len(),
            n_published: live.window.n_pushed,
            superseded: live.window.bytes(),
            snapshots,
            watches: live.watches.n_watches(),
            decode_errors: self.0.decode_errors.load(Ordering::Relaxed),
        }
    }

    /// The published events after `after`. An event beyond the revision of the ledger is held back: a client must not see
    /// a revision that it cannot read.
    pub(crate) fn events_after(
        &self,
        after: Revision,
        limit: usize,
    ) -> Result<Vec<Event>, Expired> {
        let until = self.0.ledger.revision();
        let live = self.0.live.read();
        live.window.reaches(after)?;
        Ok(live.window.between(after, until, limit))
    }

    /// As [`events_after`](Self::events_after), but only what `concerns` a watch of `group`.
    pub(crate) fn group_events_after(
        &self,
        group: &WatchGroup,
        after: Revision,
        limit: usize,
        concerns: impl Fn(&Event) -> bool,
    ) -> Result<Vec<Event>, Expired> {
        let until = self.0.ledger.revision();
        let live = self.0.live.read();
        let revisions = group.between(after, until, live.window.floor(), limit)?;
        let events = revisions.into_iter().flat_map(|at| live.window.at(at));
        Ok(events.filter(|event| concerns(event)).cloned().collect())
    }

    /// The latest revision until which nothing happened to `group` after `seen`.
    pub(crate) fn group_quiet_until(&self, group: &WatchGroup, seen: Revision) -> Revision {
        let until = self.0.ledger.revision();
        let live = self.0.live.read();
        match group.between(seen, until, live.window.floor(), 1) {
            Ok(unseen) if unseen.is_empty() => seen.max(until),
            _ => seen,
        }
    }

    /// The latest revision until which nothing happened here after `seen`.
    pub(crate) fn quiet_until(&self, seen: Revision) -> Revision {
        // Loaded before looking: all events up to it are in the window by then.
        let until = self.0.ledger.revision();
        let live = self.0.live.read();
        match live.window.reaches(seen).is_ok() && live.window.is_quiet(seen, until) {
            true => seen.max(until),
            false => seen,
        }
    }

    pub(crate) fn state(&self) -> Arc<KeyspaceState> {
        self.0.live.read().state.clone()
    }

    /// A feed begins or ceases to hold a handle of its own.
    pub(crate) fn set_has_feed(&self, has_feed: bool) {
        self.0.has_feed.store(has_feed, Ordering::Release);
    }

    /// Whether there are handles besides those of the store and of the feed.
    pub(crate) fn is_used(&self) -> bool {
        let n_own = 1 + usize::from(self.0.has_feed.load(Ordering::Acquire));
        Arc::strong_count(&self.0) > n_own
    }

    pub(crate) fn belongs_to(&self, store: &Arc<RevisionLedger>) -> bool {
        Arc::ptr_eq(&self.0.store, store)
    }

    pub(crate) fn ledger(&self) -> &RevisionLedger {
        &self.0.ledger
    }

    pub(crate) fn is(&self, other: &Keyspace) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Makes `state` current, and the `events` that led to it the latest of the past. The caller holds the gate.
    pub(crate) fn publish(
        &self,
        state: Arc<KeyspaceState>,
        events: impl IntoIterator<Item = Event>,
    ) -> Arc<KeyspaceState> {
        let mut live = self.0.live.write();
        let PublishedState {
            window, watches, ..
        } = &mut *live;
        for event in events {
            watches.push(&event, window.floor());
            window.push(event);
        }
        mem::replace(&mut live.state, state)
    }

    /// Makes `state` current, and forgets the past: what led to it is not known. The caller holds the gate.
    pub(crate) fn restart(
        &self,
        state: Arc<KeyspaceState>,
        revision: Revision,
    ) -> Arc<KeyspaceState> {
        let mut live = self.0.live.write();
        live.window.restart(revision);
        live.watches.restart(revision);
        mem::replace(&mut live.state, state)
    }

    /// Forgets events that are at least so many seconds old at the Unix second `now`, but for as many as are always kept.
    pub(crate) fn age(&self, now: u64, seconds: u64) {
        let old = self.0.times.lock().note(now, self.revision(), seconds);
        if let Some(old) = old {
            self.0.live.write().window.forget(old);
        }
    }

    /// Drops snapshots from before `revision`.
    pub(crate) fn compact(&self, revision: Revision) {
        self.0.ledger.compact(revision);
        self.0.retained.lock().compact(revision);
    }

    /// The bytes that only the window keeps alive.
    pub(crate) fn window_bytes(&self) -> u64 {
        self.0.live.read().window.bytes()
    }

    /// Forgets the older half of the window, by bytes.
    pub(crate) fn halve_window(&self) {
        self.0.live.write().window.halve();
    }

    /// Work that is done after writers got their answer.
    pub(crate) fn settle(&self) {
        let state = self.state();
        self.0.retained.lock().prune(&state);
        let concerned = self.0.live.write().watches.take_concerned();
        for group in concerned {
            group.notify().notify_waiters();
        }
    }

    fn rebuild(&self, revision: Revision) -> Result<Arc<KeyspaceState>, Expired> {
        let live = self.0.live.read();
        let (mut state, undo) = (
            KeyspaceState::clone(&live.state),
            live.window.undo(revision)?,
        );
        drop(live);
        undo.apply(&mut state);
        Ok(Arc::new(state))
    }
}

impl fmt::Debug for Keyspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Space({})", self.0.name)
    }
}
