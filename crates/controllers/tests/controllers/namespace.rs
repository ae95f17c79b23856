//! The namespace controller.

use std::time::Duration;

use mizzen_sdk::dynamic::{DeleteOptions, PatchType};
use mizzen_sdk::resource::{CONFIG_MAPS, NAMESPACES, PODS};
use mizzen_sdk::{Key, Object, ResourceType};
use mizzen_testing::Cluster;
use mizzen_value::Value;
use mizzen_value::value;

use crate::{settle, start};

const FOOS: ResourceType = ResourceType::namespaced("example.com", "v1", "foos", "Foo");
const API_SERVICES: ResourceType =
    ResourceType::cluster("apiregistration.k8s.io", "v1", "apiservices", "APIService");
/// An API whose server does not answer.
const BROKEN_API: &str = "{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: v1.broken.io}, spec: {group: broken.io, version: v1, groupPriorityMinimum: 100, versionPriority: 15, insecureSkipTLSVerify: true, service: {namespace: default, name: nobody}}}";
const DEFINITION: &str = "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: foos.example.com}, spec: {group: example.com, scope: Namespaced, names: {plural: foos, singular: foo, kind: Foo, listKind: FooList}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}";

async fn cluster() -> Cluster {
    let cluster = start(&["namespace-controller"]).await;
    cluster
        .create("{apiVersion: v1, kind: Namespace, metadata: {name: shop}}")
        .await;
    cluster
}

/// The status, reason and message of a condition of the namespace.
async fn condition(cluster: &Cluster, kind: &str) -> String {
    let namespace = cluster.object(&NAMESPACES, "shop").await;
    let found = namespace["status"]["conditions"]
        .list()
        .iter()
        .find(|condition| condition["type"].str() == kind);
    let text = |condition: &Value| {
        format!(
            "{} {}",
            condition["status"].str(),
            condition["message"].str()
        )
    };
    found.map(text).unwrap_or_default()
}

async fn release(cluster: &Cluster, of: &ResourceType, key: &str) {
    let change = value!({ "metadata": { "finalizers": null } });
    cluster
        .dynamic_client()
        .patch(of, &key.parse().unwrap(), "", PatchType::Merge, &change)
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_content_is_deleted_and_then_the_namespace() {
    let cluster = cluster().await;
    cluster.create(DEFINITION).await;
    settle(&cluster).await;
    cluster
        .create("{apiVersion: example.com/v1, kind: Foo, metadata: {name: f, namespace: shop}}")
        .await;
    for number in 0..30 {
        cluster.create(&format!(
                "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: c{number}, namespace: shop}}}}"
            ))
            .await;
    }
    cluster.create("{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: shop}, spec: {containers: [{name: c, image: i}]}}").await;
    cluster.delete(&NAMESPACES, "shop").await;
    settle(&cluster).await;
    assert_eq!(cluster.find_object(&NAMESPACES, "shop").await, None);
    assert_eq!(cluster.objects(&CONFIG_MAPS, "").await, []);
    assert_eq!(cluster.objects(&FOOS, "").await, []);
}

#[tokio::test(start_paused = true)]
async fn a_remaining_finalizer_is_in_the_condition() {
    let cluster = cluster().await;
    cluster.create(DEFINITION).await;
    settle(&cluster).await;
    cluster.create("{apiVersion: example.com/v1, kind: Foo, metadata: {name: f, namespace: shop, finalizers: [a.io/hold]}}").await;
    cluster.delete(&NAMESPACES, "shop").await;
    settle(&cluster).await;
    let remaining = "True Some resources are remaining: foos.example.com has 1 resource instances";
    assert_eq!(
        condition(&cluster, "NamespaceContentRemaining").await,
        remaining
    );
    let held = "True Some content in the namespace has finalizers remaining: a.io/hold in 1 resource instances";
    assert_eq!(
        condition(&cluster, "NamespaceFinalizersRemaining").await,
        held
    );
    release(&cluster, &FOOS, "shop/f").await;
    cluster.advance(Duration::from_secs(9)).await;
    assert_eq!(cluster.find_object(&NAMESPACES, "shop").await, None);
}

#[tokio::test(start_paused = true)]
async fn pods_are_deleted_first_with_their_grace_period() {
    let cluster = cluster().await;
    cluster.create("{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: shop}, spec: {nodeName: node-1, containers: [{name: c, image: i}]}}").await;
    cluster
        .create("{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: shop}}")
        .await;
    cluster.delete(&NAMESPACES, "shop").await;
    cluster.advance(Duration::from_secs(20)).await;
    assert!(cluster.object(&PODS, "shop/p").await.is_terminating());
    assert!(
        !cluster
            .object(&CONFIG_MAPS, "shop/c")
            .await
            .is_terminating()
    );
    assert_eq!(
        condition(&cluster, "NamespaceContentRemaining").await,
        "False All content successfully removed"
    );
    // No kubelet ends the pod: after its grace period the condition reports it.
    cluster.advance(Duration::from_secs(40)).await;
    let failure = "True Failed to delete all resource types, 1 remaining: unexpected items still remain in namespace: shop for gvr: /v1, Resource=pods";
    assert_eq!(
        condition(&cluster, "NamespaceDeletionContentFailure").await,
        failure
    );
    let now = DeleteOptions {
        grace_seconds: Some(0),
        ..DeleteOptions::default()
    };
    cluster
        .dynamic_client()
        .delete(&PODS, &Key::new("shop", "p"), &now)
        .await
        .unwrap();
    cluster.advance(Duration::from_secs(60)).await;
    assert_eq!(cluster.find_object(&NAMESPACES, "shop").await, None);
}

#[tokio::test(start_paused = true)]
async fn other_finalizers_are_kept() {
    let cluster = cluster().await;
    let mut namespace = cluster.object(&NAMESPACES, "shop").await;
    namespace
        .entry("spec")
        .entry("finalizers")
        .make_list()
        .push("a.io/hold".into());
    cluster
        .dynamic_client()
        .update_at(&NAMESPACES, "finalize", &namespace)
        .await
        .unwrap();
    cluster.delete(&NAMESPACES, "shop").await;
    settle(&cluster).await;
    let mut held: Object = cluster.object(&NAMESPACES, "shop").await;
    assert_eq!(
        held["spec"]["finalizers"],
        Value::List(vec!["a.io/hold".into()])
    );
    held.entry("spec").remove("finalizers");
    cluster
        .dynamic_client()
        .update_at(&NAMESPACES, "finalize", &held)
        .await
        .unwrap();
    assert_eq!(cluster.find_object(&NAMESPACES, "shop").await, None);
}

#[tokio::test(start_paused = true)]
async fn a_discovery_failure_is_in_the_condition() {
    let cluster = cluster().await;
    cluster.server().aggregate().await.unwrap();
    cluster.create(BROKEN_API).await;
    cluster
        .create("{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: shop}}")
        .await;
    cluster.advance(Duration::from_secs(5)).await;
    cluster.delete(&NAMESPACES, "shop").await;
    settle(&cluster).await;
    let failure = "True Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs: broken.io/v1: stale GroupVersion discovery: broken.io/v1";
    assert_eq!(
        condition(&cluster, "NamespaceDeletionDiscoveryFailure").await,
        failure
    );
    // Kinds in discovery are deleted anyway.
    assert_eq!(cluster.objects(&CONFIG_MAPS, "shop").await, []);
    cluster.delete(&API_SERVICES, "v1.broken.io").await;
    cluster.advance(Duration::from_secs(61)).await;
    assert_eq!(cluster.find_object(&NAMESPACES, "shop").await, None);
}
