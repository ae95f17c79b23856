//! How long to wait after a failure, and after the next one.

use std::time::Duration;

use tokio::time::Instant;

use crate::seam::{self, Chance};

/// Waits longer with each failure, and a bit by chance. After a quiet time it begins again.
#[derive(Clone)]
pub struct Backoff {
    /// The first wait.
    pub base: Duration,
    /// The longest.
    pub max: Duration,
    /// How long nothing must fail until the first wait is the next again.
    pub reset: Duration,
    /// A number from 0 up to 1, another each time; waits are longer by this share.
    pub chance: Chance,
    wait: Option<Duration>,
    failed: Option<Instant>,
}

impl Default for Backoff {
    /// What client-go does: from 800 ms to 30 s, begun again after two quiet minutes.
    fn default() -> Backoff {
        let (base, max) = (Duration::from_millis(800), Duration::from_secs(30));
        Backoff {
            base,
            max,
            reset: Duration::from_secs(120),
            chance: seam::chance(),
            wait: None,
            failed: None,
        }
    }
}

impl Backoff {
    /// Counts a failure; how long to wait now.
    pub fn next_wait(&mut self) -> Duration {
        let now = Instant::now();
        if self.failed.is_some_and(|failed| now - failed > self.reset) {
            self.wait = None;
        }
        let wait = self.wait.map_or(self.base, |wait| wait * 2).min(self.max);
        (self.wait, self.failed) = (Some(wait), Some(now));
        wait.mul_f64(1.0 + (self.chance)())
    }

    /// A share of `time` by chance, added to it.
    pub(crate) fn jitter(&self, time: Duration) -> Duration {
        time.mul_f64(1.0 + (self.chance)())
    }
}
