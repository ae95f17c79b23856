//! Decides whether a CronJob starts a job now.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use mizzen_component_helpers::cron::{Schedule, check_zone};
use mizzen_sdk::Object;
use mizzen_sdk::event::Note;
use mizzen_sdk::resource::CRON_JOBS;
use mizzen_value::json::quote;
use mizzen_value::time::{Moment, date_of, to_unix, zone};
use mizzen_value::{Value, value};

use super::times::{due, is_too_late};
use crate::common::template::controller_reference;
use crate::job::facts;

/// What to do.
#[derive(Debug, PartialEq)]
pub(super) enum CronJobPlan {
    /// Nothing until the CronJob changes.
    Idle,
    /// Nothing until the next scheduled time.
    Wait,
    /// Start the job of this scheduled time.
    Start(i64),
}

/// The plan and the events to record.
pub(super) struct ScheduleDecision {
    pub plan: CronJobPlan,
    pub events: Vec<Note>,
    /// The schedule, if it is valid.
    pub schedule: Option<Schedule>,
}

/// Decides whether a job is started.
pub(super) fn decide(cron_job: &Object, now: Timestamp) -> ScheduleDecision {
    let mut notes = Vec::new();
    let (plan, schedule) = match read_schedule(cron_job, &mut notes) {
        None => (CronJobPlan::Idle, None),
        Some(schedule) => (plan(cron_job, &schedule, now, &mut notes), Some(schedule)),
    };
    ScheduleDecision {
        plan,
        events: notes,
        schedule,
    }
}

fn read_schedule(cron_job: &Object, notes: &mut Vec<Note>) -> Option<Schedule> {
    let spec = &cron_job["spec"];
    if cron_job.is_terminating() {
        return None;
    }
    let zone = spec["timeZone"].as_str();
    if let Some(Err(problem)) = zone.map(check_zone) {
        let message = format!(
            "invalid timeZone: {}: {problem}",
            quote(zone.unwrap_or_default())
        );
        notes.push(Note::warning("UnknownTimeZone", "", message));
        return None;
    }
    if spec["suspend"].bool() {
        return None;
    }
    let text = spec["schedule"].str();
    if text.contains("TZ") {
        let message = format!(
            "CRON_TZ or TZ used in schedule {} is not officially supported, see \
             https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details",
            quote(text)
        );
        notes.push(Note::warning("UnsupportedSchedule", "", message));
    }
    let refuse = |problem: String| {
        let message = format!("unparseable schedule: {} : {problem}", quote(text));
        notes.push(Note::warning("UnparseableSchedule", "", message));
    };
    parse(cron_job).map_err(refuse).ok()
}

/// The schedule in `spec.timeZone`. A `TZ=` in the schedule itself wins.
pub(super) fn parse(cron_job: &Object) -> Result<Schedule, String> {
    let text = cron_job["spec"]["schedule"].str();
    match cron_job["spec"]["timeZone"].as_str() {
        Some(zone) if !text.contains("TZ") => Schedule::parse(&format!("TZ={zone} {text}")),
        _ => Schedule::parse(text),
    }
}

fn plan(
    cron_job: &Object,
    schedule: &Schedule,
    now: Timestamp,
    notes: &mut Vec<Note>,
) -> CronJobPlan {
    let due = match due(cron_job, schedule, now) {
        Ok(None) => return CronJobPlan::Wait,
        Ok(Some(due)) => due,
        Err(problem) => {
            let message = format!(
                "invalid schedule: {} : {problem}",
                cron_job["spec"]["schedule"].str()
            );
            notes.push(Note::warning("InvalidSchedule", "", message));
            return CronJobPlan::Idle;
        }
    };
    if due.missed_many {
        let message = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
        notes.push(Note::warning("TooManyMissedTimes", "", message));
    }
    if is_too_late(cron_job, due.time, now) {
        let message = format!(
            "Missed scheduled time to start a job: {}",
            rfc1123z(due.time)
        );
        notes.push(Note::warning("MissSchedule", "", message));
        return CronJobPlan::Wait;
    }
    let active = cron_job["status"]["active"].list();
    let name = job_name(cron_job, due.time);
    let is_started = active
        .iter()
        .any(|it| it["name"].str() == name && it["namespace"].str() == cron_job.namespace());
    if is_started || to_unix(cron_job["status"]["lastScheduleTime"].str()) == Some(due.time) {
        return CronJobPlan::Wait;
    }
    if cron_job["spec"]["concurrencyPolicy"].str() == "Forbid" && !active.is_empty() {
        let message =
            "Not starting job because prior execution is running and concurrency policy is Forbid";
        notes.push(Note::normal("JobAlreadyActive", "", message));
        return CronJobPlan::Wait;
    }
    CronJobPlan::Start(due.time)
}

/// The name contains the scheduled minute, so that a job is not created twice.
fn job_name(cron_job: &Object, time: i64) -> String {
    format!("{}-{}", cron_job.name(), time / 60)
}

/// The job of a scheduled time.
pub(super) fn job_from_template(cron_job: &Object, time: i64) -> Value {
    let template = &cron_job["spec"]["jobTemplate"];
    let mut metadata =
        value!({"name": (job_name(cron_job, time)), "namespace": (cron_job.namespace())});
    if !template["metadata"]["labels"].is_empty() {
        metadata.set("labels", template["metadata"]["labels"].clone());
    }
    if !template["metadata"]["annotations"].is_empty() {
        metadata.set("annotations", template["metadata"]["annotations"].clone());
    }
    let zone = cron_job["spec"]["timeZone"].str();
    metadata.entry("annotations").set(
        "batch.kubernetes.io/cronjob-scheduled-timestamp",
        scheduled_timestamp(time, zone),
    );
    metadata.set(
        "ownerReferences",
        vec![controller_reference(cron_job, &CRON_JOBS)],
    );
    let spec = template["spec"].clone();
    value!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})
}

/// RFC 3339 in a time zone: `2024-01-01T01:00:00+01:00`.
fn scheduled_timestamp(time: i64, zone: &str) -> String {
    let offset = zone::offset(zone, time).unwrap_or_default();
    let local = Moment {
        seconds: time + offset,
        nanos: 0,
    }
    .to_string();
    let (sign, minutes) = (if offset < 0 { '-' } else { '+' }, offset.abs() / 60);
    match offset {
        0 => local,
        _ => format!(
            "{}{sign}{:02}:{:02}",
            local.trim_end_matches('Z'),
            minutes / 60,
            minutes % 60
        ),
    }
}

/// RFC 1123 with a numeric zone: `Mon, 01 Jan 2024 00:00:00 +0000`.
fn rfc1123z(time: i64) -> String {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    const WEEKDAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
    let (days, second) = (time.div_euclid(86_400), time.rem_euclid(86_400));
    let (year, month, day) = date_of(days);
    let weekday = WEEKDAYS[(days + 4).rem_euclid(7) as usize];
    let month = MONTHS[month as usize - 1];
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{weekday}, {day:02} {month} {year:04} {hour:02}:{minute:02}:{second:02} +0000")
}

/// The finished jobs beyond the history limits, oldest first.
pub(super) fn jobs_over_history_limit(cron_job: &Object, jobs: &[Arc<Object>]) -> Vec<Arc<Object>> {
    let ends = [
        ("Complete", "successfulJobsHistoryLimit"),
        ("Failed", "failedJobsHistoryLimit"),
    ];
    let too_many = |(end, limit): (&str, &str)| {
        let limit = cron_job["spec"][limit].as_int()?.max(0) as usize;
        let mut ended: Vec<_> = jobs
            .iter()
            .filter(|job| facts::finished_condition(job) == Some(end))
            .cloned()
            .collect();
        ended.sort_by_key(|job| {
            (
                to_unix(job["status"]["startTime"].str()).unwrap_or(i64::MAX),
                job.key(),
            )
        });
        ended.truncate(ended.len().saturating_sub(limit));
        Some(ended)
    };
    ends.into_iter().filter_map(too_many).flatten().collect()
}
