//! Clocks and random sources for a [`Registry`](crate::Registry): the machine's, and those of tests. The only
//! place that reads the wall clock or the system's random source.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use mizzen_value::clock::{Clock, Random};
use tokio::time::Instant;

/// The system's clock.
pub struct WallClock;

impl Clock for WallClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the clock that the server reads"
    )]
    fn now(&self) -> (i64, u32) {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        (
            i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
            since.subsec_nanos(),
        )
    }
}

/// The system's random source.
pub struct SystemRandom;

impl Random for SystemRandom {
    fn fill(&self, bytes: &mut [u8]) {
        POOL.with_borrow_mut(|pool| pool.fill(bytes));
    }
}

thread_local! {
    static POOL: RefCell<RandomPool> = const { RefCell::new(RandomPool { bytes: [0; POOL_SIZE], used: POOL_SIZE }) };
}

/// How many random bytes are fetched at once: a system call costs more than copying them.
const POOL_SIZE: usize = 512;

/// Unused random bytes. Invariant: no byte is returned twice, and none stays here after it was returned.
struct RandomPool {
    bytes: [u8; POOL_SIZE],
    used: usize,
}

impl RandomPool {
    fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(POOL_SIZE) {
            if self.bytes.len() - self.used < chunk.len() {
                getrandom::fill(&mut self.bytes).expect("the system has random numbers");
                self.used = 0;
            }
            let fresh = &mut self.bytes[self.used..][..chunk.len()];
            chunk.copy_from_slice(fresh);
            fresh.fill(0);
            self.used += chunk.len();
        }
    }
}

/// Tokio's clock as the time of day. In a test with paused time it advances when all tasks are idle.
#[derive(Debug, Clone, Copy)]
pub struct VirtualClock {
    began: Instant,
    begin: i64,
}

impl VirtualClock {
    /// It is `begin` now, in seconds since 1970.
    pub fn starting_at(begin: i64) -> VirtualClock {
        VirtualClock {
            began: Instant::now(),
            begin,
        }
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> (i64, u32) {
        let passed = self.began.elapsed();
        (
            self.begin.saturating_add_unsigned(passed.as_secs()),
            passed.subsec_nanos(),
        )
    }
}

/// A [`VirtualClock`] that can be set while it runs, as an operator sets a wall clock. Clones share the clock.
#[derive(Debug, Clone)]
pub struct SettableClock {
    clock: VirtualClock,
    offset: Arc<AtomicI64>,
}

impl SettableClock {
    /// It is `begin` now, in seconds since 1970.
    pub fn starting_at(begin: i64) -> SettableClock {
        SettableClock {
            clock: VirtualClock::starting_at(begin),
            offset: Arc::default(),
        }
    }

    /// Sets the clock forward by `seconds`, or back if they are negative.
    pub fn step(&self, seconds: i64) {
        self.offset.fetch_add(seconds, Ordering::Relaxed);
    }
}

impl Clock for SettableClock {
    fn now(&self) -> (i64, u32) {
        let (seconds, nanos) = self.clock.now();
        (
            seconds.saturating_add(self.offset.load(Ordering::Relaxed)),
            nanos,
        )
    }
}

/// Pseudo-random bytes from a counter: different for every call, the same in every run.
#[derive(Debug)]
pub struct CountingRandom(AtomicU64);

impl Default for CountingRandom {
    fn default() -> CountingRandom {
        CountingRandom::from(1)
    }
}

/// The start value: counters with distant start values return different bytes.
impl From<u64> for CountingRandom {
    fn from(first: u64) -> CountingRandom {
        CountingRandom(AtomicU64::new(first))
    }
}

impl Random for CountingRandom {
    fn fill(&self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let number = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
            let number = (number ^ (number >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            chunk.copy_from_slice(&number.to_le_bytes()[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn random_bytes_are_never_repeated() {
        let mut seen = HashSet::new();
        for size in [8, 16, 500, 511, 512, 513, 2000] {
            for _ in 0..40 {
                let mut bytes = vec![0; size];
                SystemRandom.fill(&mut bytes);
                for chunk in bytes.chunks_exact(8) {
                    assert!(chunk != [0; 8] && seen.insert(chunk.to_vec()), "{size}");
                }
            }
        }
    }
}
