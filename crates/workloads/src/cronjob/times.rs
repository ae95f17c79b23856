//! Scheduled times: the latest missed one and the next one.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use mizzen_component_helpers::cron::Schedule;
use mizzen_sdk::Object;
use mizzen_value::time::to_unix;

/// Added to the next scheduled time, because clocks differ.
const NEXT_SCHEDULE_DELTA: Duration = Duration::from_millis(100);

/// Above so many missed times an event is recorded.
const MANY_MISSED: i64 = 100;

/// A scheduled time that has no job yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Due {
    /// The latest such time, in seconds since 1970.
    pub time: i64,
    /// Whether too many times were missed before it.
    pub missed_many: bool,
}

/// The times between the last job and now.
struct MissedSchedules {
    /// The last schedule time, or the creation.
    from: i64,
    /// The latest time after `from` that is not in the future.
    latest: Option<i64>,
    /// The estimated number of missed times.
    n_missed: i64,
}

/// The latest time that is not in the future, and not before the creation, the last job, or
/// startingDeadlineSeconds.
pub(super) fn due(
    cron_job: &Object,
    schedule: &Schedule,
    now: Timestamp,
) -> Result<Option<Due>, String> {
    let deadline = cron_job["spec"]["startingDeadlineSeconds"].as_int();
    let earliest = deadline.map(|seconds| now.as_second().saturating_sub(seconds));
    let past = most_recent_schedule_time(
        last_time(cron_job).max(earliest.unwrap_or(i64::MIN)),
        schedule,
        now.as_second(),
    )?;
    Ok(past.latest.map(|time| Due {
        time,
        missed_many: past.n_missed > MANY_MISSED,
    }))
}

/// How long until the next scheduled time; none if there is none.
pub(super) fn until_next(
    cron_job: &Object,
    schedule: &Schedule,
    now: Timestamp,
) -> Option<Duration> {
    let base = match most_recent_schedule_time(last_time(cron_job), schedule, now.as_second()) {
        Ok(MissedSchedules {
            latest: Some(latest),
            ..
        }) => latest,
        Ok(MissedSchedules {
            from, n_missed: 0, ..
        }) => from,
        _ => now.as_second(),
    };
    let wait = i128::from(schedule.next(base)?) * 1_000_000_000 - now.as_nanosecond();
    Some(Duration::from_nanos(
        (wait + NEXT_SCHEDULE_DELTA.as_nanos() as i128)
            .max(0)
            .try_into()
            .unwrap_or(u64::MAX),
    ))
}

/// Whether startingDeadlineSeconds has passed for `time`.
pub(super) fn is_too_late(cron_job: &Object, time: i64, now: Timestamp) -> bool {
    let deadline = cron_job["spec"]["startingDeadlineSeconds"].as_int();
    let is_past =
        |seconds| i128::from(time.saturating_add(seconds)) * 1_000_000_000 < now.as_nanosecond();
    deadline.is_some_and(is_past)
}

fn last_time(cron_job: &Object) -> i64 {
    to_unix(cron_job["status"]["lastScheduleTime"].str()).unwrap_or_else(|| cron_job.created())
}

/// Kubernetes: the number of missed times is estimated from the distance of the first two, and the
/// latest is searched from there; an irregular schedule may so yield none (cronjob/utils.go,
/// mostRecentScheduleTime).
fn most_recent_schedule_time(
    from: i64,
    schedule: &Schedule,
    now: i64,
) -> Result<MissedSchedules, String> {
    let never = || String::from("time difference between two schedules is less than 1 second");
    let first = schedule.next(from).ok_or_else(never)?;
    if now < first {
        return Ok(MissedSchedules {
            from,
            latest: None,
            n_missed: 0,
        });
    }
    let second = schedule.next(first).ok_or_else(never)?;
    if now < second {
        return Ok(MissedSchedules {
            from,
            latest: Some(first),
            n_missed: 0,
        });
    }
    let span = second - first;
    let n_missed = (now - first) / span + 1;
    let times = std::iter::successors(schedule.next(first + (n_missed - 2) * span), |time| {
        schedule.next(*time)
    });
    Ok(MissedSchedules {
        from,
        latest: times.take_while(|time| *time <= now).last(),
        n_missed,
    })
}

#[cfg(test)]
mod tests {
    use mizzen_value::time::from_unix;
    use mizzen_value::{Value, value};

    use super::*;

    fn at(time: &str) -> Timestamp {
        time.parse().unwrap()
    }

    fn cron_job(made: &str, last: Value, deadline: Value) -> Object {
        Object(value!({
            "metadata": {"creationTimestamp": made},
            "spec": {"startingDeadlineSeconds": deadline},
            "status": {"lastScheduleTime": last},
        }))
    }

    #[track_caller]
    fn check(schedule: &str, cron_job: &Object, now: &str, expect: Option<(&str, bool)>) {
        let schedule = Schedule::parse(schedule).unwrap();
        let due = due(cron_job, &schedule, at(now)).unwrap();
        let due = due.map(|due| (from_unix(due.time), due.missed_many));
        assert_eq!(
            due.as_ref().map(|(time, many)| (time.as_str(), *many)),
            expect
        );
    }

    #[test]
    fn the_latest_time_since_the_last_job_is_due() {
        let made = |last: Value| cron_job("2024-01-01T00:00:30Z", last, Value::Null);
        check(
            "0 * * * *",
            &made(Value::Null),
            "2024-01-01T00:59:59Z",
            None,
        );
        check(
            "0 * * * *",
            &made(Value::Null),
            "2024-01-01T01:00:00Z",
            Some(("2024-01-01T01:00:00Z", false)),
        );
        check(
            "0 * * * *",
            &made(Value::Null),
            "2024-01-01T05:30:00Z",
            Some(("2024-01-01T05:00:00Z", false)),
        );
        check(
            "0 * * * *",
            &made(value!("2024-01-01T05:00:00Z")),
            "2024-01-01T05:30:00Z",
            None,
        );
        check(
            "0 * * * *",
            &made(Value::Null),
            "2024-01-06T00:30:00Z",
            Some(("2024-01-06T00:00:00Z", true)),
        );
        check(
            "@every 7m",
            &made(Value::Null),
            "2024-01-01T01:00:00Z",
            Some(("2024-01-01T00:56:30Z", false)),
        );
    }

    #[test]
    fn times_that_are_not_regular_may_be_missed_for_good() {
        let made = cron_job("2024-01-01T00:00:30Z", Value::Null, Value::Null);
        let weekdays = "30 6-16/4 * * 1-5";
        check(
            weekdays,
            &made,
            "2024-01-02T07:00:00Z",
            Some(("2024-01-02T06:30:00Z", false)),
        );
        check(weekdays, &made, "2024-01-07T12:00:00Z", None);
    }

    #[test]
    fn what_is_older_than_the_deadline_does_not_count() {
        let late = cron_job("2024-01-01T00:00:30Z", Value::Null, value!(60));
        check("0 * * * *", &late, "2024-01-06T00:30:00Z", None);
        check(
            "0 * * * *",
            &late,
            "2024-01-06T00:00:10Z",
            Some(("2024-01-06T00:00:00Z", false)),
        );
        let time = at("2024-01-06T00:00:00Z").as_second();
        assert!(!is_too_late(&late, time, at("2024-01-06T00:01:00Z")));
        assert!(is_too_late(&late, time, at("2024-01-06T00:01:00.5Z")));
    }

    #[test]
    fn a_day_that_never_comes_is_invalid() {
        let never = Schedule::parse("59 23 31 2 *").unwrap();
        let made = cron_job("2024-01-01T00:00:30Z", Value::Null, Value::Null);
        assert!(due(&made, &never, at("2024-01-02T00:00:00Z")).is_err());
        assert_eq!(until_next(&made, &never, at("2024-01-02T00:00:00Z")), None);
    }

    #[test]
    fn the_next_time_has_a_delta() {
        let hourly = Schedule::parse("0 * * * *").unwrap();
        let made = cron_job("2024-01-01T00:00:30Z", Value::Null, Value::Null);
        let wait = |now: &str| until_next(&made, &hourly, at(now)).unwrap().as_millis();
        assert_eq!(wait("2024-01-01T00:59:59.5Z"), 600);
        assert_eq!(wait("2024-01-01T01:00:00Z"), 3_600_100);
        assert_eq!(wait("2024-01-01T05:30:00Z"), 1_800_100);
    }
}
