//! Expectations: has the cache observed what the controller did?
//!
//! A controller that creates three pods and is synced before its cache has them would create three
//! more. So it records what it expects to observe, and skips the object until it has, or until a
//! timeout.
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

use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;

/// The expectations of each object. Shared by the controller and its event handlers.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?.block_on(async {
/// use std::time::Duration;
/// use mizzen_sdk::expectations::Expectations;
///
/// let expectations = Expectations::new(Duration::from_secs(60));
/// expectations.expect_creations(&"default/web", 2);
/// expectations.creation_observed(&"default/web");
/// assert!(!expectations.is_satisfied(&"default/web"));
/// tokio::time::sleep(Duration::from_secs(61)).await; // the event was lost
/// assert!(expectations.is_satisfied(&"default/web"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Expectations<T> {
    expected: Mutex<HashMap<T, Expected>>,
    patience: Duration,
}

struct Expected {
    creations: i64,
    /// By UID or name, since a deletion may be observed more than once.
    deletions: HashSet<String>,
    since: Instant,
}

impl<T: Eq + Hash + Clone> Default for Expectations<T> {
    fn default() -> Expectations<T> {
        Expectations::new(Duration::from_secs(300))
    }
}

impl<T: Eq + Hash + Clone> Expectations<T> {
    /// Expectations that expire after `patience`: then an event was lost, and the controller syncs
    /// again.
    pub fn new(patience: Duration) -> Expectations<T> {
        Expectations {
            expected: Mutex::default(),
            patience,
        }
    }

    /// Expects `n` more creations for `key`.
    pub fn expect_creations(&self, key: &T, n: usize) {
        self.change(key, |expected| expected.creations += n as i64);
    }

    /// Expects these deletions.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?.block_on(async {
    /// use mizzen_sdk::expectations::Expectations;
    ///
    /// let expectations = Expectations::default();
    /// expectations.expect_deletions(&"default/web", ["pod-1".to_owned()]);
    /// assert!(!expectations.is_satisfied(&"default/web"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn expect_deletions(&self, key: &T, names: impl IntoIterator<Item = String>) {
        self.change(key, |expected| expected.deletions.extend(names));
    }

    fn change(&self, key: &T, change: impl FnOnce(&mut Expected)) {
        let mut all = self.expected.lock();
        let expected = all.entry(key.clone()).or_insert_with(|| Expected {
            creations: 0,
            deletions: HashSet::new(),
            since: Instant::now(),
        });
        expected.since = Instant::now();
        change(expected);
    }

    /// Records an observed or failed creation.
    pub fn creation_observed(&self, key: &T) {
        if let Some(expected) = self.expected.lock().get_mut(key) {
            expected.creations -= 1;
        }
    }

    /// Records an observed or failed deletion.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?.block_on(async {
    /// use mizzen_sdk::expectations::Expectations;
    ///
    /// let expectations = Expectations::default();
    /// expectations.expect_deletions(&"default/web", ["pod-1".to_owned()]);
    /// expectations.deletion_observed(&"default/web", "pod-1");
    /// expectations.deletion_observed(&"default/web", "pod-1"); // once more does not matter
    /// assert!(expectations.is_satisfied(&"default/web"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn deletion_observed(&self, key: &T, name: &str) {
        if let Some(expected) = self.expected.lock().get_mut(key) {
            expected.deletions.remove(name);
        }
    }

    /// Whether everything expected was observed, or the expectations have expired.
    pub fn is_satisfied(&self, key: &T) -> bool {
        let all = self.expected.lock();
        let Some(expected) = all.get(key) else {
            return true;
        };
        let fulfilled = expected.creations <= 0 && expected.deletions.is_empty();
        fulfilled || expected.since.elapsed() > self.patience
    }

    /// Removes the expectations of a deleted object.
    pub fn forget(&self, key: &T) {
        self.expected.lock().remove(key);
    }
}
