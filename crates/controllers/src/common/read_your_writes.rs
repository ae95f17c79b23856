//! Read-your-writes: a controller does not act on a cache that is older than its own last write.
//!
//! The write arrives as a watch event of the same object, which enqueues the key again, so no wait
//! is needed.

use parking_lot::Mutex;
use std::collections::HashMap;

use mizzen_sdk::cache::{Entry, Version};
use mizzen_sdk::{Key, Object};

/// The resourceVersion of the last write of each object.
#[derive(Default)]
pub(crate) struct LastWrites(Mutex<HashMap<Key, Version>>);

impl LastWrites {
    /// Records a write.
    pub(crate) fn note(&self, object: &Object) {
        self.0
            .lock()
            .insert(object.key(), Version::parse(object.version()));
    }

    /// Whether the cache has the last write of the object.
    pub(crate) fn is_seen(&self, entry: &Entry<Object>) -> bool {
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
    pub(crate) fn forget(&self, key: &Key) {
        self.0.lock().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_seen_when_the_cache_has_the_last_write() {
        let text = |version: &str| {
            format!(r#"{{"metadata":{{"name":"web","resourceVersion":"{version}"}}}}"#)
        };
        let entry = |version: &str| Entry::new(text(version).into_bytes()).expect("JSON");
        let written = LastWrites::default();
        assert!(written.is_seen(&entry("3")));
        written.note(&Object::parse(text("5").as_bytes()).expect("JSON"));
        assert!(!written.is_seen(&entry("4")));
        assert!(written.is_seen(&entry("5")) && written.is_seen(&entry("4")));
    }
}
