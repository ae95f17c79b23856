//! Listers: read access to a cache.

use std::sync::Arc;

use serde::de::DeserializeOwned;

use super::entry::{DecodeError, Entry, Version};
use super::store::Store;
use crate::key::Key;

/// Reads objects from a cache. Cheap to clone.
///
/// ```
/// use mizzen_sdk::Object;
/// use mizzen_sdk::cache::{Entry, Lister, Store};
///
/// let store: Store<Object> = Store::new();
/// for name in ["a", "b"] {
///     let text = format!(r#"{{"metadata":{{"name":"{name}","namespace":"shop"}}}}"#);
///     store.insert(Entry::new(text.into_bytes())?);
/// }
/// let shop = Lister::new(store).namespaced("shop"); // of an informer: `informer.lister()`
/// assert_eq!(shop.list()?.len(), 2);
/// assert_eq!(shop.get("a")?.expect("it is there").name(), "a");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Lister<K> {
    store: Store<K>,
    namespace: Option<String>,
}

impl<K> Clone for Lister<K> {
    fn clone(&self) -> Lister<K> {
        Lister {
            store: self.store.clone(),
            namespace: self.namespace.clone(),
        }
    }
}

/// The index of namespaced listers.
pub(crate) const NAMESPACE: &str = "namespace";

impl<K: DeserializeOwned> Lister<K> {
    /// Reads all of `store`.
    pub fn new(store: Store<K>) -> Lister<K> {
        Lister {
            store,
            namespace: None,
        }
    }

    /// Reads one namespace.
    pub fn namespaced(&self, namespace: impl Into<String>) -> Lister<K> {
        Lister {
            store: self.store.clone(),
            namespace: Some(namespace.into()),
        }
    }

    /// The object of this name in the lister's namespace.
    pub fn get(&self, name: &str) -> Result<Option<Arc<K>>, DecodeError> {
        self.by_key(&Key::new(
            self.namespace.as_deref().unwrap_or_default(),
            name,
        ))
    }

    /// The object with this key, in any namespace.
    pub fn by_key(&self, key: &Key) -> Result<Option<Arc<K>>, DecodeError> {
        self.store.get(key).map(|entry| entry.object()).transpose()
    }

    /// All objects.
    pub fn list(&self) -> Result<Vec<Arc<K>>, DecodeError> {
        self.list_where(|_| true)
    }

    /// All objects that `wanted` accepts; only those are decoded.
    ///
    /// ```
    /// use mizzen_sdk::Object;
    /// use mizzen_sdk::cache::{Entry, Lister, Store};
    ///
    /// let store: Store<Object> = Store::new();
    /// store.insert(Entry::new(*br#"{"metadata":{"name":"web"}}"#)?);
    /// let found = Lister::new(store).list_where(|entry| entry.key().name().starts_with('d'))?;
    /// assert!(found.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn list_where(
        &self,
        wanted: impl Fn(&Entry<K>) -> bool,
    ) -> Result<Vec<Arc<K>>, DecodeError> {
        let snapshot = self.store.snapshot();
        let object = |entry: &Entry<K>| entry.object();
        match self.namespace.as_deref() {
            None => snapshot
                .iter()
                .filter(|entry| wanted(entry))
                .map(object)
                .collect(),
            Some(namespace) => match snapshot.by_index(NAMESPACE, namespace) {
                Some(found) => found.filter(|entry| wanted(entry)).map(object).collect(),
                None => {
                    let there = |entry: &&Entry<K>| entry.key().namespace() == namespace;
                    snapshot
                        .iter()
                        .filter(there)
                        .filter(|entry| wanted(entry))
                        .map(object)
                        .collect()
                }
            },
        }
    }

    /// The objects with this index value. `None` if there is no such index.
    pub fn by_index(&self, index: &str, value: &str) -> Option<Result<Vec<Arc<K>>, DecodeError>> {
        Some(
            self.store
                .by_index(index, value)?
                .iter()
                .map(Entry::object)
                .collect(),
        )
    }

    /// Waits until the cache has a resource version.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?.block_on(async {
    /// use mizzen_sdk::Object;
    /// use mizzen_sdk::cache::{Lister, Store, Version};
    ///
    /// let store: Store<Object> = Store::new();
    /// store.replace(Vec::new(), Version(7));
    /// Lister::new(store).wait_for(Version(7)).await;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn wait_for(&self, version: Version) {
        self.store.wait_for(version).await;
    }

    /// The underlying store.
    pub fn store(&self) -> &Store<K> {
        &self.store
    }
}
