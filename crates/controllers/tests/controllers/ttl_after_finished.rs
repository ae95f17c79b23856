//! The TTL-after-finished controller.

use std::time::Duration;

use mizzen_sdk::resource::JOBS;
use mizzen_testing::Cluster;
use mizzen_value::time::from_unix;
use mizzen_value::value;

use crate::{settle, start};

/// Creates the job `j`, which has just failed.
async fn failed(cluster: &Cluster) {
    let template = "{spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}";
    cluster.create(&format!(
            "{{apiVersion: batch/v1, kind: Job, metadata: {{name: j, namespace: default}}, spec: {{template: {template}}}}}"
        ))
        .await;
    let time = from_unix(cluster.now());
    let condition = |kind: &str| value!({"type": kind, "status": "True", "lastTransitionTime": (time.as_str())});
    let conditions = ["FailureTarget", "Failed"].map(condition).to_vec();
    cluster
        .change_status(&JOBS, "default/j", |status| {
            status.set("startTime", time.as_str());
            status.set("conditions", conditions);
        })
        .await;
}

/// Whether the job is not being deleted. The garbage collector does not run here.
async fn is_kept(cluster: &Cluster) -> bool {
    cluster
        .find_object(&JOBS, "default/j")
        .await
        .is_some_and(|job| !job.is_terminating())
}

#[tokio::test(start_paused = true)]
async fn a_job_is_deleted_after_its_ttl_even_if_it_was_set_later() {
    let cluster = start(&["ttl-after-finished-controller"]).await;
    failed(&cluster).await;
    cluster.advance(Duration::from_secs(30)).await;
    assert!(is_kept(&cluster).await);
    cluster
        .change(&JOBS, "default/j", |job| {
            job.entry("spec").set("ttlSecondsAfterFinished", 60)
        })
        .await;
    cluster.advance(Duration::from_secs(28)).await;
    assert!(is_kept(&cluster).await);
    cluster.advance(Duration::from_secs(4)).await;
    assert!(!is_kept(&cluster).await);
}

#[tokio::test(start_paused = true)]
async fn a_job_with_an_extended_ttl_is_kept() {
    let cluster = start(&["ttl-after-finished-controller"]).await;
    failed(&cluster).await;
    for seconds in [60, 600] {
        cluster
            .change(&JOBS, "default/j", |job| {
                job.entry("spec").set("ttlSecondsAfterFinished", seconds)
            })
            .await;
        settle(&cluster).await;
    }
    cluster.advance(Duration::from_secs(500)).await;
    assert!(is_kept(&cluster).await);
}
