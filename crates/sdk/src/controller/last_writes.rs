//! Read-your-writes: a controller does not act on a cache that is older than its own last write.
//!
//! The write arrives as a watch event of the same object, which enqueues the key again, so no wait
//! is needed.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::cache::{Entry, Version};
use crate::key::Key;
use crate::object::Object;

/// The resourceVersion of the last write of each object.
///
/// ```
/// use mizzen_sdk::Object;
/// use mizzen_sdk::cache::Entry;
/// use mizzen_sdk::controller::LastWrites;
///
/// let written = LastWrites::default();
/// written.record(&Object::parse(br#"{"metadata":{"name":"web","resourceVersion":"5"}}"#)?);
/// let cached = |text: &str| Entry::<Object>::new(text.as_bytes());
/// let old = cached(r#"{"metadata":{"name":"web","resourceVersion":"4"}}"#)?;
/// assert!(!written.is_seen(&old)); // return: the event of the write enqueues the key
/// assert!(written.is_seen(&cached(r#"{"metadata":{"name":"web","resourceVersion":"5"}}"#)?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Default)]
pub struct LastWrites(Mutex<HashMap<Key, Version>>);

impl LastWrites {
    /// Records the response of a write.
    pub fn record(&self, object: &Object) {
        self.record_version(object.key(), Version::parse(object.version()));
    }

    /// Records the version that a write of `key` returned.
    ///
    /// ```
    /// use mizzen_sdk::cache::{Entry, Version};
    /// use mizzen_sdk::controller::LastWrites;
    /// use mizzen_sdk::{Key, Object};
    ///
    /// let written = LastWrites::default();
    /// written.record_version(Key::cluster("web"), Version(5));
    /// let old: Entry<Object> = Entry::new(*br#"{"metadata":{"name":"web","resourceVersion":"4"}}"#)?;
    /// assert!(!written.is_seen(&old));
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub fn record_version(&self, key: Key, version: Version) {
        self.0.lock().insert(key, version);
    }

    /// Whether the cache has the last write of the object.
    pub fn is_seen<K>(&self, entry: &Entry<K>) -> bool {
        let mut all = self.0.lock();
        let is_seen = all
            .get(entry.key())
            .is_none_or(|written| entry.version() >= *written);
        if is_seen {
            all.remove(entry.key());
        }
        is_seen
    }

    /// Forgets a deleted object.
    pub fn forget(&self, key: &Key) {
        self.0.lock().remove(key);
    }
}
