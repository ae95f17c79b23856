//! The resource quota controller.

use std::time::Duration;

use mizzen_sdk::resource::{CONFIG_MAPS, PODS, RESOURCE_QUOTAS, SERVICES};
use mizzen_testing::Cluster;
use mizzen_value::json;

use crate::{settle, start};

const DEFINITION: &str = "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: foos.example.com}, spec: {group: example.com, scope: Namespaced, names: {plural: foos, singular: foo, kind: Foo, listKind: FooList}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}";

/// A cluster in which `default` has a quota with these limits.
async fn cluster(hard: &str, more: &str) -> Cluster {
    let cluster = start(&["resourcequota-controller"]).await;
    let quota = format!(
        "{{apiVersion: v1, kind: ResourceQuota, metadata: {{name: q, namespace: default}}, spec: {{hard: {hard}{more}}}}}"
    );
    cluster.create(&quota).await;
    settle(&cluster).await;
    cluster
}

async fn used(cluster: &Cluster) -> String {
    settle(cluster).await;
    json::to_string(&cluster.object(&RESOURCE_QUOTAS, "default/q").await["status"]["used"])
}

async fn pod(cluster: &Cluster, name: &str, more: &str) {
    let resources = "{requests: {cpu: 500m}}";
    let spec = format!("{{containers: [{{name: c, image: i, resources: {resources}}}]{more}}}");
    cluster.create(&format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: default}}, spec: {spec}}}"
        ))
        .await;
}

async fn config(cluster: &Cluster, name: &str) {
    cluster
        .create(&format!(
            "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}, namespace: default}}}}"
        ))
        .await;
}

#[tokio::test(start_paused = true)]
async fn deleted_objects_release_their_usage() {
    let cluster = cluster("{pods: 2, requests.cpu: 1, configmaps: 5}", "").await;
    assert_eq!(
        used(&cluster).await,
        r#"{"configmaps":"0","pods":"0","requests.cpu":"0"}"#
    );
    pod(&cluster, "a", "").await;
    pod(&cluster, "b", "").await;
    config(&cluster, "x").await;
    assert_eq!(
        used(&cluster).await,
        r#"{"configmaps":"1","pods":"2","requests.cpu":"1"}"#
    );
    cluster.delete(&PODS, "default/a").await;
    cluster.delete(&CONFIG_MAPS, "default/x").await;
    assert_eq!(
        used(&cluster).await,
        r#"{"configmaps":"0","pods":"1","requests.cpu":"500m"}"#
    );
}

#[tokio::test(start_paused = true)]
async fn a_finished_pod_uses_nothing() {
    let cluster = cluster("{pods: 2, requests.cpu: 1}", "").await;
    pod(&cluster, "a", "").await;
    cluster
        .change_status(&PODS, "default/a", |status| {
            status.set("phase", "Succeeded")
        })
        .await;
    assert_eq!(used(&cluster).await, r#"{"pods":"0","requests.cpu":"0"}"#);
}

#[tokio::test(start_paused = true)]
async fn objects_from_before_the_quota_count() {
    let cluster = start(&[]).await;
    for name in ["a", "b", "c"] {
        config(&cluster, name).await;
    }
    cluster.create("{apiVersion: v1, kind: ResourceQuota, metadata: {name: q, namespace: default}, spec: {hard: {configmaps: 1, count/resourcequotas: 2}}}").await;
    cluster
        .restart_with(|builder| builder.controllers(["resourcequota-controller"]))
        .await;
    assert_eq!(
        used(&cluster).await,
        r#"{"configmaps":"3","count/resourcequotas":"1"}"#
    );
}

#[tokio::test(start_paused = true)]
async fn a_service_that_becomes_another_takes_something_else() {
    let cluster = cluster("{services: 2, services.nodeports: 2}", "").await;
    cluster.create("{apiVersion: v1, kind: Service, metadata: {name: s, namespace: default}, spec: {type: NodePort, ports: [{port: 80}]}}").await;
    assert_eq!(
        used(&cluster).await,
        r#"{"services":"1","services.nodeports":"1"}"#
    );
    let change = |service: &mut mizzen_sdk::Object| {
        service.entry("spec").set("type", "ClusterIP");
        service.entry("spec").entry("ports").list_mut()[0].remove("nodePort");
    };
    cluster.change(&SERVICES, "default/s", change).await;
    assert_eq!(
        used(&cluster).await,
        r#"{"services":"1","services.nodeports":"0"}"#
    );
}

#[tokio::test(start_paused = true)]
async fn only_pods_in_scope_count() {
    let cluster = cluster("{pods: 5}", ", scopes: [Terminating]").await;
    pod(&cluster, "a", "").await;
    pod(&cluster, "b", ", activeDeadlineSeconds: 60").await;
    assert_eq!(used(&cluster).await, r#"{"pods":"1"}"#);
    // The usage that admission charged is recalculated too.
    cluster.advance(Duration::from_secs(600)).await;
    assert_eq!(used(&cluster).await, r#"{"pods":"1"}"#);
}

#[tokio::test(start_paused = true)]
async fn kinds_that_are_served_later_are_counted() {
    let cluster = cluster("{count/foos.example.com: 2}", "").await;
    assert_eq!(used(&cluster).await, "null");
    cluster.create(DEFINITION).await;
    settle(&cluster).await;
    assert_eq!(used(&cluster).await, r#"{"count/foos.example.com":"0"}"#);
    cluster
        .create("{apiVersion: example.com/v1, kind: Foo, metadata: {name: f, namespace: default}}")
        .await;
    assert_eq!(used(&cluster).await, r#"{"count/foos.example.com":"1"}"#);
}
