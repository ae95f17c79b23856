//! Log back-off for repeated failures of a loop: one line when it keeps failing, and further ones
//! after growing pauses.
//!
//! ```
//! use std::time::Duration;
//! use mizzen_sdk::failure_log::FailureLog;
//!
//! let failures = FailureLog::after(Duration::ZERO);
//! for _ in 0..1000 {
//!     if let Some(unlogged) = failures.failed() {
//!         println!("the list failed; {unlogged} further failures were not logged");
//!     }
//! }
//! failures.recovered();
//! ```
//!
//! Invariant: at most one line is logged within [`FIRST_PAUSE`].

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The pause after the first line of a series; doubled each time.
pub const FIRST_PAUSE: Duration = Duration::from_secs(10);
/// The longest pause. A series ends when there was no failure for as long.
pub const MAX_PAUSE: Duration = Duration::from_secs(600);

/// Decides which failures of one loop are logged.
///
/// ```
/// use std::time::Duration;
/// use mizzen_sdk::failure_log::FailureLog;
///
/// let failures = FailureLog::after(Duration::ZERO);
/// assert_eq!(failures.failed(), Some(0)); // to be logged
/// assert_eq!(failures.failed(), None); // within the pause
/// failures.recovered();
/// ```
#[derive(Debug)]
pub struct FailureLog {
    patience: Duration,
    series: Mutex<Option<FailureSeries>>,
}

/// Consecutive failures.
#[derive(Debug)]
struct FailureSeries {
    began: Instant,
    last: Instant,
    /// When the next line may be logged, after the first one.
    next: Option<Instant>,
    pause: Duration,
    unlogged: u64,
}

impl FailureLog {
    /// Logs nothing before a loop has failed for `patience`.
    pub fn after(patience: Duration) -> FailureLog {
        FailureLog {
            patience,
            series: Mutex::default(),
        }
    }

    /// Records a failure. If it is to be logged, returns how many were not since the last line.
    pub fn failed(&self) -> Option<u64> {
        let (now, mut known) = (Instant::now(), self.series.lock());
        let series = known.get_or_insert_with(|| FailureSeries::new(now));
        if now - series.last > MAX_PAUSE {
            *series = FailureSeries::new(now);
        }
        series.last = now;
        let is_due = match series.next {
            Some(next) => now >= next,
            None => now - series.began >= self.patience,
        };
        if !is_due {
            series.unlogged += 1;
            return None;
        }
        series.next = Some(now + series.pause);
        series.pause = (2 * series.pause).min(MAX_PAUSE);
        Some(std::mem::take(&mut series.unlogged))
    }

    /// Records a success: the next failure starts a new series.
    pub fn recovered(&self) {
        let mut series = self.series.lock();
        // A loop that fails every other time is still logged, but with pauses.
        if series
            .as_ref()
            .is_some_and(|series| series.next.is_none_or(|next| Instant::now() >= next))
        {
            *series = None;
        }
    }
}

impl FailureSeries {
    fn new(now: Instant) -> FailureSeries {
        FailureSeries {
            began: now,
            last: now,
            next: None,
            pause: FIRST_PAUSE,
            unlogged: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_keeps_failing_is_logged_with_growing_pauses() {
        let failures = FailureLog::after(Duration::ZERO);
        let (began, mut lines) = (Instant::now(), Vec::new());
        for _ in 0..3600 {
            if let Some(unlogged) = failures.failed() {
                lines.push((began.elapsed().as_secs(), unlogged));
            }
            tokio::time::advance(SECOND).await;
        }
        let (first, rest) = lines.split_at(6);
        assert_eq!(
            first,
            [(0, 0), (10, 9), (30, 19), (70, 39), (150, 79), (310, 159)]
        );
        assert_eq!(rest.len(), 5, "one every ten minutes: {rest:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_that_passes_within_the_patience_is_not_logged() {
        let failures = FailureLog::after(5 * SECOND);
        for _ in 0..10 {
            assert_eq!(failures.failed(), None);
            tokio::time::advance(4 * SECOND).await;
            assert_eq!(failures.failed(), None);
            failures.recovered();
        }
        assert_eq!(failures.failed(), None);
        tokio::time::advance(5 * SECOND).await;
        assert_eq!(failures.failed(), Some(1));
    }

    #[tokio::test(start_paused = true)]
    async fn success_between_failures_does_not_shorten_the_pauses() {
        let failures = FailureLog::after(Duration::ZERO);
        let mut n_lines = 0;
        for _ in 0..60 {
            n_lines += u32::from(failures.failed().is_some());
            failures.recovered();
            tokio::time::advance(SECOND).await;
        }
        assert_eq!(n_lines, 3, "after 0, 10 and 30 seconds");
    }
}
