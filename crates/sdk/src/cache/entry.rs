//! One object in a cache: its JSON text, and the metadata that is needed without decoding it.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock, Weak};

use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use super::field;
use crate::key::Key;

/// An object that cannot be decoded.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use mizzen_sdk::cache::Entry;
///
/// let entry: Entry<Pod> = Entry::new(*br#"{"metadata":{"name":"web"},"spec":7}"#)?;
/// let error = entry.object().unwrap_err();
/// assert_eq!(error.key.name(), "web");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, thiserror::Error)]
#[error("cannot read {key}: {source}")]
pub struct DecodeError {
    /// The object.
    pub key: Key,
    /// The cause.
    pub source: Arc<serde_json::Error>,
}

/// A resource version. Versions of one kind are ordered.
///
/// ```
/// use mizzen_sdk::cache::Version;
///
/// assert!(Version::parse("12") > Version::parse("9"));
/// assert_eq!(Version::parse(""), Version(0));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Version(pub u64);

impl Version {
    /// Parses `metadata.resourceVersion`; anything that is no number counts as zero.
    pub fn parse(text: &str) -> Version {
        Version(text.parse().unwrap_or_default())
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An object as the server sent it. Cheap to clone.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use mizzen_sdk::cache::Entry;
///
/// let text = br#"{"metadata":{"name":"web","namespace":"shop","resourceVersion":"7"},"spec":{"nodeName":"n1","containers":[]}}"#;
/// let entry: Entry<Pod> = Entry::new(*text)?;
/// assert_eq!(entry.key().to_string(), "shop/web");
/// assert_eq!(entry.text_at(&["spec", "nodeName"]).as_deref(), Some("n1")); // only this field is parsed
/// assert!(entry.object()?.spec.is_some()); // decoded once for all readers
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Entry<K>(Arc<EntryInner<K>>);

struct EntryInner<K> {
    key: Key,
    uid: Box<str>,
    version: Version,
    text: Box<[u8]>,
    /// The decoded object, while it is in use.
    object: Mutex<Weak<K>>,
    /// The recently decoded objects of its store.
    recent: OnceLock<Arc<Recent<K>>>,
    kind: PhantomData<K>,
}

/// Recently decoded objects. Handlers use a changed object at about the same time, so it is decoded
/// once for all. They are dropped when the informer is idle.
pub(super) struct Recent<K>(Mutex<VecDeque<Arc<K>>>);

/// The most objects that stay decoded.
const RECENT: usize = 512;

impl<K> Default for Recent<K> {
    fn default() -> Recent<K> {
        Recent(Mutex::default())
    }
}

impl<K> Recent<K> {
    fn keep(&self, object: &Arc<K>) {
        let mut kept = self.0.lock();
        if kept.len() == RECENT {
            kept.pop_front();
        }
        kept.push_back(object.clone());
    }

    /// Drops all of them.
    pub(super) fn forget(&self) {
        *self.0.lock() = VecDeque::new();
    }
}

impl<K> Clone for Entry<K> {
    fn clone(&self) -> Entry<K> {
        Entry(self.0.clone())
    }
}

impl<K> fmt::Debug for Entry<K> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}@{}", self.0.key, self.0.version)
    }
}

/// The metadata that is parsed of every object.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    name: Box<str>,
    namespace: Box<str>,
    uid: Box<str>,
    resource_version: Box<str>,
}

impl<K> Entry<K> {
    /// An object from its JSON text.
    pub fn new(text: impl Into<Box<[u8]>>) -> Result<Entry<K>, serde_json::Error> {
        let text = text.into();
        serde_json::from_slice::<IgnoredAny>(&text)?;
        Entry::of_json(text)
    }

    /// An object from text that is known to be valid JSON.
    pub(crate) fn of_json(text: impl Into<Box<[u8]>>) -> Result<Entry<K>, serde_json::Error> {
        let text = text.into();
        let metadata: Option<Metadata> = field::read(&text, &["metadata"])?;
        let Metadata {
            name,
            namespace,
            uid,
            resource_version,
        } = metadata.unwrap_or_default();
        Ok(Entry(Arc::new(EntryInner {
            key: Key::new(namespace, name),
            uid,
            version: Version::parse(&resource_version),
            text,
            object: Mutex::default(),
            recent: OnceLock::new(),
            kind: PhantomData,
        })))
    }

    /// Its namespace and name.
    pub fn key(&self) -> &Key {
        &self.0.key
    }

    /// Its UID.
    pub fn uid(&self) -> &str {
        &self.0.uid
    }

    /// Its resource version.
    pub fn version(&self) -> Version {
        self.0.version
    }

    /// Keeps the object decoded for a while after each use.
    pub(super) fn remember_in(&self, recent: &Arc<Recent<K>>) {
        let _ = self.0.recent.set(recent.clone());
    }

    /// Its JSON text.
    ///
    /// ```
    /// use mizzen_sdk::Object;
    /// use mizzen_sdk::cache::Entry;
    ///
    /// let entry: Entry<Object> = Entry::new(*br#"{"metadata":{"name":"web"}}"#)?;
    /// assert_eq!(entry.text(), br#"{"metadata":{"name":"web"}}"#);
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub fn text(&self) -> &[u8] {
        &self.0.text
    }

    /// The string at a path, such as `["spec", "nodeName"]`; nothing behind it is parsed. `None` if
    /// there is no string.
    pub fn text_at(&self, path: &[&str]) -> Option<String> {
        field::read(self.text(), path).ok().flatten()
    }
}

impl<K: DeserializeOwned> Entry<K> {
    /// The decoded object. It is decoded once for all concurrent and recent uses.
    pub fn object(&self) -> Result<Arc<K>, DecodeError> {
        let mut known = self.0.object.lock();
        if let Some(object) = known.upgrade() {
            return Ok(object);
        }
        let object = Arc::new(self.read()?);
        *known = Arc::downgrade(&object);
        if let Some(recent) = self.0.recent.get() {
            recent.keep(&object);
        }
        Ok(object)
    }

    /// A copy of the object that can be changed.
    pub fn read(&self) -> Result<K, DecodeError> {
        serde_json::from_slice(&self.0.text).map_err(|error| DecodeError {
            key: self.0.key.clone(),
            source: Arc::new(error),
        })
    }
}
