//! An LRU cache whose values expire.

use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

/// Values by key.
pub struct LruCache<T> {
    entries: Mutex<LruEntries<T>>,
    capacity: usize,
}

struct LruEntries<T> {
    values: HashMap<Arc<str>, CachedValue<T>>,
    /// Keys by last use. Invariant: each key is here once, under its value's turn.
    turns: BTreeMap<u64, Arc<str>>,
    next: u64,
}

struct CachedValue<T> {
    value: T,
    until: Instant,
    turn: u64,
}

impl<T: Clone> LruCache<T> {
    /// An empty cache of at most `capacity` entries.
    pub fn new(capacity: usize) -> LruCache<T> {
        let entries = LruEntries {
            values: HashMap::new(),
            turns: BTreeMap::new(),
            next: 0,
        };
        LruCache {
            entries: Mutex::new(entries),
            capacity,
        }
    }

    /// The value, if it has not expired.
    pub fn get(&self, key: &str) -> Option<T> {
        let mut entries = self.entries.lock();
        let (key, value) = entries.take(key)?;
        if value.until <= Instant::now() {
            return None;
        }
        let found = value.value.clone();
        entries.put(key, value.value, value.until);
        Some(found)
    }

    /// Caches a value for `ttl`.
    pub fn put(&self, key: String, value: T, ttl: Duration) {
        if ttl.is_zero() {
            return;
        }
        let mut entries = self.entries.lock();
        entries.take(&key);
        entries.put(key.into(), value, Instant::now() + ttl);
        while entries.values.len() > self.capacity {
            let Some((_, oldest)) = entries.turns.pop_first() else {
                break;
            };
            entries.values.remove(&oldest);
        }
    }
}

impl<T> LruEntries<T> {
    fn take(&mut self, key: &str) -> Option<(Arc<str>, CachedValue<T>)> {
        let (key, value) = self.values.remove_entry(key)?;
        self.turns.remove(&value.turn);
        Some((key, value))
    }

    fn put(&mut self, key: Arc<str>, value: T, until: Instant) {
        self.next += 1;
        self.turns.insert(self.next, key.clone());
        self.values.insert(
            key,
            CachedValue {
                value,
                until,
                turn: self.next,
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_cached_response_expires() {
        let cache = LruCache::new(4);
        cache.put("who".into(), 1, Duration::from_secs(10));
        cache.put("nobody".into(), 2, Duration::ZERO);
        tokio::time::advance(Duration::from_secs(9)).await;
        assert_eq!((cache.get("who"), cache.get("nobody")), (Some(1), None));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(cache.get("who"), None);
        let entries = cache.entries.lock();
        assert!(entries.values.is_empty() && entries.turns.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn the_least_recently_used_value_is_evicted() {
        let (cache, ttl) = (LruCache::new(3), Duration::from_secs(10));
        for number in 0..3 {
            cache.put(number.to_string(), number, ttl);
        }
        assert_eq!(cache.get("0"), Some(0));
        cache.put("2".into(), 20, ttl);
        cache.put("3".into(), 3, ttl);
        let found: Vec<_> = ["0", "1", "2", "3"].map(|key| cache.get(key)).into();
        assert_eq!(found, [Some(0), None, Some(20), Some(3)]);
    }
}
