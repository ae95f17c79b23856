//! The decisions of a CronJob, as data.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use mizzen_sdk::Object;
use mizzen_value::{Value, value};

use super::plan::{CronJobPlan, decide, job_from_template, jobs_over_history_limit};

/// 2024-01-01T05:00:00Z, a Monday.
const FIVE: i64 = 1_704_085_200;

fn cron_job(spec: Value, status: Value) -> Object {
    let mut cron_job = value!({
        "metadata": {"namespace": "ns", "name": "c", "uid": "u", "creationTimestamp": "2024-01-01T04:30:00Z"},
        "spec": spec,
        "status": status,
    });
    cron_job.entry("spec").set_default("schedule", "0 * * * *");
    Object(cron_job)
}

/// The plan at 5:10, and the reasons of the events.
#[track_caller]
fn check(spec: Value, status: Value, expect: CronJobPlan, reasons: &[&str]) {
    let now = Timestamp::from_second(FIVE + 600).unwrap();
    let decision = decide(&cron_job(spec, status), now);
    assert_eq!(decision.plan, expect);
    assert_eq!(
        decision
            .events
            .iter()
            .map(|note| note.reason.as_str())
            .collect::<Vec<_>>(),
        reasons
    );
}

#[test]
fn a_job_is_started_once() {
    check(value!({}), value!({}), CronJobPlan::Start(FIVE), &[]);
    check(
        value!({}),
        value!({"lastScheduleTime": "2024-01-01T05:00:00Z"}),
        CronJobPlan::Wait,
        &[],
    );
    let active = value!([{"namespace": "ns", "name": "c-28401420"}]);
    check(
        value!({}),
        value!({"active": active}),
        CronJobPlan::Wait,
        &[],
    );
    check(
        value!({"suspend": true}),
        value!({}),
        CronJobPlan::Idle,
        &[],
    );
}

#[test]
fn active_jobs_can_forbid_the_next() {
    let active = || value!({"active": [{"namespace": "ns", "name": "other"}]});
    check(
        value!({"concurrencyPolicy": "Forbid"}),
        active(),
        CronJobPlan::Wait,
        &["JobAlreadyActive"],
    );
    check(
        value!({"concurrencyPolicy": "Forbid"}),
        value!({}),
        CronJobPlan::Start(FIVE),
        &[],
    );
    check(
        value!({"concurrencyPolicy": "Replace"}),
        active(),
        CronJobPlan::Start(FIVE),
        &[],
    );
}

#[test]
fn an_invalid_schedule_causes_an_event() {
    check(
        value!({"schedule": "x"}),
        value!({}),
        CronJobPlan::Idle,
        &["UnparseableSchedule"],
    );
    check(
        value!({"schedule": "0 0 31 2 *"}),
        value!({}),
        CronJobPlan::Idle,
        &["InvalidSchedule"],
    );
    check(
        value!({"timeZone": "Mars/Crater"}),
        value!({}),
        CronJobPlan::Idle,
        &["UnknownTimeZone"],
    );
    check(
        value!({"schedule": "TZ=UTC 0 * * * *"}),
        value!({}),
        CronJobPlan::Start(FIVE),
        &["UnsupportedSchedule"],
    );
}

#[test]
fn too_many_missed_times_cause_an_event_but_one_job_starts() {
    let long_ago = value!({"lastScheduleTime": "2023-01-01T05:00:00Z"});
    check(
        value!({}),
        long_ago,
        CronJobPlan::Start(FIVE),
        &["TooManyMissedTimes"],
    );
}

#[test]
fn the_time_zone_decides_when_it_is_due() {
    check(
        value!({"schedule": "0 6 * * *", "timeZone": "Europe/Berlin"}),
        value!({}),
        CronJobPlan::Start(FIVE),
        &[],
    );
    check(
        value!({"schedule": "0 6 * * *", "timeZone": "Etc/UTC"}),
        value!({}),
        CronJobPlan::Wait,
        &[],
    );
}

#[test]
fn event_messages_are_upstreams() {
    let now = Timestamp::from_second(FIVE + 600).unwrap();
    let messages = |spec: Value| {
        let notes = decide(&cron_job(spec, value!({})), now).events;
        notes
            .into_iter()
            .map(|note| note.message)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        messages(value!({"timeZone": "Mars"})),
        ["invalid timeZone: \"Mars\": unknown time zone Mars"]
    );
    let unparseable = "unparseable schedule: \"x\" : expected exactly 5 fields, found 1: [x]";
    assert_eq!(messages(value!({"schedule": "x"})), [unparseable]);
}

#[test]
fn a_job_is_named_by_its_scheduled_time() {
    let template = value!({"metadata": {"labels": {"l": "1"}, "annotations": {"a": "2"}}, "spec": {"suspend": true}});
    let spec = |zone: Value| value!({"jobTemplate": (template.clone()), "timeZone": zone});
    let made = |zone: Value| Object(job_from_template(&cron_job(spec(zone), value!({})), FIVE));
    let time = |job: &Object| {
        job.annotation("batch.kubernetes.io/cronjob-scheduled-timestamp")
            .map(String::from)
    };
    let job = made(Value::Null);
    assert_eq!(
        (job.name(), job.namespace(), job.label("l")),
        ("c-28401420", "ns", Some("1"))
    );
    assert!(
        job.is_controlled_by("u")
            && job["spec"]["suspend"].bool()
            && job.annotation("a") == Some("2")
    );
    assert_eq!(time(&job).as_deref(), Some("2024-01-01T05:00:00Z"));
    assert_eq!(
        time(&made(value!("Europe/Berlin"))).as_deref(),
        Some("2024-01-01T06:00:00+01:00")
    );
    assert_eq!(
        time(&made(value!("America/New_York"))).as_deref(),
        Some("2024-01-01T00:00:00-05:00")
    );
}

#[test]
fn the_oldest_finished_jobs_are_deleted() {
    let job = |name: &str, end: &str, start: Value| {
        let ended = value!([{"type": end, "status": "True"}]);
        let status = value!({"startTime": start, "conditions": ended});
        Arc::new(Object(
            value!({"metadata": {"name": name}, "status": status}),
        ))
    };
    let jobs = [
        job("young", "Complete", value!("2024-01-03T00:00:00Z")),
        job("old", "Complete", value!("2024-01-01T00:00:00Z")),
        job("never", "Complete", Value::Null),
        job("bad", "Failed", value!("2024-01-01T00:00:00Z")),
        job("runs", "SuccessCriteriaMet", value!("2023-01-01T00:00:00Z")),
    ];
    let check = |spec: Value, expect: &[&str]| {
        let gone = jobs_over_history_limit(&cron_job(spec, value!({})), &jobs);
        assert_eq!(
            gone.iter().map(|job| job.name()).collect::<Vec<_>>(),
            expect
        );
    };
    check(
        value!({"successfulJobsHistoryLimit": 1, "failedJobsHistoryLimit": 1}),
        &["old", "young"],
    );
    check(
        value!({"successfulJobsHistoryLimit": 3, "failedJobsHistoryLimit": 0}),
        &["bad"],
    );
    check(value!({}), &[]);
}
