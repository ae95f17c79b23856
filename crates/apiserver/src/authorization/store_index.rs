//! A table of what is in some resources, as of now.
//!
//! It follows the store: before it is read it takes in what was written since. That nothing was is the rule, and costs a
//! look at the store's revision.
//!
//! Invariant: whoever reads sees every write that was acknowledged before.

use parking_lot::{Mutex, RwLock};
use std::sync::atomic::{AtomicU64, Ordering};

use mizzen_registry::{Changed, Changes, Follower, Resource};
use mizzen_value::Value;

/// A revision at which nothing has been read yet.
const NEVER: u64 = u64::MAX;

/// A table `T` of what is in `N` resources.
pub struct StoreIndex<T, const N:usize> {
    resources: [Resource; N],
    sources: Mutex<[IndexedResource<T>; N]>,
    table: RwLock<T>,
    /// The last change that the table shows.
    shown: AtomicU64,
}

/// One of the resources, and how the table learns of it.
pub struct IndexedResource<T> {
/// Reads what was written since.

    pub follower: Follower,
    /// Forgets all objects: they are told anew.
    pub clear: fn(&mut T),
    /// An object is there, or no longer.
    pub apply: fn(&mut T, &Value, bool),
}

impl<T: Default, const N: usize> StoreIndex<T, N> {
    /// A table of nothing; it is filled when it is first read.
pub fn new(sources:[IndexedResource<T>; N])->StoreIndex<T, N> { StoreIndex {
            resources: sources
                .each_ref()
                .map(|source| source.follower.resource().clone()),
            sources: Mutex::new(sources),
            table: RwLock::default(),
            shown: AtomicU64::new(NEVER),
        }
    }

    /// What `look` finds in the table as it is now.
    pub fn read<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        let last = self
            .resources
            .iter()
            .map(|resource| Follower::last_change(resource).0)
            .max();
        if last != Some(self.shown.load(Ordering::Acquire)) {
            self.catch_up(last.unwrap_or_default());
        }
        look(&self.table.read())
    }

    /// Takes in at least everything up to `last`.
    fn catch_up(&self, last: u64) {
        let mut sources = self.sources.lock();
        // Whoever held the lock before may have done the work.
        if self.shown.load(Ordering::Acquire) == last {
            return;
        }
        let changes = sources.each_mut().map(|source| source.follower.changes());
        let mut table = self.table.write();
        for (source, changes) in sources.iter().zip(changes) {
            source.apply_changes(&mut table, changes);
        }
        drop(table);
        self.shown.store(last, Ordering::Release);
    }
}

impl<T> IndexedResource<T> {
    fn apply_changes(&self, table: &mut T, changes: Changes) {
        match changes {
            Changes::All(objects) => {
                (self.clear)(table);
                objects
                    .iter()
                    .for_each(|object| (self.apply)(table, object, true));
            }
            Changes::Some(changed) => {
                for Changed { before, after } in changed {
                    before
                        .iter()
                        .for_each(|object| (self.apply)(table, object, false));
                    after
                        .iter()
                        .for_each(|object| (self.apply)(table, object, true));
                }
            }
        }
    }
}
