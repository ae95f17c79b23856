//! How long does a failed pod wait before the next one is tried on its node? Twice as long each time.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(15 * 60);

/// What failed lately.
#[derive(Default)]
pub(super) struct Backoff(Mutex<HashMap<String, Failure>>);

struct Failure {
    wait: Duration,
    last: Timestamp,
}

impl Failure {
    fn since(&self, now: Timestamp) -> Duration {
        Duration::try_from(now.duration_since(self.last)).unwrap_or_default()
    }

    /// Whether nothing has failed for so long that it is forgotten.
    fn is_past(&self, now: Timestamp) -> bool {
        self.since(now) > LONGEST * 2
    }
}

impl Backoff {
    /// How long `key` still has to wait, if it has to.
    pub(super) fn wait(&self, key: &str, now: Timestamp) -> Option<Duration> {
        let all = self.lock();
        let failure = all.get(key).filter(|failure| !failure.is_past(now))?;
        failure
            .wait
            .checked_sub(failure.since(now))
            .filter(|wait| !wait.is_zero())
    }

    /// Notes a failure: the next has to wait, longer than the one before.
    pub(super) fn note(&self, key: &str, now: Timestamp) {
        let mut all = self.lock();
        let known = all.get(key).filter(|failure| !failure.is_past(now));
        let wait = known.map_or(FIRST, |failure| (failure.wait * 2).min(LONGEST));
        all.insert(key.into(), Failure { wait, last: now });
    }

    /// Forgets what is long past.
    pub(super) fn forget_past(&self, now: Timestamp) {
        self.lock().retain(|_, failure| !failure.is_past(now));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Failure>> {
        self.0.lock()
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
        let backoff = Backoff::default();
        failures
            .iter()
            .for_each(|second| backoff.note("n", at(*second)));
        assert_eq!(backoff.wait("n", at(now)), expect.map(Duration::from_secs));
    }

    #[test]
    fn the_first_failure_waits_for_nobody() {
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
    fn nobody_waits_longer_than_a_quarter_of_an_hour() {
        check(&[0; 20], 0, Some(900));
    }

    #[test]
    fn what_is_long_past_is_forgotten() {
        check(&[0, 1, 3, 3 + 1801], 3 + 1801, Some(1));
        let backoff = Backoff::default();
        backoff.note("n", at(0));
        backoff.forget_past(at(1800));
        assert_eq!(backoff.lock().len(), 1);
        backoff.forget_past(at(1801));
        assert_eq!(backoff.lock().len(), 0);
    }
}
