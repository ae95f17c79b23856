//! The delta FIFO: changes by object.
//!
//! Objects are popped in the order of their first change, each with all changes since it was popped
//! last. Two deletions in a row are one.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! use k8s_openapi::api::core::v1::Pod;
//! use mizzen_sdk::cache::{Entry, Store, Version};
//! use mizzen_sdk::fifo::{Delta, DeltaFifo};
//!
//! let pod = |version: u64| {
//!     let text = format!(r#"{{"metadata": {{"name": "web", "resourceVersion": "{version}"}}}}"#);
//!     Entry::<Pod>::new(text.into_bytes()).expect("it is JSON")
//! };
//! let fifo = DeltaFifo::new(Store::new());
//! fifo.replace(vec![pod(1)], Version(1));
//! fifo.push(Delta::Updated(pod(2)));
//! fifo.push(Delta::Deleted(pod(3)));
//! let batch = fifo.pop(100).await.expect("it is open");
//! assert_eq!(batch.deltas[0].len(), 3); // all that happened to one object
//! assert!(batch.synced && batch.deltas[0][2].is_gone());
//! # });
//! ```
//!
//! Invariant: after a replacement, a reader that has popped everything has exactly the objects of
//! that list; a known object that is not in it comes as [`Delta::Lost`].

use parking_lot::Mutex;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use tokio::sync::Notify;

use crate::cache::{Entry, Store, Version};
use crate::key::Key;

/// One change of an object.
///
/// ```
/// use mizzen_sdk::Object;
/// use mizzen_sdk::cache::Entry;
/// use mizzen_sdk::fifo::Delta;
///
/// let entry: Entry<Object> = Entry::new(*br#"{"metadata":{"name":"web"}}"#)?;
/// assert!(!Delta::Added(entry.clone()).is_gone());
/// let lost = Delta::Lost(entry);
/// assert!(lost.is_gone() && lost.entry().key().name() == "web");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug)]
pub enum Delta<K> {
    /// It was created.
    Added(Entry<K>),
    /// It was updated.
    Updated(Entry<K>),
    /// It was deleted, with its last state.
    Deleted(Entry<K>),
    /// It was deleted while the watch was interrupted, with its last known state (upstream:
    /// DeletedFinalStateUnknown).
    Lost(Entry<K>),
    /// It is in a list that replaces the known objects.
    Replaced(Entry<K>),
    /// A resync without a change.
    Sync(Entry<K>),
}

impl<K> Clone for Delta<K> {
    fn clone(&self) -> Delta<K> {
        match self {
            Delta::Added(entry) => Delta::Added(entry.clone()),
            Delta::Updated(entry) => Delta::Updated(entry.clone()),
            Delta::Deleted(entry) => Delta::Deleted(entry.clone()),
            Delta::Lost(entry) => Delta::Lost(entry.clone()),
            Delta::Replaced(entry) => Delta::Replaced(entry.clone()),
            Delta::Sync(entry) => Delta::Sync(entry.clone()),
        }
    }
}

impl<K> Delta<K> {
    /// The object.
    pub fn entry(&self) -> &Entry<K> {
        match self {
            Delta::Added(entry)
            | Delta::Updated(entry)
            | Delta::Deleted(entry)
            | Delta::Lost(entry)
            | Delta::Replaced(entry)
            | Delta::Sync(entry) => entry,
        }
    }

    /// Whether the object is deleted.
    pub fn is_gone(&self) -> bool {
        matches!(self, Delta::Deleted(_) | Delta::Lost(_))
    }
}

/// The changes of one object, oldest first.
///
/// ```
/// use mizzen_sdk::Object;
/// use mizzen_sdk::fifo::{Delta, Deltas};
///
/// fn is_deleted(deltas: &Deltas<Object>) -> bool {
///     deltas.last().is_some_and(Delta::is_gone)
/// }
///
/// assert!(!is_deleted(&Deltas::new()));
/// ```
pub type Deltas<K> = Vec<Delta<K>>;

/// A queue of changes. Clones share the queue.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?.block_on(async {
/// use mizzen_sdk::Object;
/// use mizzen_sdk::cache::{Entry, Store};
/// use mizzen_sdk::fifo::{Delta, DeltaFifo};
///
/// let fifo: DeltaFifo<Object> = DeltaFifo::new(Store::new());
/// fifo.push(Delta::Added(Entry::new(*br#"{"metadata":{"name":"web"}}"#)?));
/// assert_eq!(fifo.len(), 1);
/// fifo.close();
/// assert_eq!(fifo.pop(10).await.expect("one is left").deltas.len(), 1);
/// assert!(fifo.pop(10).await.is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct DeltaFifo<K>(Arc<FifoInner<K>>);

struct FifoInner<K> {
    state: Mutex<FifoState<K>>,
    /// The objects that the reader has.
    known: Store<K>,
    /// The namespace of this queue; `None` for all.
    namespace: Option<Box<str>>,
    changed: Notify,
}

struct FifoState<K> {
    deltas: HashMap<Key, Deltas<K>, foldhash::fast::RandomState>,
    order: VecDeque<Key>,
    /// The number of objects of the first list that are not popped yet; `None` before the first
    /// list.
    initial: Option<usize>,
    /// The version up to which all changes are queued or popped.
    version: Version,
    /// The version that the reader has.
    reported: Version,
    is_closed: bool,
}

impl<K> Clone for DeltaFifo<K> {
    fn clone(&self) -> DeltaFifo<K> {
        DeltaFifo(self.0.clone())
    }
}

impl<K> DeltaFifo<K> {
    /// An empty queue. `known` is the store of its reader. The queue uses the key function of that
    /// store, so deltas are collected and known objects found under the same keys.
    pub fn new(known: Store<K>) -> DeltaFifo<K> {
        DeltaFifo::about(known, None)
    }

    /// An empty queue for one namespace, if the store of the reader has several.
    pub fn namespaced(known: Store<K>, namespace: &str) -> DeltaFifo<K> {
        DeltaFifo::about(known, Some(namespace.into()))
    }

    fn about(known: Store<K>, namespace: Option<Box<str>>) -> DeltaFifo<K> {
        let state = FifoState {
            deltas: HashMap::default(),
            order: VecDeque::new(),
            initial: None,
            version: Version::default(),
            reported: Version::default(),
            is_closed: false,
        };
        DeltaFifo(Arc::new(FifoInner {
            state: Mutex::new(state),
            known,
            namespace,
            changed: Notify::new(),
        }))
    }

    /// Adds a change. It is ignored if the object is known in this version or a later one.
    pub fn push(&self, delta: Delta<K>) {
        let mut state = self.0.state.lock();
        state.version = state.version.max(delta.entry().version());
        if state.is_closed || self.is_old(&state, &delta) {
            return;
        }
        self.enqueue(&mut state, delta);
        drop(state);
        self.0.changed.notify_one();
    }

    fn is_old(&self, state: &FifoState<K>, delta: &Delta<K>) -> bool {
        let entry = delta.entry();
        let key = self.key_of(entry);
        let latest = state.deltas.get(&*key).and_then(|deltas| deltas.last());
        match (delta, latest) {
            (Delta::Sync(_), _) => false,
            (_, Some(latest)) => latest.entry().version() >= entry.version(),
            (Delta::Deleted(_) | Delta::Lost(_), None) => self.0.known.get(&key).is_none(),
            (_, None) => self
                .0
                .known
                .get(&key)
                .is_some_and(|known| known.version() >= entry.version()),
        }
    }

    /// The key under which the deltas of an object are collected.
    ///
    /// ```
    /// use mizzen_sdk::Object;
    /// use mizzen_sdk::cache::{Entry, Store};
    /// use mizzen_sdk::fifo::DeltaFifo;
    ///
    /// let fifo: DeltaFifo<Object> = DeltaFifo::new(Store::new());
    /// let web: Entry<Object> = Entry::new(*br#"{"metadata":{"name":"web"}}"#)?;
    /// assert_eq!(fifo.key_of(&web).to_string(), "web");
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub fn key_of<'a>(&self, entry: &'a Entry<K>) -> Cow<'a, Key> {
        self.0.known.key_of(entry)
    }

    fn enqueue(&self, state: &mut FifoState<K>, delta: Delta<K>) {
        let key = self.key_of(delta.entry()).into_owned();
        state.push(key, delta);
    }

    /// Replaces the known objects by a list as of `version`.
    pub fn replace(&self, entries: Vec<Entry<K>>, version: Version) {
        let mut state = self.0.state.lock();
        if state.is_closed {
            return;
        }
        let listed: HashSet<Key> = entries
            .iter()
            .map(|entry| self.key_of(entry).into_owned())
            .collect();
        let lost = self.lost(&state, &listed);
        let n_entries = listed.len() + lost.len();
        entries
            .into_iter()
            .for_each(|entry| self.enqueue(&mut state, Delta::Replaced(entry)));
        lost.into_iter()
            .for_each(|entry| self.enqueue(&mut state, Delta::Lost(entry)));
        state.version = state.version.max(version);
        state.initial.get_or_insert(n_entries);
        drop(state);
        self.0.changed.notify_one();
    }

    /// The objects that the reader has, or will have, and that are not in the list.
    fn lost(&self, state: &FifoState<K>, listed: &HashSet<Key>) -> Vec<Entry<K>> {
        let mut lost = Vec::new();
        for (key, deltas) in state.deltas.iter().filter(|(key, _)| !listed.contains(key)) {
            if let Some(latest) = deltas.last().filter(|latest| !latest.is_gone()) {
                lost.push(latest.entry().clone());
            } else if deltas.is_empty() {
                lost.extend(self.0.known.get(key));
            }
        }
        let is_unlisted = |key: &Key| !listed.contains(key) && !state.deltas.contains_key(key);
        lost.extend(
            self.known()
                .into_iter()
                .filter(|entry| is_unlisted(&self.key_of(entry))),
        );
        // Maps have a different order in each run; a simulation needs the same in all.
        lost.sort_by(|one, other| self.key_of(one).cmp(&self.key_of(other)));
        lost
    }

    /// The objects that the reader has, within the namespace.
    fn known(&self) -> Vec<Entry<K>> {
        let mut known = self.0.known.list();
        if let Some(namespace) = &self.0.namespace {
            known.retain(|entry| entry.key().namespace() == &**namespace);
        }
        known
    }

    /// Queues all known objects without queued changes for a resync.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?.block_on(async {
    /// use mizzen_sdk::Object;
    /// use mizzen_sdk::cache::{Entry, Store};
    /// use mizzen_sdk::fifo::DeltaFifo;
    ///
    /// let known: Store<Object> = Store::new();
    /// known.insert(Entry::new(*br#"{"metadata":{"name":"web"}}"#)?);
    /// let fifo = DeltaFifo::new(known);
    /// fifo.resync();
    /// assert_eq!(fifo.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn resync(&self) {
        let mut state = self.0.state.lock();
        for entry in self.known() {
            if !state.is_closed && !state.deltas.contains_key(&*self.key_of(&entry)) {
                self.enqueue(&mut state, Delta::Sync(entry));
            }
        }
        drop(state);
        self.0.changed.notify_one();
    }

    /// Advances the version without a change.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?.block_on(async {
    /// use mizzen_sdk::Object;
    /// use mizzen_sdk::cache::{Store, Version};
    /// use mizzen_sdk::fifo::DeltaFifo;
    ///
    /// let fifo: DeltaFifo<Object> = DeltaFifo::new(Store::new());
    /// fifo.advance(Version(7)); // a bookmark
    /// assert_eq!(fifo.pop(10).await.expect("it is open").version, Version(7));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn advance(&self, version: Version) {
        let mut state = self.0.state.lock();
        state.version = state.version.max(version);
        drop(state);
        self.0.changed.notify_one();
    }

    /// Pops up to `max` objects with their changes; waits for the first. The version is that up to
    /// which everything is known once this batch and all before it are processed. `None` after the
    /// queue was closed.
    pub async fn pop(&self, max: usize) -> Option<Batch<K>> {
        loop {
            let changed = self.0.changed.notified();
            {
                let mut state = self.0.state.lock();
                let batch = state.take(max);
                if !batch.deltas.is_empty() || batch.version > state.reported {
                    state.reported = state.reported.max(batch.version);
                    return Some(batch);
                }
                if state.is_closed {
                    return None;
                }
            }
            changed.await;
        }
    }

    /// Whether the first list was popped whole.
    pub fn has_synced(&self) -> bool {
        self.0.state.lock().initial == Some(0)
    }

    /// The newest state of each queued object, in the order in which they will be popped. A deleted
    /// object is among them until its deltas are popped.
    pub fn list(&self) -> Vec<Entry<K>> {
        let state = self.0.state.lock();
        let newest = |key| Some(state.deltas.get(key)?.last()?.entry().clone());
        state.order.iter().filter_map(newest).collect()
    }

    /// The keys of the queued objects, in the order in which they will be popped.
    ///
    /// ```
    /// use mizzen_sdk::Object;
    /// use mizzen_sdk::cache::{Entry, Store};
    /// use mizzen_sdk::fifo::{Delta, DeltaFifo};
    ///
    /// let fifo: DeltaFifo<Object> = DeltaFifo::new(Store::new());
    /// let web: Entry<Object> = Entry::new(*br#"{"metadata":{"name":"web"}}"#)?;
    /// fifo.push(Delta::Added(web));
    /// assert_eq!(fifo.list_keys()[0].name(), "web");
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub fn list_keys(&self) -> Vec<Key> {
        self.0.state.lock().order.iter().cloned().collect()
    }

    /// The deltas that are queued under `key`; they stay in the queue.
    ///
    /// ```
    /// use mizzen_sdk::Object;
    /// use mizzen_sdk::cache::{Entry, Store};
    /// use mizzen_sdk::fifo::{Delta, DeltaFifo};
    ///
    /// let fifo: DeltaFifo<Object> = DeltaFifo::new(Store::new());
    /// let web: Entry<Object> = Entry::new(*br#"{"metadata":{"name":"web"}}"#)?;
    /// let key = web.key().clone();
    /// fifo.push(Delta::Added(web));
    /// assert_eq!(fifo.get_by_key(&key).map(|deltas| deltas.len()), Some(1));
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub fn get_by_key(&self, key: &Key) -> Option<Deltas<K>> {
        self.0.state.lock().deltas.get(key).cloned()
    }

    /// The number of queued objects.
    pub fn len(&self) -> usize {
        self.0.state.lock().order.len()
    }

    /// Whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Accepts no more changes. Queued ones can still be popped.
    pub fn close(&self) {
        self.0.state.lock().is_closed = true;
        self.0.changed.notify_one();
    }
}

/// Objects with their changes.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?.block_on(async {
/// use mizzen_sdk::Object;
/// use mizzen_sdk::cache::{Entry, Store, Version};
/// use mizzen_sdk::fifo::DeltaFifo;
///
/// let fifo: DeltaFifo<Object> = DeltaFifo::new(Store::new());
/// fifo.replace(vec![Entry::new(*br#"{"metadata":{"name":"web"}}"#)?], Version(7));
/// let batch = fifo.pop(10).await.expect("it is open");
/// assert_eq!((batch.deltas.len(), batch.version, batch.synced), (1, Version(7), true));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Batch<K> {
    /// By object.
    pub deltas: Vec<Deltas<K>>,
    /// The version up to which everything is known with this batch; zero if there is more to pop.
    pub version: Version,
    /// Whether the first list is whole with this batch.
    pub synced: bool,
}

impl<K> FifoState<K> {
    fn push(&mut self, key: Key, delta: Delta<K>) {
        if !self.deltas.contains_key(&key) {
            self.order.push_back(key.clone());
        }
        let deltas = self.deltas.entry(key).or_default();
        match (deltas.last_mut(), &delta) {
            // Of two deletions the one with the observed final state is kept.
            (Some(Delta::Deleted(_)), Delta::Lost(_)) => {}
            (Some(latest), _) if latest.is_gone() && delta.is_gone() => *latest = delta,
            _ => deltas.push(delta),
        }
    }

    fn take(&mut self, max: usize) -> Batch<K> {
        let n_taken = max.min(self.order.len());
        let keys = self.order.drain(..n_taken);
        let deltas: Vec<_> = keys.filter_map(|key| self.deltas.remove(&key)).collect();
        if let Some(initial) = &mut self.initial {
            *initial = initial.saturating_sub(n_taken);
        }
        let version = if self.order.is_empty() {
            self.version
        } else {
            Version::default()
        };
        Batch {
            deltas,
            version,
            synced: self.initial == Some(0),
        }
    }
}
