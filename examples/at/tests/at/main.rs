//! The controller in a whole cluster, on virtual time.

mod bugs;

use std::time::Duration;

use at::{At, Phase};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::{Client, CustomResourceExt as _};
use mizzen_sdk::controller::{Context, ContextOptions};
use mizzen_testing::{Builder, Cluster, Explore, assert_events};

/// A cluster that has the kind, and runs the controller.
async fn start(cluster: &Cluster) {
    cluster
        .apply(&serde_json::to_string(&At::crd()).unwrap())
        .await;
    let clock = cluster.wall_clock();
    cluster.run("at", move |client: Client| {
        let options = ContextOptions {
            clock: clock.clone(),
            ..ContextOptions::new(std::sync::Arc::new(move |_| client.clone()))
        };
        let controller = at::controller(&Context::with(options).named("at"));
        controller.run(std::future::pending())
    });
}

/// Creates an At that is due after this time.
async fn create_at(cluster: &Cluster, name: &str, after: Duration) {
    let now = cluster.wall_clock()();
    let due: Timestamp = now.checked_add(after).unwrap();
    let schedule = due.strftime("%Y-%m-%dT%H:%M:%SZ");
    cluster
        .apply(&format!(
            "{{apiVersion: cnat.programming-kubernetes.info/v1alpha1, kind: At, metadata: {{name: {name}}}, \
              spec: {{schedule: '{schedule}', command: echo YAY}}}}"
        ))
        .await;
}

async fn phase(cluster: &Cluster, name: &str) -> Option<Phase> {
    let at: At = cluster.get(name).await;
    at.status.map(|status| status.phase)
}

#[tokio::test]
async fn a_command_runs_when_its_time_has_come() {
    let cluster = Cluster::start().await;
    start(&cluster).await;
    create_at(&cluster, "party", Duration::from_secs(3600)).await;
    cluster.settle().await;
    assert_eq!(phase(&cluster, "party").await, Some(Phase::Pending));
    assert!(cluster.find::<Pod>("party-pod").await.is_none());

    cluster.advance(Duration::from_secs(3660)).await;
    assert_eq!(phase(&cluster, "party").await, Some(Phase::Done));
    let pod: Pod = cluster.get("party-pod").await;
    assert_eq!(pod.status.unwrap().phase.as_deref(), Some("Succeeded"));
    assert_events!(cluster, "party", ["Started"]);
    let phases: Vec<_> = cluster.history::<At>("party").await;
    let mut phases: Vec<_> = phases.iter().filter_map(|at| at.status.as_ref()).collect();
    phases.dedup_by_key(|status| status.phase);
    let phases: Vec<Phase> = phases.iter().map(|status| status.phase).collect();
    assert_eq!(phases, [Phase::Pending, Phase::Running, Phase::Done]);
}

#[tokio::test]
async fn the_role_of_the_manifests_suffices() {
    let cluster = Cluster::start().await;
    let definition = serde_json::to_string(&At::crd()).unwrap();
    cluster.apply(&definition).await;
    cluster
        .apply(include_str!("../../config/rbac/role.yaml"))
        .await;
    cluster
        .apply(include_str!("../../config/rbac/role_binding.yaml"))
        .await;
    let client = cluster.client_as("system:serviceaccount:at-system:at", &[]);
    cluster.run("at", move |_| {
        let context = Context::new(client.clone()).named("at");
        at::controller(&context).run(std::future::pending())
    });
    cluster.apply(include_str!("../../manifests/at.yaml")).await;
    cluster.advance(Duration::from_secs(60)).await;
    assert_eq!(phase(&cluster, "example-at").await, Some(Phase::Done));
    assert_events!(cluster, "example-at", ["Started"]);
}

#[test]
fn the_manifests_are_current() {
    let config = concat!(env!("CARGO_MANIFEST_DIR"), "/config");
    // `mizzen generate` in `examples/at`, without the binary.
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        at::manifests().write(config).unwrap();
    }
    if let Err(error) = at::manifests().check(config) {
        panic!("{error}");
    }
}

#[tokio::test]
async fn a_wrong_time_is_reported_and_not_retried() {
    let cluster = Cluster::start().await;
    start(&cluster).await;
    cluster
        .apply(
            "{apiVersion: cnat.programming-kubernetes.info/v1alpha1, kind: At, metadata: {name: odd}, \
              spec: {schedule: tomorrow, command: echo}}",
        )
        .await;
    cluster.advance(Duration::from_secs(600)).await;
    assert_eq!(phase(&cluster, "odd").await, None);
    assert_events!(cluster, "odd", ["AtFailed"]);
}

#[tokio::test]
async fn the_pod_is_deleted_with_its_at() {
    let cluster = Cluster::start().await;
    start(&cluster).await;
    create_at(&cluster, "party", Duration::ZERO).await;
    cluster.settle().await;
    assert!(cluster.find::<Pod>("party-pod").await.is_some());
    let ats: kube::Api<At> = kube::Api::default_namespaced(cluster.client());
    ats.delete("party", &Default::default()).await.unwrap();
    cluster.advance(Duration::from_secs(60)).await;
    assert!(cluster.find::<Pod>("party-pod").await.is_none());
}

/// The scheduler and a node run pods, once the node has no taint; no other loop is needed.
fn running_pods() -> Builder {
    Cluster::builder().controllers(["node-lifecycle-controller"])
}

#[test]
fn a_command_runs_once_whatever_happens_to_the_controller() {
    Explore::new(running_pods())
        .seeds(0..20)
        .run(async |cluster: &Cluster| {
            start(cluster).await;
            for (name, seconds) in [("breakfast", 4), ("lunch", 8), ("dinner", 12)] {
                create_at(cluster, name, Duration::from_secs(seconds)).await;
            }
            cluster.advance(Duration::from_secs(20)).await;
        });
}
