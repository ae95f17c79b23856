//! The monotonic and the wall clock together, with the steps of the wall clock.
//!
//! Durations are measured on the monotonic clock, because the wall clock can be set. Objects have
//! wall-clock times; the steps are kept to map such a time to the monotonic clock.
//!
//! ```
//! use mizzen_sdk::{clock, timeline::Timeline};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! let timeline = Timeline::new(clock::wall_clock());
//! let now = timeline.now();
//! assert!(timeline.elapsed(now.wall) < std::time::Duration::from_secs(1));
//! # }
//! ```

use parking_lot::Mutex;
use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use crate::clock::Clock;

/// The deviation from which a change of the wall clock is a step.
const TOLERANCE: SignedDuration = SignedDuration::from_secs(1);
/// The tolerated clock skew of other machines.
const SKEW: SignedDuration = SignedDuration::from_secs(60);
/// The most steps that are kept; the oldest are dropped.
const MOST_STEPS: usize = 64;

/// One moment on both clocks.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?.block_on(async {
/// use mizzen_sdk::{clock, timeline::Timeline};
///
/// let reading = Timeline::new(clock::wall_clock()).now();
/// assert!(reading.wall.duration_since(reading.monotonic).as_secs().abs() <= 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// The monotonic clock, which started at the wall-clock time.
    pub monotonic: Timestamp,
    /// The wall clock.
    pub wall: Timestamp,
}

/// Both clocks, and the steps of the wall clock.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?.block_on(async {
/// use std::time::Duration;
/// use mizzen_sdk::{clock, timeline::Timeline};
///
/// let timeline = Timeline::new(clock::wall_clock());
/// let begun = timeline.now();
/// tokio::time::sleep(Duration::from_secs(90)).await; // the monotonic clock, whatever the wall clock does
/// assert_eq!(timeline.now().monotonic.duration_since(begun.monotonic).as_secs(), 90);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Timeline {
    clock: Clock,
    origin: Instant,
    /// The first reading, and the first one after each step of the wall clock, oldest first. Never
    /// empty.
    steps: Mutex<Vec<Reading>>,
}

impl Timeline {
    /// A timeline that starts now.
    pub fn new(clock: Clock) -> Timeline {
        let wall = clock();
        let first = Reading {
            monotonic: wall,
            wall,
        };
        Timeline {
            clock,
            origin: Instant::now(),
            steps: Mutex::new(vec![first]),
        }
    }

    /// The current reading.
    pub fn now(&self) -> Reading {
        let mut steps = self.steps.lock();
        let (first, last) = (steps[0], steps[steps.len() - 1]);
        let passed = SignedDuration::try_from(self.origin.elapsed()).unwrap_or(SignedDuration::MAX);
        let now = Reading {
            monotonic: first
                .monotonic
                .checked_add(passed)
                .unwrap_or(Timestamp::MAX),
            wall: (self.clock)(),
        };
        let moved = |one: fn(&Reading) -> Timestamp| one(&now).duration_since(one(&last));
        let step = moved(|it| it.wall) - moved(|it| it.monotonic);
        if step.abs() > TOLERANCE {
            tracing::warn!(?step, "the wall clock was set");
            // The first one stays: it is the origin of the monotonic clock.
            if steps.len() == MOST_STEPS {
                steps.remove(1);
            }
            steps.push(now);
        }
        now
    }

    /// The latest moment, on the monotonic clock, at which the wall clock showed `wall`. A time
    /// slightly in the future may be that of another machine; one far in the future was written
    /// before this process started, before the clock was set back.
    pub fn find(&self, wall: Timestamp) -> Timestamp {
        let now = self.now();
        let ahead = wall.duration_since(now.wall);
        if (SignedDuration::ZERO..=SKEW).contains(&ahead) {
            return now.monotonic.checked_add(ahead).unwrap_or(Timestamp::MAX);
        }
        let steps = self.steps.lock();
        let mut until = now.monotonic;
        for step in steps.iter().rev() {
            let found = step
                .monotonic
                .checked_add(wall.duration_since(step.wall))
                .unwrap_or(Timestamp::MIN);
            if (step.monotonic..=until).contains(&found) {
                return found;
            }
            until = step.monotonic;
        }
        let first = steps[0];
        let before = wall.duration_since(first.wall).min(SignedDuration::ZERO);
        first
            .monotonic
            .checked_add(before)
            .unwrap_or(Timestamp::MIN)
    }

    /// How long ago the wall clock showed `wall`; zero if that is in the future.
    pub fn elapsed(&self, wall: Timestamp) -> Duration {
        let since = self.now().monotonic.duration_since(self.find(wall));
        Duration::try_from(since).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicI64, Ordering};

    use tokio::time::advance;

    use super::*;

    const BEGIN: i64 = 1_700_000_000;

    /// A timeline, and the offset of its wall clock in seconds.
    fn timeline() -> (Timeline, Arc<AtomicI64>) {
        let (began, off) = (Instant::now(), Arc::new(AtomicI64::new(0)));
        let offset = off.clone();
        let clock: Clock = Arc::new(move || {
            let seconds = began.elapsed().as_secs() as i64 + offset.load(Ordering::Relaxed);
            wall(seconds)
        });
        (Timeline::new(clock), off)
    }

    fn wall(seconds: i64) -> Timestamp {
        Timestamp::from_second(BEGIN + seconds).unwrap()
    }

    async fn pass(seconds: u64) {
        advance(Duration::from_secs(seconds)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_monotonic_clock_ignores_steps_of_the_wall_clock() {
        let (timeline, off) = timeline();
        for (step, passed) in [(-3600, 10), (0, 20), (3600, 30)] {
            pass(10).await;
            off.store(step, Ordering::Relaxed);
            assert_eq!(
                timeline.now(),
                Reading {
                    monotonic: wall(passed),
                    wall: wall(passed + step)
                }
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_wall_clock_time_is_mapped_across_a_step() {
        for step in [-3600, 3600] {
            let (timeline, off) = timeline();
            pass(10).await;
            off.store(step, Ordering::Relaxed);
            timeline.now();
            pass(10).await;
            assert_eq!(timeline.find(wall(5)), wall(5), "before the step");
            assert_eq!(timeline.find(wall(15 + step)), wall(15), "after the step");
            assert_eq!(timeline.elapsed(wall(5)), Duration::from_secs(15));
            assert_eq!(
                timeline.find(wall(-7200)),
                wall(-7200),
                "before the beginning"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn unknown_times_are_before_the_start_or_of_another_machine() {
        let (timeline, _) = timeline();
        pass(10).await;
        assert_eq!(timeline.find(wall(5000)), wall(0));
        assert_eq!(timeline.elapsed(wall(5000)), Duration::from_secs(10));
        assert_eq!(timeline.find(wall(12)), wall(12));
        assert_eq!(timeline.elapsed(wall(12)), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_kept_steps_is_bounded() {
        let (timeline, off) = timeline();
        for n in 1..1000 {
            pass(1).await;
            off.store(n * 100, Ordering::Relaxed);
            timeline.now();
        }
        assert_eq!(timeline.steps.lock().len(), MOST_STEPS);
        assert_eq!(timeline.now().monotonic, wall(999));
    }
}
