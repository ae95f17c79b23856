//! The back-off after failed pods.
//!
//! The first failure costs 10 s, each further one twice as much, up to 10 minutes. The time counts
//! from the end of the last failed container, not from when the controller saw it, and is measured
//! on the monotonic clock.

use std::sync::Arc;
use std::time::Duration;

use mizzen_sdk::Object;

use super::facts::{failure_count, finish_time, ignored_failure_count};

const FIRST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(600);

/// How long ago the wall clock showed a second since 1970.
pub(super) type Elapsed<'a> = &'a dyn Fn(i64) -> Duration;

/// Consecutive failures of a job's pods, and when the last one failed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct JobBackoff {
    n_failures: i64,
    /// Seconds since 1970.
    last_failure: i64,
}

impl JobBackoff {
    /// Adds newly finished pods. Only failures after the last success count.
    pub(super) fn after_finished_pods(
        self,
        succeeded: &[Arc<Object>],
        failed: &[Arc<Object>],
    ) -> JobBackoff {
        let last_success = succeeded.iter().map(|pod| finish_time(pod)).max();
        let before = if last_success.is_some() {
            JobBackoff::default()
        } else {
            self
        };
        let times = failed.iter().map(|pod| finish_time(pod));
        let times = times.filter(|time| last_success.is_none_or(|success| *time > success));
        times.fold(before, |known, time| JobBackoff {
            n_failures: known.n_failures + 1,
            last_failure: if known.n_failures == before.n_failures {
                time
            } else {
                time.max(known.last_failure)
            },
        })
    }

    pub(super) fn remaining(self, elapsed: Elapsed) -> Duration {
        remaining(self.n_failures, self.last_failure, elapsed)
    }
}

/// The remaining back-off of an index.
pub(super) fn remaining_of_index(last_failed: Option<&Arc<Object>>, elapsed: Elapsed) -> Duration {
    let Some(pod) = last_failed else {
        return Duration::ZERO;
    };
    remaining(
        failure_count(pod) + ignored_failure_count(pod) + 1,
        finish_time(pod),
        elapsed,
    )
}

fn remaining(n_failures: i64, last_failure: i64, elapsed: Elapsed) -> Duration {
    if n_failures == 0 {
        return Duration::ZERO;
    }
    let doublings = (n_failures - 1).min(10) as u32;
    let span = (FIRST * 2_u32.pow(doublings)).min(LONGEST);
    span.saturating_sub(elapsed(last_failure))
}

#[cfg(test)]
mod tests {
    use mizzen_value::time::from_unix;
    use mizzen_value::value;

    use super::*;

    fn pods(times: &[i64]) -> Vec<Arc<Object>> {
        let pod = |time: &i64| {
            let ended = value!({"state": {"terminated": {"finishedAt": (from_unix(*time))}}});
            Arc::new(Object::from(
                value!({"status": {"containerStatuses": [ended]}}),
            ))
        };
        times.iter().map(pod).collect()
    }

    fn at_second_100(second: i64) -> Duration {
        Duration::from_secs(u64::try_from(100 - second).unwrap_or_default())
    }

    /// The seconds to wait at second 100.
    #[track_caller]
    fn check(before: JobBackoff, succeeded: &[i64], failed: &[i64], expect: u64) -> JobBackoff {
        let known = before.after_finished_pods(&pods(succeeded), &pods(failed));
        assert_eq!(known.remaining(&at_second_100), Duration::from_secs(expect));
        known
    }

    #[test]
    fn each_failure_doubles_the_wait() {
        let one = check(JobBackoff::default(), &[], &[100], 10);
        let three = check(one, &[], &[99, 95], 39);
        let many = check(three, &[], &[100; 20], 600);
        check(many, &[], &[], 600);
    }

    #[test]
    fn a_success_resets_the_back_off() {
        let some = check(JobBackoff::default(), &[], &[100, 100, 100], 40);
        check(some, &[50], &[], 0);
        check(some, &[98], &[90, 97, 99, 100], 20);
    }

    #[test]
    fn an_expired_back_off_is_zero() {
        check(JobBackoff::default(), &[], &[80], 0);
    }

    #[test]
    fn an_index_waits_for_all_its_failures() {
        let annotations = value!({
            "batch.kubernetes.io/job-index-failure-count": "1",
            "batch.kubernetes.io/job-index-ignored-failure-count": "1",
        });
        let pod = value!({"metadata": {"creationTimestamp": "1970-01-01T00:01:40Z", "annotations": annotations}});
        let pod = Arc::new(Object::from(pod));
        assert_eq!(
            remaining_of_index(Some(&pod), &at_second_100),
            Duration::from_secs(40)
        );
        assert_eq!(remaining_of_index(None, &at_second_100), Duration::ZERO);
    }
}
