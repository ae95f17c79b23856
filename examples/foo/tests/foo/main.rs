//! The controller in a whole cluster, on virtual time.

#![expect(clippy::disallowed_names, reason = "the kind is called Foo")]

mod bugs;

use std::time::Duration;

use foo::Foo;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::{Client, CustomResourceExt as _};
use mizzen_sdk::controller::Context;
use mizzen_testing::{Cluster, Explore, assert_status};

/// Installs the kind, and runs the controller.
async fn start(cluster: &Cluster) {
    cluster
        .apply(&serde_json::to_string(&Foo::crd()).unwrap())
        .await;
    cluster.run("foo", |client: Client| {
        let controller = foo::controller(&Context::new(client).named("foo"));
        controller.run(std::future::pending())
    });
}

/// Whether an event has this reason.
fn has_event(events: &[Event], reason: &str) -> bool {
    let mut reasons = events.iter().filter_map(|event| event.reason.as_deref());
    reasons.any(|other| other == reason)
}

const FOO: &str = include_str!("../../manifests/foo.yaml");

#[tokio::test]
async fn a_foo_gets_its_deployment_and_counts_its_replicas() {
    let cluster = Cluster::start().await;
    start(&cluster).await;
    cluster.apply(FOO).await;
    cluster.advance(Duration::from_secs(10)).await;
    assert_status!(cluster, Foo, "example-foo", {"availableReplicas": 1});

    cluster
        .apply(&FOO.replace("replicas: 1", "replicas: 3"))
        .await;
    cluster.advance(Duration::from_secs(10)).await;
    assert_status!(cluster, Foo, "example-foo", {"availableReplicas": 3});
    assert_eq!(cluster.list::<Pod>().await.len(), 3);
}

#[tokio::test]
async fn the_role_of_the_manifests_suffices() {
    let cluster = Cluster::start().await;
    let definition = serde_json::to_string(&Foo::crd()).unwrap();
    cluster.apply(&definition).await;
    cluster
        .apply(include_str!("../../manifests/role.yaml"))
        .await;
    let client = cluster.client_as("system:serviceaccount:default:foo", &[]);
    cluster.run("foo", move |_| {
        let context = Context::new(client.clone()).named("foo");
        foo::controller(&context).run(std::future::pending())
    });
    cluster.apply(FOO).await;
    cluster.advance(Duration::from_secs(10)).await;
    cluster
        .apply(&FOO.replace("replicas: 1", "replicas: 2"))
        .await;
    cluster.advance(Duration::from_secs(10)).await;
    assert_status!(cluster, Foo, "example-foo", {"availableReplicas": 2});
    let events: Vec<Event> = cluster.list().await;
    assert!(has_event(&events, "Synced"), "{events:?}");
}

#[tokio::test]
async fn a_deployment_of_another_owner_is_left_alone() {
    let cluster = Cluster::start().await;
    start(&cluster).await;
    cluster
        .apply(
            "{apiVersion: apps/v1, kind: Deployment, metadata: {name: example-foo}, spec: {replicas: 0, \
              selector: {matchLabels: {app: other}}, template: {metadata: {labels: {app: other}}, \
              spec: {containers: [{name: c, image: i}]}}}}",
        )
        .await;
    cluster.apply(FOO).await;
    cluster.advance(Duration::from_secs(10)).await;
    let deployment: Deployment = cluster.get("example-foo").await;
    assert_eq!(deployment.spec.unwrap().replicas, Some(0));
    let events: Vec<Event> = cluster.list().await;
    assert!(has_event(&events, "ErrResourceExists"), "{events:?}");
}

#[tokio::test]
async fn the_deployment_is_deleted_with_its_foo() {
    let cluster = Cluster::start().await;
    start(&cluster).await;
    cluster.apply(FOO).await;
    cluster.advance(Duration::from_secs(10)).await;
    let foos: kube::Api<Foo> = kube::Api::default_namespaced(cluster.client());
    foos.delete("example-foo", &Default::default())
        .await
        .unwrap();
    cluster.advance(Duration::from_secs(60)).await;
    assert!(cluster.find::<Deployment>("example-foo").await.is_none());
    assert!(cluster.list::<Pod>().await.is_empty());
}

#[test]
fn a_foo_ends_the_same_whatever_happens_to_the_controller() {
    let loops = ["deployment-controller", "replicaset-controller"];
    Explore::new(Cluster::builder().controllers(loops))
        .seeds(0..20)
        .run(async |cluster: &Cluster| {
            start(cluster).await;
            for n in [1, 3, 2] {
                let foo = FOO.replace("replicas: 1", &format!("replicas: {n}"));
                cluster.apply(&foo).await;
                cluster.advance(Duration::from_secs(6)).await;
            }
        });
}
