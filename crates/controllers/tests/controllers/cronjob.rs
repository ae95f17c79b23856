//! The CronJob controller. Tests start on 2023-11-14 at 22:13:20.

use std::time::Duration;

use mizzen_sdk::Object;
use mizzen_sdk::resource::{CRON_JOBS, EVENTS, JOBS};
use mizzen_testing::{Builder, Cluster};
use mizzen_value::{Value, value};

use crate::{settle, start};

const CONTROLLER: &[&str] = &["cronjob-controller"];

/// Creates the CronJob `c` with these fields and a template.
async fn make(cluster: &Cluster, fields: &str) -> Object {
    let template =
        "{spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}";
    let cron_job = cluster
        .create(&format!(
            "{{apiVersion: batch/v1, kind: CronJob, metadata: {{name: c, namespace: default}}, \
             spec: {{{fields}, jobTemplate: {template}}}}}"
        ))
        .await;
    settle(cluster).await;
    cron_job
}

/// Finishes a job.
async fn end(cluster: &Cluster, job: &Object, succeeded: bool) {
    let conditions = match succeeded {
        true => ["SuccessCriteriaMet", "Complete"],
        false => ["FailureTarget", "Failed"],
    };
    let time = mizzen_value::time::from_unix(cluster.now());
    let condition = |kind: &str| value!({"type": kind, "status": "True", "lastTransitionTime": (time.as_str())});
    cluster
        .change_status(&JOBS, &job.key().to_string(), |status| {
            status.set("startTime", time.as_str());
            status.set("conditions", conditions.map(condition).to_vec());
            if succeeded {
                status.set("completionTime", time.as_str());
            }
        })
        .await;
    settle(cluster).await;
}

async fn names(cluster: &Cluster) -> Vec<String> {
    cluster
        .objects(&JOBS, "default")
        .await
        .iter()
        .map(|job| job.name().to_string())
        .collect()
}

async fn status(cluster: &Cluster) -> Value {
    cluster.object(&CRON_JOBS, "default/c").await["status"].clone()
}

async fn pass(cluster: &Cluster, seconds: u64) {
    cluster.advance(Duration::from_secs(seconds)).await;
}

async fn reasons(cluster: &Cluster) -> Vec<String> {
    let events = cluster.objects(&EVENTS, "default").await;
    let mut reasons: Vec<String> = events
        .iter()
        .map(|event| event["reason"].str().to_string())
        .collect();
    reasons.sort();
    reasons.dedup();
    reasons
}

#[tokio::test(start_paused = true)]
async fn a_job_starts_on_time_and_its_end_is_noted() {
    let cluster = start(CONTROLLER).await;
    make(&cluster, "schedule: '*/5 * * * *'").await;
    pass(&cluster, 95).await;
    assert!(names(&cluster).await.is_empty());
    pass(&cluster, 10).await;
    assert_eq!(names(&cluster).await, ["c-28333335"]);
    let job = cluster.object(&JOBS, "default/c-28333335").await;
    let time = job.annotation("batch.kubernetes.io/cronjob-scheduled-timestamp");
    assert_eq!(time, Some("2023-11-14T22:15:00Z"));
    let running = status(&cluster).await;
    assert_eq!(running["lastScheduleTime"].str(), "2023-11-14T22:15:00Z");
    assert_eq!(running["active"][0]["uid"].str(), job.uid());
    end(&cluster, &job, true).await;
    let done = status(&cluster).await;
    assert!(done["active"].is_null() && !done["lastSuccessfulTime"].is_null());
    assert_eq!(
        reasons(&cluster).await,
        ["SawCompletedJob", "SuccessfulCreate"]
    );
    pass(&cluster, 300).await;
    assert_eq!(names(&cluster).await, ["c-28333335", "c-28333340"]);
}

#[tokio::test(start_paused = true)]
async fn the_concurrency_policy_forbids_replaces_or_allows() {
    for (policy, expect) in [
        ("Forbid", vec!["c-28333334"]),
        ("Replace", vec!["c-28333335"]),
        ("Allow", vec!["c-28333334", "c-28333335"]),
    ] {
        let cluster = start(CONTROLLER).await;
        make(
            &cluster,
            &format!("schedule: '* * * * *', concurrencyPolicy: {policy}"),
        )
        .await;
        pass(&cluster, 105).await;
        assert_eq!(names(&cluster).await, expect, "{policy}");
        assert_eq!(
            status(&cluster).await["active"].list().len(),
            expect.len(),
            "{policy}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn jobs_over_the_history_limit_are_deleted() {
    let cluster = start(CONTROLLER).await;
    make(
        &cluster,
        "schedule: '* * * * *', successfulJobsHistoryLimit: 1, failedJobsHistoryLimit: 0",
    )
    .await;
    for _ in 0..3 {
        pass(&cluster, 60).await;
        let running = status(&cluster).await["active"][0]["name"]
            .str()
            .to_string();
        end(
            &cluster,
            &cluster.object(&JOBS, &format!("default/{running}")).await,
            true,
        )
        .await;
    }
    assert_eq!(names(&cluster).await, ["c-28333336"]);
    pass(&cluster, 60).await;
    end(
        &cluster,
        &cluster.object(&JOBS, "default/c-28333337").await,
        false,
    )
    .await;
    assert_eq!(names(&cluster).await, ["c-28333336"]);
}

#[tokio::test(start_paused = true)]
async fn a_crash_after_a_start_does_not_start_twice() {
    let cluster = start(CONTROLLER).await;
    make(&cluster, "schedule: '*/5 * * * *'").await;
    pass(&cluster, 105).await;
    cluster.restart_with(Builder::server_only).await;
    cluster
        .change_status(&CRON_JOBS, "default/c", |status| *status = Value::object())
        .await;
    cluster
        .restart_with(|builder| builder.controllers(CONTROLLER))
        .await;
    settle(&cluster).await;
    assert_eq!(names(&cluster).await, ["c-28333335"]);
    assert_eq!(status(&cluster).await["active"].list().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_new_schedule_counts_from_its_next_time() {
    let cluster = start(CONTROLLER).await;
    make(&cluster, "schedule: '0 0 1 1 *'").await;
    pass(&cluster, 600).await;
    cluster
        .change(&CRON_JOBS, "default/c", |it| {
            it.entry("spec").set("schedule", "*/20 * * * *")
        })
        .await;
    pass(&cluster, 60).await;
    assert!(names(&cluster).await.is_empty());
    pass(&cluster, 960).await;
    assert_eq!(names(&cluster).await, ["c-28333360"]);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_missing_is_no_longer_active() {
    let cluster = start(CONTROLLER).await;
    make(&cluster, "schedule: '*/5 * * * *'").await;
    pass(&cluster, 105).await;
    cluster.delete(&JOBS, "default/c-28333335").await;
    cluster
        .change(&JOBS, "default/c-28333335", |job| {
            drop(job.entry("metadata").remove("finalizers"))
        })
        .await;
    settle(&cluster).await;
    assert!(status(&cluster).await["active"].is_null());
    assert!(reasons(&cluster).await.contains(&"MissingJob".to_string()));
}
