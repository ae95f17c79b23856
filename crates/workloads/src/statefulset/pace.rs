//! The pace of status writes: not one for each of a thousand pods.
//!
//! A status that only differs in counts waits until the last write is 200 ms old. One for a new
//! generation is written at once, because clients wait for it.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Duration;

use mizzen_sdk::Key;
use tokio::time::Instant;

/// The least time between two status writes.
const MOMENT: Duration = Duration::from_millis(200);

/// The last status write of each set.
#[derive(Default)]
pub(super) struct StatusPace(Mutex<HashMap<Key, Instant>>);

impl StatusPace {
    /// How long a status write has to wait.
    pub(super) fn wait(&self, key: &Key) -> Option<Duration> {
        let age = self.0.lock().get(key)?.elapsed();
        MOMENT.checked_sub(age).filter(|wait| !wait.is_zero())
    }

    /// Records a status write.
    pub(super) fn note(&self, key: Key) {
        self.0.lock().insert(key, Instant::now());
    }

    pub(super) fn forget(&self, key: &Key) {
        self.0.lock().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_status_waits_until_the_last_one_is_a_moment_old() {
        let (pace, key) = (StatusPace::default(), Key::new("a", "web"));
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
