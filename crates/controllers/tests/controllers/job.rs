//! The Job controller.

use std::time::Duration;

use mizzen_sdk::dynamic::DeleteOptions;
use mizzen_sdk::resource::{EVENTS, JOBS, PODS};
use mizzen_sdk::{Key, Object};
use mizzen_testing::{Builder, Cluster};
use mizzen_value::time::from_unix;
use mizzen_value::{Value, value};

use crate::{settle, start};

const CONTROLLER: &[&str] = &["job-controller"];

/// Creates the job `j` with these fields and a template.
async fn make(cluster: &Cluster, fields: &str) -> Object {
    let template = "template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}";
    let comma = if fields.is_empty() { "" } else { ", " };
    let job = cluster.create(&format!(
            "{{apiVersion: batch/v1, kind: Job, metadata: {{name: j, namespace: default}}, spec: {{{fields}{comma}{template}}}}}"
        ))
        .await;
    settle(cluster).await;
    job
}

/// Finishes a pod.
async fn end(cluster: &Cluster, pod: &Object, phase: &str, code: i64) {
    let now = from_unix(cluster.now());
    let state = value!({"terminated": {"exitCode": code, "finishedAt": now}});
    let status = value!({"name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": state});
    cluster
        .change_status(&PODS, &pod.key().to_string(), |it| {
            it.set("phase", phase);
            it.set("containerStatuses", vec![status]);
        })
        .await;
}

async fn pods(cluster: &Cluster) -> Vec<Object> {
    cluster.objects(&PODS, "default").await
}

/// Pods that have not finished.
async fn running(cluster: &Cluster) -> Vec<Object> {
    let has_ended = |pod: &Object| matches!(pod["status"]["phase"].str(), "Succeeded" | "Failed");
    pods(cluster)
        .await
        .into_iter()
        .filter(|pod| !has_ended(pod))
        .collect()
}

async fn status(cluster: &Cluster) -> Value {
    cluster.object(&JOBS, "default/j").await["status"].clone()
}

/// The types of conditions with their reasons.
async fn conditions(cluster: &Cluster) -> Vec<String> {
    let status = status(cluster).await;
    let conditions = status["conditions"].list().iter();
    conditions
        .map(|it| format!("{} {}", it["type"].str(), it["reason"].str()))
        .collect()
}

async fn pass(cluster: &Cluster, seconds: u64) {
    cluster.advance(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn a_job_is_complete_when_its_pods_have_succeeded() {
    let cluster = start(CONTROLLER).await;
    make(&cluster, "completions: 2").await;
    for n in 1..=2 {
        let pod = running(&cluster).await.remove(0);
        assert!(pod.has_finalizer("batch.kubernetes.io/job-tracking"));
        assert_eq!(
            (
                status(&cluster).await["active"].int(),
                pods(&cluster).await.len()
            ),
            (1, n)
        );
        end(&cluster, &pod, "Succeeded", 0).await;
        pass(&cluster, 3).await;
    }
    let status = status(&cluster).await;
    assert_eq!(
        conditions(&cluster).await,
        [
            "SuccessCriteriaMet CompletionsReached",
            "Complete CompletionsReached"
        ]
    );
    assert_eq!(
        (status["succeeded"].int(), &status["active"]),
        (2, &Value::Null)
    );
    assert_eq!(status["uncountedTerminatedPods"], Value::object());
    assert!(!status["completionTime"].is_null());
    assert!(
        pods(&cluster)
            .await
            .iter()
            .all(|pod| pod["metadata"]["finalizers"].is_null())
    );
}

#[tokio::test(start_paused = true)]
async fn each_failure_waits_twice_as_long_until_the_limit() {
    let cluster = start(CONTROLLER).await;
    make(&cluster, "backoffLimit: 2").await;
    for (wait, n_pods) in [(10, 1), (20, 2)] {
        end(&cluster, &running(&cluster).await[0], "Failed", 1).await;
        pass(&cluster, wait - 2).await;
        assert_eq!(pods(&cluster).await.len(), n_pods);
        pass(&cluster, 4).await;
        assert_eq!(pods(&cluster).await.len(), n_pods + 1);
    }
    end(&cluster, &running(&cluster).await[0], "Failed", 1).await;
    pass(&cluster, 3).await;
    assert_eq!(
        conditions(&cluster).await,
        [
            "FailureTarget BackoffLimitExceeded",
            "Failed BackoffLimitExceeded"
        ]
    );
    assert_eq!(status(&cluster).await["failed"].int(), 3);
    pass(&cluster, 100).await;
    assert_eq!(pods(&cluster).await.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_job_fails_at_its_deadline() {
    let cluster = start(CONTROLLER).await;
    make(
        &cluster,
        "activeDeadlineSeconds: 30, parallelism: 2, completions: 2",
    )
    .await;
    pass(&cluster, 28).await;
    assert_eq!(pods(&cluster).await.len(), 2);
    pass(&cluster, 4).await;
    assert_eq!(
        conditions(&cluster).await,
        ["FailureTarget DeadlineExceeded", "Failed DeadlineExceeded"]
    );
    assert_eq!(
        (
            status(&cluster).await["failed"].int(),
            pods(&cluster).await.len()
        ),
        (2, 0)
    );
    let reasons = cluster.objects(&EVENTS, "default").await;
    let n_of = |reason: &str| {
        reasons
            .iter()
            .filter(|event| event["reason"].str() == reason)
            .count()
    };
    assert_eq!(
        (
            n_of("SuccessfulCreate"),
            n_of("SuccessfulDelete"),
            n_of("DeadlineExceeded")
        ),
        (2, 2, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn a_suspended_job_has_no_pods_until_it_is_resumed() {
    let cluster = start(CONTROLLER).await;
    make(&cluster, "").await;
    cluster
        .change(&JOBS, "default/j", |job| {
            job.entry("spec").set("suspend", true)
        })
        .await;
    pass(&cluster, 2).await;
    assert_eq!(
        (pods(&cluster).await.len(), conditions(&cluster).await),
        (0, vec!["Suspended JobSuspended".into()])
    );
    assert!(status(&cluster).await["startTime"].is_null());
    cluster
        .change(&JOBS, "default/j", |job| {
            job.entry("spec").set("suspend", false)
        })
        .await;
    pass(&cluster, 2).await;
    assert_eq!(
        (pods(&cluster).await.len(), conditions(&cluster).await),
        (1, vec!["Suspended JobResumed".into()])
    );
    assert_eq!(status(&cluster).await["failed"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn each_index_has_a_pod_of_its_own() {
    let cluster = start(CONTROLLER).await;
    make(
        &cluster,
        "completionMode: Indexed, completions: 3, parallelism: 3, backoffLimitPerIndex: 1",
    )
    .await;
    let name = "batch.kubernetes.io/job-completion-index";
    let mut all = pods(&cluster).await;
    all.sort_by_key(|pod| pod.label(name).map(String::from));
    let hosts: Vec<&str> = all
        .iter()
        .map(|pod| pod["spec"]["hostname"].str())
        .collect();
    assert_eq!(hosts, ["j-0", "j-1", "j-2"]);
    assert!(all[1].name().starts_with("j-1-"));
    end(&cluster, &all[0], "Succeeded", 0).await;
    end(&cluster, &all[1], "Failed", 1).await;
    end(&cluster, &all[2], "Succeeded", 0).await;
    pass(&cluster, 15).await;
    assert_eq!(status(&cluster).await["completedIndexes"].str(), "0,2");
    let again = running(&cluster).await;
    let count = again[0].annotation("batch.kubernetes.io/job-index-failure-count");
    assert_eq!(
        (again.len(), again[0].label(name), count),
        (1, Some("1"), Some("1"))
    );
    end(&cluster, &again[0], "Failed", 1).await;
    pass(&cluster, 3).await;
    assert_eq!(
        conditions(&cluster).await,
        ["FailureTarget FailedIndexes", "Failed FailedIndexes"]
    );
    assert_eq!(
        (
            status(&cluster).await["failedIndexes"].str(),
            status(&cluster).await["failed"].int()
        ),
        ("1", 2)
    );
}

#[tokio::test(start_paused = true)]
async fn a_finished_pod_is_counted_once_across_crashes() {
    for was_noted in [false, true] {
        for was_released in [false, true] {
            if was_released && !was_noted {
                continue;
            }
            let cluster = start(CONTROLLER).await;
            make(&cluster, "completions: 2").await;
            cluster.restart_with(Builder::server_only).await;
            let pod = running(&cluster).await.remove(0);
            end(&cluster, &pod, "Succeeded", 0).await;
            if was_noted {
                let noted = value!({"succeeded": [(pod.uid())]});
                cluster
                    .change_status(&JOBS, "default/j", |it| {
                        it.set("uncountedTerminatedPods", noted)
                    })
                    .await;
            }
            if was_released {
                let release = |pod: &mut Object| drop(pod.entry("metadata").remove("finalizers"));
                cluster.change(&PODS, &pod.key().to_string(), release).await;
            }
            cluster
                .restart_with(|builder| builder.controllers(CONTROLLER))
                .await;
            pass(&cluster, 5).await;
            let status = status(&cluster).await;
            assert_eq!(
                (status["succeeded"].int(), status["active"].int()),
                (1, 1),
                "{was_noted} {was_released}"
            );
            assert_eq!(status["uncountedTerminatedPods"], Value::object());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_deleted_job_lose_their_finalizer() {
    let cluster = start(CONTROLLER).await;
    make(&cluster, "").await;
    let options = DeleteOptions {
        propagation: Some("Background"),
        ..DeleteOptions::default()
    };
    cluster
        .dynamic_client()
        .delete(&JOBS, &Key::new("default", "j"), &options)
        .await
        .unwrap();
    pass(&cluster, 2).await;
    assert!(cluster.find_object(&JOBS, "default/j").await.is_none());
    assert!(
        pods(&cluster)
            .await
            .iter()
            .all(|pod| pod["metadata"]["finalizers"].is_null())
    );
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_finished_job_lose_their_finalizer() {
    let cluster = start(CONTROLLER).await;
    make(&cluster, "").await;
    cluster.restart_with(Builder::server_only).await;
    let condition = |kind: &str| value!({"type": kind, "status": "True", "reason": "R"});
    let conditions = ["FailureTarget", "Failed"].map(condition).to_vec();
    cluster
        .change_status(&JOBS, "default/j", |status| {
            ["active", "ready", "terminating"]
                .iter()
                .for_each(|field| drop(status.remove(field)));
            status.set("conditions", conditions);
        })
        .await;
    cluster
        .restart_with(|builder| builder.controllers(CONTROLLER))
        .await;
    pass(&cluster, 2).await;
    assert_eq!(pods(&cluster).await.len(), 1);
    assert!(pods(&cluster).await[0]["metadata"]["finalizers"].is_null());
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_exit_code_is_forbidden_fails_the_job() {
    let cluster = start(CONTROLLER).await;
    let rules = "[{action: Ignore, onExitCodes: {operator: In, values: [7]}}, \
                  {action: FailJob, onExitCodes: {operator: In, values: [42]}}]";
    make(
        &cluster,
        &format!("backoffLimit: 0, podFailurePolicy: {{rules: {rules}}}"),
    )
    .await;
    end(&cluster, &running(&cluster).await[0], "Failed", 7).await;
    pass(&cluster, 15).await;
    assert_eq!(
        (
            conditions(&cluster).await.len(),
            &status(&cluster).await["failed"]
        ),
        (0, &Value::Null)
    );
    let pod = running(&cluster).await.remove(0);
    end(&cluster, &pod, "Failed", 42).await;
    pass(&cluster, 3).await;
    assert_eq!(
        conditions(&cluster).await,
        ["FailureTarget PodFailurePolicy", "Failed PodFailurePolicy"]
    );
    let message = format!(
        "Container c for pod default/{} failed with exit code 42 matching FailJob rule at index 1",
        pod.name()
    );
    assert_eq!(
        status(&cluster).await["conditions"][1]["message"].str(),
        message
    );
}

#[tokio::test(start_paused = true)]
async fn a_terminating_pod_is_replaced_at_once_or_when_it_is_gone() {
    for (policy, n_before) in [("TerminatingOrFailed", 2), ("Failed", 1)] {
        let cluster = start(CONTROLLER).await;
        make(&cluster, &format!("podReplacementPolicy: {policy}")).await;
        let pod = pods(&cluster).await.remove(0);
        let binding =
            value!({"target": {"kind": "Node", "name": "n"}, "metadata": {"name": (pod.name())}});
        cluster
            .dynamic_client()
            .create_at(&PODS, &pod.key(), "binding", &binding)
            .await
            .unwrap();
        cluster.delete(&PODS, &pod.key().to_string()).await;
        pass(&cluster, 15).await;
        assert_eq!(pods(&cluster).await.len(), n_before, "{policy}");
        assert_eq!(status(&cluster).await["terminating"].int(), 1, "{policy}");
        end(&cluster, &pod, "Failed", 1).await;
        let now = DeleteOptions {
            grace_seconds: Some(0),
            ..DeleteOptions::default()
        };
        cluster
            .dynamic_client()
            .delete(&PODS, &pod.key(), &now)
            .await
            .unwrap();
        pass(&cluster, 15).await;
        let status = status(&cluster).await;
        assert_eq!(
            (status["failed"].int(), status["active"].int()),
            (1, 1),
            "{policy}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_of_another_controller_is_left_alone() {
    let cluster = start(CONTROLLER).await;
    make(&cluster, "managedBy: example.com/mine").await;
    pass(&cluster, 5).await;
    assert_eq!(
        (pods(&cluster).await.len(), status(&cluster).await),
        (0, Value::object())
    );
}

#[tokio::test(start_paused = true)]
async fn an_orphan_that_matches_is_adopted_and_released_when_it_no_longer_does() {
    let cluster = start(CONTROLLER).await;
    let spec = "restartPolicy: Never, containers: [{name: c, image: i}]";
    cluster.create(&format!("{{apiVersion: v1, kind: Pod, metadata: {{name: p, namespace: default, labels: {{a: b}}}}, spec: {{{spec}}}}}"))
        .await;
    let template = format!("{{metadata: {{labels: {{a: b}}}}, spec: {{{spec}}}}}");
    let job = cluster.create(&format!(
            "{{apiVersion: batch/v1, kind: Job, metadata: {{name: j, namespace: default}}, \
             spec: {{manualSelector: true, selector: {{matchLabels: {{a: b}}}}, template: {template}}}}}"
        ))
        .await;
    pass(&cluster, 2).await;
    let pod = cluster.object(&PODS, "default/p").await;
    assert!(
        pod.is_controlled_by(job.uid()) && pod.has_finalizer("batch.kubernetes.io/job-tracking")
    );
    assert_eq!(pods(&cluster).await.len(), 1);
    cluster
        .change(&PODS, "default/p", |pod| {
            pod.entry("metadata").entry("labels").set("a", "c")
        })
        .await;
    pass(&cluster, 3).await;
    let pod = cluster.object(&PODS, "default/p").await;
    assert!(pod.controller().is_none() && pod["metadata"]["finalizers"].is_null());
    assert_eq!(pods(&cluster).await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_finished_job_waits_for_its_last_pod() {
    let cluster = start(CONTROLLER).await;
    make(&cluster, "activeDeadlineSeconds: 10").await;
    let pod = pods(&cluster).await.remove(0);
    let binding =
        value!({"target": {"kind": "Node", "name": "n"}, "metadata": {"name": (pod.name())}});
    cluster
        .dynamic_client()
        .create_at(&PODS, &pod.key(), "binding", &binding)
        .await
        .unwrap();
    pass(&cluster, 15).await;
    assert_eq!(
        conditions(&cluster).await,
        ["FailureTarget DeadlineExceeded"]
    );
    assert_eq!(status(&cluster).await["terminating"].int(), 1);
    let now = DeleteOptions {
        grace_seconds: Some(0),
        ..DeleteOptions::default()
    };
    cluster
        .dynamic_client()
        .delete(&PODS, &pod.key(), &now)
        .await
        .unwrap();
    pass(&cluster, 3).await;
    assert_eq!(
        conditions(&cluster).await,
        ["FailureTarget DeadlineExceeded", "Failed DeadlineExceeded"]
    );
}
