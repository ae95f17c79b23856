//! How often is a status written? Not after each of a thousand pods that come at once.
//!
//! A status that only counts differently waits until the last one is a moment old. One that answers a new generation does
//! not: somebody waits for it.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::time::Duration;

use mizzen_sdk::Key;
use tokio::time::Instant;

/// How old a status is before the next one is written.
const MOMENT: Duration = Duration::from_millis(200);

/// When the status of each set was written last.
#[derive(Default)]
pub(super) struct Pace(Mutex<HashMap<Key, Instant>>);

impl Pace {
    /// How long a status has to wait, if it has to.
    pub(super) fn wait(&self, key: &Key) -> Option<Duration> {
        let age = self.lock().get(key)?.elapsed();
        MOMENT.checked_sub(age).filter(|wait| !wait.is_zero())
    }

    /// Notes that a status was written.
    pub(super) fn note(&self, key: Key) {
        self.lock().insert(key, Instant::now());
    }

    /// Forgets a set that is gone.
    pub(super) fn forget(&self, key: &Key) {
        self.lock().remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Instant>> {
        self.0.lock()
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_status_waits_until_the_last_one_is_a_moment_old() {
        let (pace, key) = (Pace::default(), Key::new("a", "web"));
        assert_eq!(pace.wait(&key), None);
        pace.note(key.clone());
        advance(Duration::from_millis(50)).await;
        assert_eq!(pace.wait(&key), Some(Duration::from_millis(150)));
        assert_eq!(pace.wait(&Key::new("b", "web")), None);
        advance(Duration::from_millis(150)).await;
        assert_eq!(pace.wait(&key), None);
        pace.note(key.clone());
        pace.forget(&key);
        assert_eq!(pace.wait(&key), None);
    }
}
