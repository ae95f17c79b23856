//! Delayed keys, by due time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::Hash;

use tokio::time::Instant;

pub(super) struct Delayed<T> {
    /// The current due time of each key; other entries of the heap are stale.
    due: HashMap<T, (Instant, u64), foldhash::fast::RandomState>,
    heap: BinaryHeap<Reverse<DelayedKey<T>>>,
    count: u64,
}

struct DelayedKey<T> {
    due: Instant,
    number: u64,
    key: T,
}

impl<T: Eq + Hash + Clone> Delayed<T> {
    pub(super) fn new() -> Delayed<T> {
        Delayed {
            due: HashMap::default(),
            heap: BinaryHeap::new(),
            count: 0,
        }
    }

    /// Adds a key at `due`, unless it is due earlier; true if it is now the first.
    pub(super) fn push(&mut self, key: T, due: Instant) -> bool {
        if self.due.get(&key).is_some_and(|(known, _)| *known <= due) {
            return false;
        }
        self.count += 1;
        self.due.insert(key.clone(), (due, self.count));
        self.heap.push(Reverse(DelayedKey {
            due,
            number: self.count,
            key,
        }));
        self.next_due() == Some(due)
    }

    /// Takes a key that is due at `now`, with its due time.
    pub(super) fn pop(&mut self, now: Instant) -> Option<(T, Instant)> {
        if self.next_due()? > now {
            return None;
        }
        let Reverse(entry) = self.heap.pop()?;
        self.due.remove(&entry.key);
        Some((entry.key, entry.due))
    }

    /// When the first key is due.
    pub(super) fn next_due(&mut self) -> Option<Instant> {
        while let Some(Reverse(entry)) = self.heap.peek() {
            if self
                .due
                .get(&entry.key)
                .is_some_and(|(_, number)| *number == entry.number)
            {
                return Some(entry.due);
            }
            self.heap.pop();
        }
        None
    }

    pub(super) fn clear(&mut self) {
        self.due.clear();
        self.heap.clear();
    }
}

impl<T> DelayedKey<T> {
    fn rank(&self) -> (Instant, u64) {
        (self.due, self.number)
    }
}

impl<T> PartialEq for DelayedKey<T> {
    fn eq(&self, other: &DelayedKey<T>) -> bool {
        self.rank() == other.rank()
    }
}

impl<T> Eq for DelayedKey<T> {}

impl<T> PartialOrd for DelayedKey<T> {
    fn partial_cmp(&self, other: &DelayedKey<T>) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for DelayedKey<T> {
    fn cmp(&self, other: &DelayedKey<T>) -> std::cmp::Ordering {
        self.rank().cmp(&other.rank())
    }
}
