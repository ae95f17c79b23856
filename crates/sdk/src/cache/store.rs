//! The store: objects of a kind and their indexes.

use parking_lot::RwLock;
use std::borrow::Cow;
use std::sync::Arc;

use tokio::sync::watch;

use super::entry::{Entry, Recent, Version};
use super::index::{Index, IndexFunction, Indexes, Shared};
use crate::key::Key;

/// Returns the key under which a store keeps an object.
///
/// ```
/// use std::sync::Arc;
/// use mizzen_sdk::cache::{Entry, KeyFunction, Store};
/// use mizzen_sdk::{Key, Object};
///
/// let by_uid: KeyFunction<Object> = Arc::new(|entry| Key::cluster(entry.uid()));
/// let store = Store::with_key_function(by_uid);
/// store.insert(Entry::new(*br#"{"metadata":{"name":"web","uid":"7f3c"}}"#)?);
/// assert!(store.get(&Key::cluster("7f3c")).is_some());
/// # Ok::<(), serde_json::Error>(())
/// ```
pub type KeyFunction<K> = Arc<dyn Fn(&Entry<K>) -> Key + Send + Sync>;

/// The objects of a kind. Clones share the store.
///
/// ```
/// use mizzen_sdk::cache::{Entry, Store};
/// use mizzen_sdk::{Key, Object};
///
/// let store: Store<Object> = Store::new();
/// store.insert(Entry::new(*br#"{"metadata":{"name":"web","namespace":"shop"}}"#)?);
/// let key = Key::new("shop", "web");
/// assert!(store.get(&key).is_some());
/// store.remove(&key);
/// assert_eq!(store.len(), 0);
/// # Ok::<(), serde_json::Error>(())
/// ```
pub struct Store<K>(Arc<StoreInner<K>>);

struct StoreInner<K> {
    state: RwLock<Snapshot<K>>,
    /// `None` for namespace and name.
    key_function: Option<KeyFunction<K>>,
    recent: Arc<Recent<K>>,
    /// The resource version up to which the store is complete.
    version: watch::Sender<Version>,
}

/// A store at one moment; taking one is cheap.
///
/// ```
/// use mizzen_sdk::cache::{Entry, Store};
/// use mizzen_sdk::{Key, Object};
///
/// let store: Store<Object> = Store::new();
/// store.insert(Entry::new(*br#"{"metadata":{"name":"web"}}"#)?);
/// let before = store.snapshot();
/// store.remove(&Key::cluster("web"));
/// assert_eq!((before.iter().count(), store.len()), (1, 0));
/// # Ok::<(), serde_json::Error>(())
/// ```
pub struct Snapshot<K> {
    entries: Shared<Key, Entry<K>>,
    indexes: Indexes<K>,
}

impl<K> Clone for Store<K> {
    fn clone(&self) -> Store<K> {
        Store(self.0.clone())
    }
}

impl<K> Clone for Snapshot<K> {
    fn clone(&self) -> Snapshot<K> {
        Snapshot {
            entries: self.entries.clone(),
            indexes: self.indexes.clone(),
        }
    }
}

impl<K> Default for Store<K> {
    fn default() -> Store<K> {
        Store::with_optional_key_function(None)
    }
}

impl<K> Store<K> {
    /// An empty store that keeps objects by namespace and name.
    pub fn new() -> Store<K> {
        Store::default()
    }

    /// An empty store that keeps objects under the keys that `function` returns. Of two objects
    /// with the same key the later replaces the earlier.
    pub fn with_key_function(function: KeyFunction<K>) -> Store<K> {
        Store::with_optional_key_function(Some(function))
    }

    fn with_optional_key_function(key_function: Option<KeyFunction<K>>) -> Store<K> {
        let state = Snapshot {
            entries: Shared::default(),
            indexes: Indexes::default(),
        };
        Store(Arc::new(StoreInner {
            state: RwLock::new(state),
            key_function,
            recent: Arc::default(),
            version: watch::Sender::new(Version::default()),
        }))
    }

    /// The key under which an object is kept.
    ///
    /// ```
    /// use mizzen_sdk::Object;
    /// use mizzen_sdk::cache::{Entry, Store};
    ///
    /// let entry: Entry<Object> = Entry::new(*br#"{"metadata":{"name":"web","namespace":"shop"}}"#)?;
    /// assert_eq!(Store::new().key_of(&entry).to_string(), "shop/web");
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub fn key_of<'a>(&self, entry: &'a Entry<K>) -> Cow<'a, Key> {
        match &self.0.key_function {
            Some(function) => Cow::Owned(function(entry)),
            None => Cow::Borrowed(entry.key()),
        }
    }

    /// Adds an index, also for existing objects. A second index of the same name replaces the
    /// first.
    pub fn add_index(&self, name: impl Into<String>, function: IndexFunction<K>) {
        let mut state = self.0.state.write();
        let mut index = Index::new(function);
        for (key, entry) in state.entries.iter() {
            index.change(key, None, Some(entry));
        }
        state.indexes.insert(name.into(), index);
    }

    /// Inserts an object; returns the old one.
    pub fn insert(&self, entry: Entry<K>) -> Option<Entry<K>> {
        entry.remember_in(&self.0.recent);
        let key = self.key_of(&entry).into_owned();
        self.0.state.write().insert(key, entry)
    }

    /// Removes an object.
    pub fn remove(&self, key: &Key) -> Option<Entry<K>> {
        self.0.state.write().remove(key)
    }

    /// Replaces all objects.
    pub fn replace(&self, entries: Vec<Entry<K>>, version: Version) {
        let mut state = self.0.state.write();
        state.entries = Shared::default();
        let indexes = state.indexes.iter();
        state.indexes = indexes
            .map(|(name, index)| (name.clone(), Index::new(index.function.clone())))
            .collect();
        for entry in entries {
            entry.remember_in(&self.0.recent);
            state.insert(self.key_of(&entry).into_owned(), entry);
        }
        drop(state);
        self.advance(version);
    }

    /// Drops decoded objects and keeps their text.
    pub(crate) fn rest(&self) {
        self.0.recent.forget();
    }

    /// Advances the version up to which the store is complete.
    ///
    /// ```
    /// use mizzen_sdk::Object;
    /// use mizzen_sdk::cache::{Store, Version};
    ///
    /// let store: Store<Object> = Store::new();
    /// store.advance(Version(7)); // a bookmark
    /// store.advance(Version(5)); // never backwards
    /// assert_eq!(store.version(), Version(7));
    /// ```
    pub fn advance(&self, version: Version) {
        self.0.version.send_if_modified(|known| {
            let newer = version > *known;
            *known = version.max(*known);
            newer
        });
    }

    /// The version up to which the store is complete.
    pub fn version(&self) -> Version {
        *self.0.version.borrow()
    }

    /// Waits until the store has a resource version, to read one's own write.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?.block_on(async {
    /// use mizzen_sdk::Object;
    /// use mizzen_sdk::cache::{Store, Version};
    ///
    /// let store: Store<Object> = Store::new();
    /// let writer = store.clone();
    /// tokio::spawn(async move { writer.advance(Version(7)) });
    /// store.wait_for(Version(7)).await;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn wait_for(&self, version: Version) {
        let mut known = self.0.version.subscribe();
        // The sender lives as long as the store, so this cannot fail.
        let _ = known.wait_for(|known| *known >= version).await;
    }

    /// One object.
    pub fn get(&self, key: &Key) -> Option<Entry<K>> {
        self.0.state.read().get(key).cloned()
    }

    /// The number of objects.
    pub fn len(&self) -> usize {
        self.0.state.read().entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All objects, in no particular order.
    pub fn list(&self) -> Vec<Entry<K>> {
        self.0.state.read().iter().cloned().collect()
    }

    /// The objects with this index value, by key. `None` if there is no such index.
    pub fn by_index(&self, index: &str, value: &str) -> Option<Vec<Entry<K>>> {
        Some(
            self.0
                .state
                .read()
                .by_index(index, value)?
                .cloned()
                .collect(),
        )
    }

    /// The current state.
    pub fn snapshot(&self) -> Snapshot<K> {
        self.0.state.read().clone()
    }
}

impl<K> Snapshot<K> {
    fn insert(&mut self, key: Key, entry: Entry<K>) -> Option<Entry<K>> {
        let old = self.entries.insert(key.clone(), entry.clone());
        self.indexes
            .values_mut()
            .for_each(|index| index.change(&key, old.as_ref(), Some(&entry)));
        old
    }

    fn remove(&mut self, key: &Key) -> Option<Entry<K>> {
        let old = self.entries.remove(key)?;
        self.indexes
            .values_mut()
            .for_each(|index| index.change(key, Some(&old), None));
        Some(old)
    }

    /// One object.
    pub fn get(&self, key: &Key) -> Option<&Entry<K>> {
        self.entries.get(key)
    }

    /// All objects, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &Entry<K>> {
        self.entries.values()
    }

    /// The objects with this index value, by key. `None` if there is no such index.
    pub fn by_index(&self, index: &str, value: &str) -> Option<impl Iterator<Item = &Entry<K>>> {
        let keys = self.indexes.get(index)?.get(value);
        Some(
            keys.into_iter()
                .flatten()
                .filter_map(|key| self.entries.get(key)),
        )
    }

    /// All values of an index. `None` if there is no such index.
    ///
    /// ```
    /// use mizzen_sdk::Object;
    /// use mizzen_sdk::cache::{Entry, Store, by_label};
    ///
    /// let store: Store<Object> = Store::new();
    /// store.add_index("app", by_label("app"));
    /// store.insert(Entry::new(*br#"{"metadata":{"name":"web","labels":{"app":"shop"}}}"#)?);
    /// let snapshot = store.snapshot();
    /// assert_eq!(snapshot.index_values("app").expect("there is this index").collect::<Vec<_>>(), ["shop"]);
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub fn index_values(&self, index: &str) -> Option<impl Iterator<Item = &str>> {
        Some(self.indexes.get(index)?.values())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Object;

    #[test]
    fn recent_objects_stay_decoded_until_the_informer_is_idle() {
        let store: Store<Object> = Store::new();
        let text = br#"{"metadata":{"name":"a"}}"#;
        store.insert(Entry::new(text.as_slice()).unwrap());
        let entry = store.get(&Key::new("", "a")).unwrap();
        let first = Arc::downgrade(&entry.object().unwrap());
        assert!(first.ptr_eq(&Arc::downgrade(&entry.object().unwrap())));
        store.rest();
        assert!(first.upgrade().is_none());
        assert_eq!(entry.object().unwrap().name(), "a");
    }
}
