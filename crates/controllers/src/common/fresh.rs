//! Has the cache seen what I wrote? Until it has, what it says of an object is not worth acting on.
//!
//! The write comes back as an event of that object, which wakes the loop again; so there is nothing to wait for.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;

use mizzen_sdk::cache::{Entry, Version};
use mizzen_sdk::{Key, Object};

/// The last version of each object that a loop wrote.
#[derive(Default)]
pub(crate) struct Written(Mutex<HashMap<Key, Version>>);

impl Written {
    /// Notes a write.
    pub(crate) fn note(&self, object: &Object) {
        self.lock()
            .insert(object.key(), Version::parse(object.version()));
    }

    /// Whether the cache knows an object as it was written last.
    pub(crate) fn is_seen(&self, entry: &Entry<Object>) -> bool {
        let mut all = self.lock();
        let is_seen = all
            .get(entry.key())
            .is_none_or(|written| entry.version() >= *written);
        if is_seen {
            all.remove(entry.key());
        }
        is_seen
    }

    /// Forgets an object that is gone.
    pub(crate) fn forget(&self, key: &Key) {
        self.lock().remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Version>> {
        self.0.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_seen_when_the_cache_is_at_what_was_written() {
        let text = |version: &str| {
            format!(r#"{{"metadata":{{"name":"web","resourceVersion":"{version}"}}}}"#)
        };
        let entry = |version: &str| Entry::new(text(version).into_bytes()).expect("JSON");
        let written = Written::default();
        assert!(written.is_seen(&entry("3")));
        written.note(&Object::parse(text("5").as_bytes()).expect("JSON"));
        assert!(!written.is_seen(&entry("4")));
        assert!(written.is_seen(&entry("5")) && written.is_seen(&entry("4")));
    }
}
