//! Has the cache seen what I did? Until it has, do not count again.
//!
//! A controller that makes three pods and is woken before its cache has seen them would make three more. It
//! therefore notes what it expects to see, and leaves an object alone until it has, or has waited long enough.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
//! use mizzen_sdk::expectations::Expectations;
//!
//! let expectations = Expectations::default();
//! expectations.expect_creations(&"default/web", 1);
//! assert!(!expectations.is_satisfied(&"default/web")); // do nothing yet
//! expectations.creation_observed(&"default/web"); // a handler saw the pod
//! assert!(expectations.is_satisfied(&"default/web"));
//! # });
//! ```

use parking_lot::{Mutex, MutexGuard};
use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;

/// What is expected of each object. Shared by those who act and those who watch.
pub struct Expectations<T> {
    expected: Mutex<HashMap<T, Expected>>,
    patience: Duration,
}

struct Expected {
    creations: i64,
    /// Who is to go: by uid or name, since a deletion may be seen more than once.
    deletions: HashSet<String>,
    since: Instant,
}

impl<T: Eq + Hash + Clone> Default for Expectations<T> {
    fn default() -> Expectations<T> {
        Expectations::new(Duration::from_secs(300))
    }
}

impl<T: Eq + Hash + Clone> Expectations<T> {
    /// Expectations that are given up after `patience`: then something was lost, and it is better to look again.
    pub fn new(patience: Duration) -> Expectations<T> {
        Expectations {
            expected: Mutex::default(),
            patience,
        }
    }

    /// Expects `n` objects to be made for `key`, besides what is expected already.
    pub fn expect_creations(&self, key: &T, n: usize) {
        self.change(key, |expected| expected.creations += n as i64);
    }

    /// Expects these objects to go.
    pub fn expect_deletions(&self, key: &T, names: impl IntoIterator<Item = String>) {
        self.change(key, |expected| expected.deletions.extend(names));
    }

    fn change(&self, key: &T, change: impl FnOnce(&mut Expected)) {
        let mut all = self.lock();
        let expected = all.entry(key.clone()).or_insert_with(|| Expected {
            creations: 0,
            deletions: HashSet::new(),
            since: Instant::now(),
        });
        expected.since = Instant::now();
        change(expected);
    }

    /// An object was seen to be made, or could not be made.
    pub fn creation_observed(&self, key: &T) {
        if let Some(expected) = self.lock().get_mut(key) {
            expected.creations -= 1;
        }
    }

    /// An object was seen to go, or could not be deleted.
    pub fn deletion_observed(&self, key: &T, name: &str) {
        if let Some(expected) = self.lock().get_mut(key) {
            expected.deletions.remove(name);
        }
    }

    /// Whether everything that was expected was seen, or has been waited for long enough.
    pub fn is_satisfied(&self, key: &T) -> bool {
        let all = self.lock();
        let Some(expected) = all.get(key) else {
            return true;
        };
        let fulfilled = expected.creations <= 0 && expected.deletions.is_empty();
        fulfilled || expected.since.elapsed() > self.patience
    }

    /// Expects nothing more of an object that is gone.
    pub fn forget(&self, key: &T) {
        self.lock().remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<T, Expected>> {
        self.expected.lock()
    }
}
