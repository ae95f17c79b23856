//! The back-off of failed daemon pods: each failure on a node doubles the delay.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(15 * 60);

/// The failures by set, generation and node.
#[derive(Default)]
pub(super) struct FailedPodsBackoff(Mutex<HashMap<String, BackoffEntry>>);

struct BackoffEntry {
    wait: Duration,
    last: Timestamp,
}

impl BackoffEntry {
    fn since(&self, now: Timestamp) -> Duration {
        Duration::try_from(now.duration_since(self.last)).unwrap_or_default()
    }

    /// Whether the last failure is so old that the entry expires.
    fn is_expired(&self, now: Timestamp) -> bool {
        self.since(now) > LONGEST * 2
    }
}

impl FailedPodsBackoff {
    /// How long `key` still has to wait.
    pub(super) fn remaining(&self, key: &str, now: Timestamp) -> Option<Duration> {
        let all = self.0.lock();
        let failure = all.get(key).filter(|failure| !failure.is_expired(now))?;
        failure
            .wait
            .checked_sub(failure.since(now))
            .filter(|wait| !wait.is_zero())
    }

    /// Records a failure and doubles the delay.
    pub(super) fn record_failure(&self, key: &str, now: Timestamp) {
        let mut all = self.0.lock();
        let known = all.get(key).filter(|failure| !failure.is_expired(now));
        let wait = known.map_or(FIRST, |failure| (failure.wait * 2).min(LONGEST));
        all.insert(key.into(), BackoffEntry { wait, last: now });
    }

    /// Removes expired entries.
    pub(super) fn collect_garbage(&self, now: Timestamp) {
        self.0.lock().retain(|_, failure| !failure.is_expired(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).expect("a time")
    }

    #[track_caller]
    fn check(failures: &[i64], now: i64, expect: Option<u64>) {
        let backoff = FailedPodsBackoff::default();
        failures
            .iter()
            .for_each(|second| backoff.record_failure("n", at(*second)));
        assert_eq!(
            backoff.remaining("n", at(now)),
            expect.map(Duration::from_secs)
        );
    }

    #[test]
    fn the_first_failure_has_no_delay() {
        check(&[], 0, None);
    }

    #[test]
    fn each_failure_makes_the_next_wait_twice_as_long() {
        check(&[0], 0, Some(1));
        check(&[0], 1, None);
        check(&[0, 1], 1, Some(2));
        check(&[0, 1, 3], 4, Some(3));
    }

    #[test]
    fn the_back_off_is_at_most_15_minutes() {
        check(&[0; 20], 0, Some(900));
    }

    #[test]
    fn expired_entries_are_removed() {
        check(&[0, 1, 3, 3 + 1801], 3 + 1801, Some(1));
        let backoff = FailedPodsBackoff::default();
        backoff.record_failure("n", at(0));
        backoff.collect_garbage(at(1800));
        assert_eq!(backoff.0.lock().len(), 1);
        backoff.collect_garbage(at(1801));
        assert_eq!(backoff.0.lock().len(), 0);
    }
}
