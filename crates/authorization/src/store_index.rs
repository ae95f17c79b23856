//! An index of some resources, up to date with the store.
//!
//! Each read applies the writes since the last one. Usually there are none, which costs a
//! comparison of revisions.
//!
//! Invariant: a read sees every write that was acknowledged before.

use parking_lot::{Mutex, RwLock};
use std::sync::atomic::{AtomicU64, Ordering};

use mizzen_registry::{Changed, FollowedChanges, Follower, Resource};
use mizzen_value::Value;

/// A revision before anything has been read.
const NEVER: u64 = u64::MAX;

/// A table `T` of the objects of `N` resources.
pub struct StoreIndex<T, const N: usize> {
    resources: [Resource; N],
    sources: Mutex<[IndexedResource<T>; N]>,
    table: RwLock<T>,
    /// The last change that the table includes.
    shown: AtomicU64,
}

/// An indexed resource, and how its objects change the table.
pub struct IndexedResource<T> {
    /// Reads what was written since.
    pub follower: Follower,
    /// Removes all objects, before they are listed again.
    pub clear: fn(&mut T),
    /// Adds an object, or removes it.
    pub apply: fn(&mut T, &Value, bool),
}

impl<T: Default, const N: usize> StoreIndex<T, N> {
    /// An empty table, filled by the first read.
    pub fn new(sources: [IndexedResource<T>; N]) -> StoreIndex<T, N> {
        StoreIndex {
            resources: sources
                .each_ref()
                .map(|source| source.follower.resource().clone()),
            sources: Mutex::new(sources),
            table: RwLock::default(),
            shown: AtomicU64::new(NEVER),
        }
    }

    /// Calls `look` with the current table.
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

    /// Applies all changes up to `last` at least.
    fn catch_up(&self, last: u64) {
        let mut sources = self.sources.lock();
        // The previous holder of the lock may have applied the changes.
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
    fn apply_changes(&self, table: &mut T, changes: FollowedChanges) {
        match changes {
            FollowedChanges::All(objects) => {
                (self.clear)(table);
                objects
                    .iter()
                    .for_each(|object| (self.apply)(table, object, true));
            }
            FollowedChanges::Some(changed) => {
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
