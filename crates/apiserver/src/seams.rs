//! Real time and real chance, for a [`Registry`](mizzen_registry::Registry). The only place that reads the wall clock
//! or asks for random bytes.

use std::time::{SystemTime, UNIX_EPOCH};

use mizzen_object::seam::{Clock, Random};

/// The machine's clock.
pub struct WallClock;

impl Clock for WallClock {
    fn now(&self) -> (i64, u32) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        (i64::try_from(since.as_secs()).unwrap_or(i64::MAX), since.subsec_nanos())
    }
}

/// The machine's random numbers.
pub struct SystemRandom;

impl Random for SystemRandom {
    fn fill(&self, bytes: &mut [u8]) {
        getrandom::fill(bytes).expect("the system has random numbers");
    }
}
