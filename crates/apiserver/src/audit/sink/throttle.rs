//! Not too often: so many times a second, and some at once after a rest.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::Throttle;

/// A bucket of permits that fills with time.
pub(super) struct Bucket {
    rate: f64,
    burst: f64,
    permits: f64,
    filled: Instant,
}

impl Bucket {
    pub(super) fn new(Throttle { rate, burst }: Throttle) -> Bucket {
        let burst = burst as f64;
        Bucket {
            rate: f64::from(rate),
            burst,
            permits: burst,
            filled: Instant::now(),
        }
    }

    /// Waits for a permit.
    pub(super) async fn take(&mut self) {
        self.fill();
        self.permits -= 1.0;
        if self.permits < 0.0 {
            sleep(Duration::from_secs_f64(-self.permits / self.rate)).await;
        }
    }

    fn fill(&mut self) {
        let now = Instant::now();
        let passed = now.duration_since(self.filled).as_secs_f64();
        self.permits = (self.permits + passed * self.rate).min(self.burst);
        self.filled = now;
    }
}
