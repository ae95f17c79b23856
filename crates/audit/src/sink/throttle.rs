//! The rate limit of batches.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::Throttle;

/// A token bucket.
pub(super) struct BatchThrottle {
    rate: f64,
    burst: f64,
    permits: f64,
    filled: Instant,
}

impl BatchThrottle {
    pub(super) fn new(Throttle { rate, burst }: Throttle) -> BatchThrottle {
        let burst = burst as f64;
        BatchThrottle {
            rate: f64::from(rate),
            burst,
            permits: burst,
            filled: Instant::now(),
        }
    }

    /// Waits for a permit.
    pub(super) async fn acquire(&mut self) {
        self.refill();
        self.permits -= 1.0;
        if self.permits < 0.0 {
            sleep(Duration::from_secs_f64(-self.permits / self.rate)).await;
        }
    }

    fn refill(&mut self) {
        let now = Instant::now();
        let passed = now.duration_since(self.filled).as_secs_f64();
        self.permits = (self.permits + passed * self.rate).min(self.burst);
        self.filled = now;
    }
}
