//! One object in a cache: its text, and what must be known without reading it.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock, Weak};

use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use super::field;
use crate::key::Key;

/// An object that cannot be read.
#[derive(Debug, Clone, thiserror::Error)]
#[error("cannot read {key}: {source}")]
pub struct DecodeError {
    /// Which object.
    pub key: Key,
    /// What is wrong with it.
    pub source: Arc<serde_json::Error>,
}

/// When an object was written last. Versions of one kind are in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Version(pub u64);

impl Version {
    /// Reads `metadata.resourceVersion`; what is no number is older than everything.
    pub fn parse(text: &str) -> Version {
        Version(text.parse().unwrap_or_default())
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An object as it was sent. Cheap to clone.
pub struct Entry<K>(Arc<Inner<K>>);

struct Inner<K> {
    key: Key,
    uid: Box<str>,
    version: Version,
    text: Box<[u8]>,
    /// The object as somebody looks at it right now.
    object: Mutex<Weak<K>>,
    /// Those that were looked at last, if it is in a store.
    recent: OnceLock<Arc<Recent<K>>>,
    kind: PhantomData<K>,
}

/// The objects that were looked at last. Whoever hears of a change does so at about the same time, and shall not read it anew.
/// Once all is quiet they are forgotten.
pub(super) struct Recent<K>(Mutex<VecDeque<Arc<K>>>);

/// How many objects are kept readable.
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

    /// Keeps none of them any longer.
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

/// What is read of every object.
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

    /// An object from a text of which is known that it is JSON.
    pub(crate) fn of_json(text: impl Into<Box<[u8]>>) -> Result<Entry<K>, serde_json::Error> {
        let text = text.into();
        let metadata: Option<Metadata> = field::read(&text, &["metadata"])?;
        let Metadata {
            name,
            namespace,
            uid,
            resource_version,
        } = metadata.unwrap_or_default();
        Ok(Entry(Arc::new(Inner {
            key: Key::new(namespace, name),
            uid,
            version: Version::parse(&resource_version),
            text,
            object: Mutex::default(),
            recent: OnceLock::new(),
            kind: PhantomData,
        })))
    }

    /// Which object it is.
    pub fn key(&self) -> &Key {
        &self.0.key
    }

    /// What tells it from an earlier object of the same name.
    pub fn uid(&self) -> &str {
        &self.0.uid
    }

    /// When it was written last.
    pub fn version(&self) -> Version {
        self.0.version
    }

    /// Lets the object stay readable for a moment after somebody looked.
    pub(super) fn remember_in(&self, recent: &Arc<Recent<K>>) {
        let _ = self.0.recent.set(recent.clone());
    }

    /// Its JSON text.
    pub fn text(&self) -> &[u8] {
        &self.0.text
    }

    /// The text of one field, such as `["spec", "nodeName"]`; nothing behind it is read. None if there is no text.
    pub fn text_at(&self, path: &[&str]) -> Option<String> {
        field::read(self.text(), path).ok().flatten()
    }
}

impl<K: DeserializeOwned> Entry<K> {
    /// The object. It is read once for all who look at it at the same time, or soon after.
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

    /// A copy of the object to be changed.
    pub fn read(&self) -> Result<K, DecodeError> {
        serde_json::from_slice(&self.0.text).map_err(|error| DecodeError {
            key: self.0.key.clone(),
            source: Arc::new(error),
        })
    }
}
