//! Back-off of reflectors.

use std::time::Duration;

use tokio::time::Instant;

use crate::clock::{self, Rng};

/// Exponential back-off with jitter. It resets after a time without failures.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?.block_on(async {
/// use std::sync::Arc;
/// use std::time::Duration;
/// use mizzen_sdk::watch::Backoff;
///
/// let (base, max) = (Duration::from_millis(100), Duration::from_millis(300));
/// let mut backoff = Backoff::new(base, max)
///     .reset_after(Duration::from_secs(10))
///     .with_rng(Arc::new(|| 0.0)); // no jitter
/// let waits = [0; 3].map(|_| backoff.next_wait().as_millis());
/// assert_eq!(waits, [100, 200, 300]);
/// tokio::time::advance(Duration::from_secs(11)).await;
/// assert_eq!(backoff.next_wait(), base);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Backoff {
    /// The first wait.
    pub base: Duration,
    /// The longest wait.
    pub max: Duration,
    /// The time without failures after which the back-off resets.
    pub reset: Duration,
    /// The random source: waits are longer by up to this share.
    pub rng: Rng,
    wait: Option<Duration>,
    failed: Option<Instant>,
}

impl Default for Backoff {
    /// client-go's: from 800 ms to 30 s, reset after two minutes.
    fn default() -> Backoff {
        Backoff::new(Duration::from_millis(800), Duration::from_secs(30))
    }
}

impl Backoff {
    /// Waits from `base` to `max`. It resets after two minutes without failures.
    pub fn new(base: Duration, max: Duration) -> Backoff {
        Backoff {
            base,
            max,
            reset: Duration::from_secs(120),
            rng: clock::rng(),
            wait: None,
            failed: None,
        }
    }

    /// Resets after this time without failures.
    #[must_use]
    pub fn reset_after(mut self, reset: Duration) -> Backoff {
        self.reset = reset;
        self
    }

    /// Takes its jitter from `rng`.
    #[must_use]
    pub fn with_rng(mut self, rng: Rng) -> Backoff {
        self.rng = rng;
        self
    }

    /// Counts a failure; returns how long to wait.
    pub fn next_wait(&mut self) -> Duration {
        let now = Instant::now();
        if self.failed.is_some_and(|failed| now - failed > self.reset) {
            self.wait = None;
        }
        let wait = self.wait.map_or(self.base, |wait| wait * 2).min(self.max);
        (self.wait, self.failed) = (Some(wait), Some(now));
        wait.mul_f64(1.0 + (self.rng)())
    }

    /// Adds jitter to `time`.
    pub(crate) fn jitter(&self, time: Duration) -> Duration {
        time.mul_f64(1.0 + (self.rng)())
    }
}
