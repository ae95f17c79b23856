//! Virtual time.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::TryStreamExt as _;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{WatchEvent, WatchParams};
use kube::{Api, Client};
use mizzen_sdk::Key;
use mizzen_sdk::controller::{Action, Context, Controller, Error, typed};
use mizzen_testing::{Cluster, Fault, Step, assert_status};

const DAILY: &str = "
apiVersion: batch/v1
kind: CronJob
metadata: {name: daily}
spec:
  schedule: '@daily'
  successfulJobsHistoryLimit: 1
  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}
";

#[tokio::test]
async fn hours_of_a_cron_job_pass_at_once() {
    let cluster = Cluster::start().await;
    cluster.apply(&DAILY.replace("@daily", "@hourly")).await;
    cluster.advance(Duration::from_secs(6 * 3600)).await;
    let is_job = |step: &Step| step.object.starts_with("jobs/daily-") && step.what == "created";
    assert_eq!(
        cluster.steps().iter().filter(|step| is_job(step)).count(),
        6
    );
    let jobs = cluster.list::<Job>().await;
    assert_eq!(jobs.len(), 1, "the history has one");
    assert_eq!(jobs[0].status.as_ref().unwrap().succeeded, Some(1));
}

#[tokio::test]
async fn a_year_of_a_cron_job_passes_at_once_without_other_loops() {
    let cluster = Cluster::builder()
        .controllers(["cronjob-controller"])
        .scheduler(false)
        .nodes(0)
        .start()
        .await;
    let daily = DAILY.replace(
        "successfulJobsHistoryLimit: 1",
        "concurrencyPolicy: Replace",
    );
    cluster.apply(&daily).await;
    cluster.advance(Duration::from_secs(365 * 24 * 3600)).await;
    let created = cluster
        .steps()
        .into_iter()
        .filter(|step| step.object.starts_with("jobs/daily-") && step.what == "created");
    assert_eq!(created.count(), 365);
    assert!(cluster.find::<CronJob>("daily").await.is_some());
}

#[tokio::test]
async fn settle_waits_for_a_program_of_the_test() {
    let cluster = Cluster::start().await;
    cluster.run("counter", |client| async move {
        let configs: Api<ConfigMap> = Api::default_namespaced(client);
        for n in 0..20 {
            let text = format!(r#"{{"metadata":{{"name":"n-{n}"}}}}"#);
            let config = serde_json::from_str(&text).unwrap();
            configs.create(&Default::default(), &config).await?;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok::<(), kube::Error>(())
    });
    cluster.settle().await;
    assert!(cluster.find::<ConfigMap>("n-19").await.is_some());
}

/// Copies the ConfigMap `source` when its event is seen.
async fn copier(client: Client) -> Result<(), kube::Error> {
    let configs: Api<ConfigMap> = Api::default_namespaced(client);
    let params = WatchParams::default().fields("metadata.name=source");
    let mut events = std::pin::pin!(configs.watch(&params, "0").await?);
    while let Some(event) = events.try_next().await? {
        if let WatchEvent::Added(_) = event {
            let copy = serde_json::from_str(r#"{"metadata":{"name":"copy"}}"#).unwrap();
            configs.create(&Default::default(), &copy).await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn settle_waits_for_an_event_that_is_late_and_for_a_program_that_is_restarted() {
    let cluster = Cluster::start().await;
    let late = Fault::DelayEvent {
        event: 0,
        millis: 20_000,
    };
    cluster.inject("copier", "WATCH configmaps", 1, late);
    cluster.inject("copier", "POST configmaps", 1, Fault::Kill);
    cluster.run("copier", copier);
    cluster
        .apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: source}}")
        .await;
    cluster.settle().await;
    assert!(cluster.find::<ConfigMap>("copy").await.is_some());
    // The program was killed after its write, started again, and could not create what exists.
    let end = "the program ended: ApiError: configmaps \"copy\" already exists";
    assert!(
        cluster.last_steps(3).contains(end),
        "{}",
        cluster.last_steps(9)
    );
}

/// Copies a ConfigMap, but fails until its n-th attempt.
async fn copy_at_attempt(client: Client, n: u32) {
    let context = Context::new(client).named("late");
    let attempts = AtomicU32::new(0);
    let source = typed::<ConfigMap>().labels("role=source");
    let reconcile = move |_: Key, context: Context| {
        let attempt = 1 + attempts.fetch_add(1, Ordering::Relaxed);
        async move {
            if attempt < n {
                return Err(Error::other(format!("attempt {attempt} fails")));
            }
            let configs: Api<ConfigMap> = Api::default_namespaced(context.client());
            let copy = serde_json::from_str(r#"{"metadata":{"name":"copy"}}"#).unwrap();
            configs.create(&Default::default(), &copy).await?;
            Ok(Action::done())
        }
    };
    let controller = Controller::for_kind(&context, source).reconcile(reconcile);
    controller.run(std::future::pending()).await.unwrap();
}

/// A cluster with that controller and a ConfigMap to copy. Returns how many seconds it took to settle, and whether
/// there is a copy.
async fn settle_with_copy_at_attempt(n: u32) -> (i64, bool) {
    let cluster = Cluster::builder().server_only().start().await;
    cluster.run("late", move |client| copy_at_attempt(client, n));
    let source =
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: source, labels: {role: source}}}";
    cluster.apply(source).await;
    let before = cluster.now();
    cluster.settle().await;
    let took = cluster.now() - before;
    (took, cluster.find::<ConfigMap>("copy").await.is_some())
}

#[tokio::test]
async fn settle_waits_for_a_retry_with_a_long_back_off() {
    // The eleventh retry is five seconds after the one before.
    let (took, is_copied) = settle_with_copy_at_attempt(12).await;
    assert!(is_copied && took >= 10, "{took} s");
}

#[test]
fn settle_gives_up_a_controller_that_always_fails() {
    let run = |n| {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().start_paused(true).build().unwrap();
        runtime.block_on(settle_with_copy_at_attempt(n))
    };
    let (took, is_copied) = run(u32::MAX);
    assert!(!is_copied && (10..=31).contains(&took), "{took} s");
    // Its retries are not waited for by a cluster that comes later on the thread.
    assert_eq!(run(1), (2, true));
}

#[tokio::test]
#[should_panic(
    expected = "it did not become true that there are three pods; last seen: 0 pods; the last steps:"
)]
async fn a_condition_says_what_was_seen() {
    let cluster = Cluster::start().await;
    let three = async || match cluster.list::<Pod>().await.len() {
        3 => Ok(()),
        n => Err(format!("{n} pods")),
    };
    cluster.until("there are three pods", three).await;
}

#[tokio::test]
#[should_panic(expected = "the cluster did not settle within 600s; its last steps:")]
async fn a_cluster_that_never_settles_is_reported() {
    let cluster = Cluster::start().await;
    cluster.run("restless", |client| async move {
        let configs: Api<ConfigMap> = Api::default_namespaced(client);
        for n in 0.. {
            let text = format!(r#"{{"metadata":{{"name":"n-{n}"}}}}"#);
            let config = serde_json::from_str(&text).unwrap();
            configs.create(&Default::default(), &config).await.unwrap();
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    });
    cluster.settle().await;
}

#[tokio::test]
async fn an_object_is_awaited_and_returned() {
    let cluster = Cluster::start().await;
    cluster.apply(super::start::WEB).await;
    let ready = cluster
        .until_object("web", |web: &k8s_openapi::api::apps::v1::Deployment| {
            web.status
                .as_ref()
                .is_some_and(|status| status.ready_replicas == Some(3))
        })
        .await;
    assert_eq!(ready.metadata.name.as_deref(), Some("web"));
}

#[tokio::test]
#[should_panic(expected = "Pod lost did not become what was expected; it had ")]
async fn a_condition_that_never_holds_shows_what_was_seen() {
    let cluster = Cluster::builder().nodes(0).start().await;
    cluster
        .apply("{apiVersion: v1, kind: Pod, metadata: {name: lost}, spec: {containers: [{name: c, image: i}]}}")
        .await;
    cluster
        .until_object("lost", |pod: &Pod| {
            pod.status
                .as_ref()
                .and_then(|status| status.phase.as_deref())
                == Some("Running")
        })
        .await;
}

#[tokio::test]
#[should_panic(expected = "status.readyReplicas: expected 4, found 3")]
async fn a_status_that_differs_is_told_field_by_field() {
    let cluster = Cluster::start().await;
    cluster.apply(super::start::WEB).await;
    cluster.settle().await;
    assert_status!(cluster, k8s_openapi::api::apps::v1::Deployment, "web", {"readyReplicas": 4});
}
