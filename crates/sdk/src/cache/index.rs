//! Indexes of a cache.

use std::collections::HashMap;
use std::sync::Arc;

use imbl::shared_ptr::DefaultSharedPtr;
use imbl::{GenericHashMap, OrdSet};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::entry::Entry;
use super::field;
use crate::key::Key;

/// Returns the index values of an object.
///
/// ```
/// use std::sync::Arc;
/// use mizzen_sdk::Object;
/// use mizzen_sdk::cache::{Entry, IndexFunction, Store};
///
/// let by_initial: IndexFunction<Object> = Arc::new(|entry: &Entry<Object>| {
///     entry.key().name().get(..1).map(String::from).into_iter().collect()
/// });
/// let store = Store::new();
/// store.add_index("initial", by_initial);
/// store.insert(Entry::new(*br#"{"metadata":{"name":"web"}}"#)?);
/// assert_eq!(store.by_index("initial", "w").map(|found| found.len()), Some(1));
/// # Ok::<(), serde_json::Error>(())
/// ```
pub type IndexFunction<K> = Arc<dyn Fn(&Entry<K>) -> Vec<String> + Send + Sync>;

type Hasher = foldhash::fast::RandomState;

/// A persistent map: copies are cheap.
pub(super) type Shared<A, B> = GenericHashMap<A, B, Hasher, DefaultSharedPtr>;

/// One index: the keys of objects by value.
pub(super) struct Index<K> {
    pub function: IndexFunction<K>,
    values: Shared<String, OrdSet<Key>>,
}

impl<K> Clone for Index<K> {
    fn clone(&self) -> Index<K> {
        Index {
            function: self.function.clone(),
            values: self.values.clone(),
        }
    }
}

impl<K> Index<K> {
    pub(super) fn new(function: IndexFunction<K>) -> Index<K> {
        Index {
            function,
            values: Shared::default(),
        }
    }

    /// Follows a change of the object under `key`.
    pub(super) fn change(&mut self, key: &Key, old: Option<&Entry<K>>, new: Option<&Entry<K>>) {
        let values = |entry: Option<&Entry<K>>| {
            entry
                .map(|entry| (self.function)(entry))
                .unwrap_or_default()
        };
        let (before, after) = (values(old), values(new));
        for value in before.iter().filter(|value| !after.contains(value)) {
            self.remove(value, key);
        }
        for value in after.into_iter().filter(|value| !before.contains(value)) {
            self.values.entry(value).or_default().insert(key.clone());
        }
    }

    fn remove(&mut self, value: &String, key: &Key) {
        let Some(keys) = self.values.get_mut(value) else {
            return;
        };
        keys.remove(key);
        if keys.is_empty() {
            self.values.remove(value);
        }
    }

    /// The keys of objects with this value.
    pub(super) fn get(&self, value: &str) -> Option<&OrdSet<Key>> {
        self.values.get(value)
    }

    /// All values in the index.
    pub(super) fn values(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str)
    }
}

/// All indexes by name.
pub(super) type Indexes<K> = HashMap<String, Index<K>, Hasher>;

/// Indexes objects by namespace.
///
/// ```
/// use mizzen_sdk::Object;
/// use mizzen_sdk::cache::{Entry, Store, by_namespace};
///
/// let store: Store<Object> = Store::new();
/// store.add_index("namespace", by_namespace());
/// store.insert(Entry::new(*br#"{"metadata":{"name":"web","namespace":"shop"}}"#)?);
/// assert_eq!(store.by_index("namespace", "shop").map(|found| found.len()), Some(1));
/// # Ok::<(), serde_json::Error>(())
/// ```
pub fn by_namespace<K>() -> IndexFunction<K> {
    Arc::new(|entry| vec![entry.key().namespace().into()])
}

/// Indexes objects by the UID of their controller.
///
/// ```
/// use mizzen_sdk::Object;
/// use mizzen_sdk::cache::{Entry, Store, by_owner};
///
/// let store: Store<Object> = Store::new();
/// store.add_index("owner", by_owner());
/// store.insert(Entry::new(*br#"{"metadata":{"name":"web","ownerReferences":[{"uid":"7f3c","controller":true}]}}"#)?);
/// assert_eq!(store.by_index("owner", "7f3c").map(|found| found.len()), Some(1));
/// # Ok::<(), serde_json::Error>(())
/// ```
pub fn by_owner<K: 'static>() -> IndexFunction<K> {
    Arc::new(|entry| {
        let owners = metadata::<Owned>(entry).owner_references.into_iter();
        owners
            .filter(|owner| owner.controller)
            .map(|owner| owner.uid)
            .collect()
    })
}

/// Indexes objects by the value of a label.
///
/// ```
/// use mizzen_sdk::Object;
/// use mizzen_sdk::cache::{Entry, Store, by_label};
///
/// let store: Store<Object> = Store::new();
/// store.add_index("app", by_label("app"));
/// store.insert(Entry::new(*br#"{"metadata":{"name":"web","labels":{"app":"shop"}}}"#)?);
/// assert_eq!(store.by_index("app", "shop").map(|found| found.len()), Some(1));
/// # Ok::<(), serde_json::Error>(())
/// ```
pub fn by_label<K: 'static>(label: impl Into<String>) -> IndexFunction<K> {
    let label = label.into();
    Arc::new(move |entry| {
        metadata::<Labelled>(entry)
            .labels
            .remove(&label)
            .into_iter()
            .collect()
    })
}

/// Indexes objects by namespace and each of their labels: `namespace/label=value`.
///
/// ```
/// use mizzen_sdk::Object;
/// use mizzen_sdk::cache::{Entry, Store, by_labels};
///
/// let store: Store<Object> = Store::new();
/// store.add_index("labels", by_labels());
/// store.insert(Entry::new(*br#"{"metadata":{"name":"web","namespace":"a","labels":{"app":"shop"}}}"#)?);
/// assert_eq!(store.by_index("labels", "a/app=shop").map(|found| found.len()), Some(1));
/// # Ok::<(), serde_json::Error>(())
/// ```
pub fn by_labels<K: 'static>() -> IndexFunction<K> {
    Arc::new(|entry| {
        let namespace = entry.key().namespace();
        let labels = metadata::<Labelled>(entry).labels.into_iter();
        labels
            .map(|(label, value)| format!("{namespace}/{label}={value}"))
            .collect()
    })
}

/// Indexes objects by the value of a field, such as `spec.nodeName`. Numbers and booleans are
/// indexed by their text, objects without the field not at all. Only the field is parsed.
///
/// ```
/// use mizzen_sdk::Object;
/// use mizzen_sdk::cache::{Entry, Store, by_field};
///
/// let store: Store<Object> = Store::new();
/// store.add_index("node", by_field("spec.nodeName"));
/// store.insert(Entry::new(*br#"{"metadata":{"name":"web"},"spec":{"nodeName":"n1"}}"#)?);
/// assert_eq!(store.by_index("node", "n1").map(|found| found.len()), Some(1));
/// # Ok::<(), serde_json::Error>(())
/// ```
pub fn by_field<K: 'static>(path: &str) -> IndexFunction<K> {
    let path: Vec<String> = path.split('.').map(String::from).collect();
    Arc::new(move |entry| match field::read(entry.text(), &path) {
        Ok(Some(Value::String(text))) => vec![text],
        Ok(Some(value @ (Value::Number(_) | Value::Bool(_)))) => vec![value.to_string()],
        _ => Vec::new(),
    })
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Owned {
    owner_references: Vec<OwnerUid>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct OwnerUid {
    uid: String,
    controller: bool,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Labelled {
    labels: HashMap<String, String>,
}

/// A part of an object's metadata.
fn metadata<M: DeserializeOwned + Default>(entry: &Entry<impl Sized>) -> M {
    field::read(entry.text(), &["metadata"])
        .ok()
        .flatten()
        .unwrap_or_default()
}
