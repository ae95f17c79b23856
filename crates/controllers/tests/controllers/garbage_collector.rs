//! The garbage collector.

use std::time::Duration;

use mizzen_sdk::dynamic::DeleteOptions;
use mizzen_sdk::resource::{CLUSTER_ROLES, CONFIG_MAPS, EVENTS};
use mizzen_sdk::{Object, ResourceType};
use mizzen_testing::Cluster;
use mizzen_value::json;

use crate::{read, settle, start};

const FOOS: ResourceType = ResourceType::namespaced("example.com", "v1", "foos", "Foo");
const DEFINITION: &str = "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: foos.example.com}, spec: {group: example.com, scope: Namespaced, names: {plural: foos, singular: foo, kind: Foo, listKind: FooList}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}";

async fn cluster() -> Cluster {
    start(&["garbage-collector-controller"]).await
}

/// An owner reference.
fn reference(owner: &Object, more: &str) -> String {
    let (version, kind) = (owner["apiVersion"].str(), owner["kind"].str());
    format!(
        "{{apiVersion: {version}, kind: {kind}, name: {}, uid: {}{more}}}",
        owner.name(),
        owner.uid()
    )
}

/// A ConfigMap in `default` with owners.
async fn config(cluster: &Cluster, name: &str, owners: &[String]) -> Object {
    config_in(cluster, "default", name, owners).await
}

async fn config_in(cluster: &Cluster, namespace: &str, name: &str, owners: &[String]) -> Object {
    let owners = owners.join(", ");
    let metadata = format!("{{name: {name}, namespace: {namespace}, ownerReferences: [{owners}]}}");
    cluster
        .create(&format!(
            "{{apiVersion: v1, kind: ConfigMap, metadata: {metadata}}}"
        ))
        .await
}

async fn delete(cluster: &Cluster, name: &str, propagation: &str) {
    let options = DeleteOptions {
        propagation: Some(propagation),
        ..DeleteOptions::default()
    };
    cluster
        .dynamic_client()
        .delete(
            &CONFIG_MAPS,
            &format!("default/{name}").parse().unwrap(),
            &options,
        )
        .await
        .unwrap();
    settle(cluster).await;
}

async fn hold(cluster: &Cluster, name: &str) {
    let change = |object: &mut Object| {
        object
            .entry("metadata")
            .entry("finalizers")
            .make_list()
            .push("a.io/hold".into())
    };
    cluster
        .change(&CONFIG_MAPS, &format!("default/{name}"), change)
        .await;
}

async fn release(cluster: &Cluster, name: &str) {
    let change = |object: &mut Object| drop(object.entry("metadata").remove("finalizers"));
    cluster
        .change(&CONFIG_MAPS, &format!("default/{name}"), change)
        .await;
    settle(cluster).await;
}

/// The existing ConfigMaps, with their finalizers and owners' names.
async fn left(cluster: &Cluster) -> String {
    let show = |object: Object| {
        let finalizers = object["metadata"]["finalizers"]
            .list()
            .iter()
            .map(|text| format!("+{}", text.str()));
        let owners = object
            .owners()
            .iter()
            .map(|owner| format!("<{}", owner["name"].str()));
        format!(
            "{}{}",
            object.name(),
            finalizers.chain(owners).collect::<String>()
        )
    };
    let configs = cluster.objects(&CONFIG_MAPS, "").await;
    configs.into_iter().map(show).collect::<Vec<_>>().join(" ")
}

#[tokio::test(start_paused = true)]
async fn dependents_are_deleted_after_their_owner() {
    let cluster = cluster().await;
    let owner = config(&cluster, "o", &[]).await;
    let dependent = config(&cluster, "d", &[reference(&owner, "")]).await;
    config(&cluster, "dd", &[reference(&dependent, "")]).await;
    settle(&cluster).await;
    delete(&cluster, "o", "Background").await;
    assert_eq!(left(&cluster).await, "");
}

#[tokio::test(start_paused = true)]
async fn in_the_foreground_dependents_are_deleted_first() {
    let cluster = cluster().await;
    let owner = config(&cluster, "o", &[]).await;
    let dependent = config(
        &cluster,
        "d",
        &[reference(&owner, ", blockOwnerDeletion: true")],
    )
    .await;
    config(
        &cluster,
        "dd",
        &[reference(&dependent, ", blockOwnerDeletion: true")],
    )
    .await;
    hold(&cluster, "dd").await;
    settle(&cluster).await;
    delete(&cluster, "o", "Foreground").await;
    assert_eq!(
        left(&cluster).await,
        "d+foregroundDeletion<o dd+a.io/hold<d o+foregroundDeletion"
    );
    release(&cluster, "dd").await;
    assert_eq!(left(&cluster).await, "");
}

#[tokio::test(start_paused = true)]
async fn a_dependent_that_does_not_block_is_not_waited_for() {
    let cluster = cluster().await;
    let owner = config(&cluster, "o", &[]).await;
    config(&cluster, "d", &[reference(&owner, "")]).await;
    hold(&cluster, "d").await;
    delete(&cluster, "o", "Foreground").await;
    assert_eq!(left(&cluster).await, "d+a.io/hold<o");
    release(&cluster, "d").await;
    assert_eq!(left(&cluster).await, "");
}

#[tokio::test(start_paused = true)]
async fn an_owner_cycle_is_broken() {
    let cluster = cluster().await;
    let first = config(&cluster, "a", &[]).await;
    let second = config(
        &cluster,
        "b",
        &[reference(&first, ", blockOwnerDeletion: true")],
    )
    .await;
    let owner = json::parse(json::to_string(&second).as_bytes()).unwrap();
    let owners = read(&format!(
        "{{o: [{}]}}",
        reference(&Object(owner), ", blockOwnerDeletion: true")
    ));
    cluster
        .change(&CONFIG_MAPS, "default/a", |a| {
            a.entry("metadata")
                .set("ownerReferences", owners["o"].clone())
        })
        .await;
    settle(&cluster).await;
    delete(&cluster, "a", "Foreground").await;
    cluster.advance(Duration::from_secs(30)).await;
    assert_eq!(left(&cluster).await, "");
}

#[tokio::test(start_paused = true)]
async fn orphans_stay_without_owners() {
    let cluster = cluster().await;
    cluster.create(DEFINITION).await;
    settle(&cluster).await;
    let (owner, other) = (
        config(&cluster, "o", &[]).await,
        config(&cluster, "p", &[]).await,
    );
    config(
        &cluster,
        "d",
        &[
            reference(&owner, ", controller: true, blockOwnerDeletion: true"),
            reference(&other, ""),
        ],
    )
    .await;
    let foo = format!(
        "{{apiVersion: example.com/v1, kind: Foo, metadata: {{name: f, namespace: default, ownerReferences: [{}]}}}}",
        reference(&owner, "")
    );
    cluster.create(&foo).await;
    settle(&cluster).await;
    delete(&cluster, "o", "Orphan").await;
    assert_eq!(left(&cluster).await, "d<p p");
    // Custom resources have no strategic merge patch.
    assert_eq!(cluster.object(&FOOS, "default/f").await.owners(), []);
}

#[tokio::test(start_paused = true)]
async fn one_owner_of_two_is_enough() {
    let cluster = cluster().await;
    let (first, second) = (
        config(&cluster, "o", &[]).await,
        config(&cluster, "p", &[]).await,
    );
    config(
        &cluster,
        "d",
        &[reference(&first, ""), reference(&second, "")],
    )
    .await;
    settle(&cluster).await;
    delete(&cluster, "o", "Background").await;
    assert_eq!(left(&cluster).await, "d<p p");
    delete(&cluster, "p", "Background").await;
    assert_eq!(left(&cluster).await, "");
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_never_existed_counts_as_deleted() {
    let cluster = cluster().await;
    let missing =
        "{apiVersion: v1, kind: ConfigMap, name: o, uid: 11111111-2222-3333-4444-555555555555}"
            .to_string();
    config(&cluster, "d", std::slice::from_ref(&missing)).await;
    settle(&cluster).await;
    assert_eq!(left(&cluster).await, "");
    // The same for a reference with another uid.
    config(&cluster, "o", &[]).await;
    config(&cluster, "d", &[missing]).await;
    settle(&cluster).await;
    assert_eq!(left(&cluster).await, "o");
}

#[tokio::test(start_paused = true)]
async fn an_owner_of_an_unknown_kind_keeps_its_dependents() {
    let cluster = cluster().await;
    let foo = "{apiVersion: example.com/v1, kind: Foo, name: f, uid: 11111111-2222-3333-4444-555555555555}"
        .to_string();
    config(&cluster, "d", &[foo]).await;
    cluster.advance(Duration::from_secs(600)).await;
    assert_eq!(left(&cluster).await, "d<f");
    cluster.create(DEFINITION).await;
    settle(&cluster).await;
    assert_eq!(left(&cluster).await, "");
}

#[tokio::test(start_paused = true)]
async fn an_owner_in_another_namespace_counts_as_deleted() {
    let cluster = cluster().await;
    cluster
        .create("{apiVersion: v1, kind: Namespace, metadata: {name: shop}}")
        .await;
    let owner = config(&cluster, "o", &[]).await;
    config_in(&cluster, "shop", "d", &[reference(&owner, "")]).await;
    settle(&cluster).await;
    assert_eq!(left(&cluster).await, "o");
    let event = &cluster.objects(&EVENTS, "shop").await[0];
    assert_eq!(event["reason"].str(), "OwnerRefInvalidNamespace");
    let message = format!(
        "ownerRef [v1/ConfigMap, namespace: shop, name: o, uid: {}] does not exist in namespace \"shop\"",
        owner.uid()
    );
    assert_eq!(event["message"].str(), message);
    assert_eq!(
        event["source"]["component"].str(),
        "garbage-collector-controller"
    );
}

#[tokio::test(start_paused = true)]
async fn a_cluster_scoped_dependent_of_a_namespaced_owner_stays() {
    let cluster = cluster().await;
    let owner = config(&cluster, "o", &[]).await;
    cluster.create(&format!("{{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {{name: r, ownerReferences: [{}]}}}}", reference(&owner, "")))
        .await;
    settle(&cluster).await;
    delete(&cluster, "o", "Background").await;
    assert_eq!(cluster.object(&CLUSTER_ROLES, "r").await.owners().len(), 1);
    let event = &cluster.objects(&EVENTS, "default").await[0];
    assert!(
        event["message"]
            .str()
            .ends_with("does not exist in namespace \"\"")
    );
}

#[tokio::test(start_paused = true)]
async fn kinds_that_are_served_later_are_collected_too() {
    let cluster = cluster().await;
    cluster.create(DEFINITION).await;
    settle(&cluster).await;
    let owner = cluster
        .create("{apiVersion: example.com/v1, kind: Foo, metadata: {name: f, namespace: default}}")
        .await;
    config(&cluster, "d", &[reference(&owner, "")]).await;
    settle(&cluster).await;
    cluster.delete(&FOOS, "default/f").await;
    settle(&cluster).await;
    assert_eq!(left(&cluster).await, "");
}

#[tokio::test(start_paused = true)]
async fn deletions_while_the_controller_was_down_are_noticed() {
    let cluster = start(&[]).await;
    let owner = config(&cluster, "o", &[]).await;
    config(&cluster, "d", &[reference(&owner, "")]).await;
    let waiting = config(&cluster, "w", &[]).await;
    config(
        &cluster,
        "x",
        &[reference(&waiting, ", blockOwnerDeletion: true")],
    )
    .await;
    delete(&cluster, "o", "Background").await;
    delete(&cluster, "w", "Foreground").await;
    assert_eq!(left(&cluster).await, "d<o w+foregroundDeletion x<w");
    cluster
        .restart_with(|builder| builder.controllers(["garbage-collector-controller"]))
        .await;
    settle(&cluster).await;
    assert_eq!(left(&cluster).await, "");
}

#[tokio::test(start_paused = true)]
async fn a_thousand_dependents_of_one_owner_are_deleted() {
    let cluster = cluster().await;
    let owner = config(&cluster, "o", &[]).await;
    let reference = reference(&owner, "");
    for number in 0..1000 {
        config(
            &cluster,
            &format!("d{number}"),
            std::slice::from_ref(&reference),
        )
        .await;
    }
    delete(&cluster, "o", "Background").await;
    assert_eq!(left(&cluster).await, "");
}

#[tokio::test(start_paused = true)]
async fn an_unavailable_api_does_not_stop_the_collection() {
    let cluster = start(&[]).await;
    cluster.server().aggregate().await.unwrap();
    cluster.create("{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: v1.broken.io}, spec: {group: broken.io, version: v1, groupPriorityMinimum: 100, versionPriority: 15, insecureSkipTLSVerify: true, service: {namespace: default, name: nobody}}}").await;
    cluster.advance(Duration::from_secs(5)).await;
    cluster
        .restart_with(|builder| builder.controllers(["garbage-collector-controller"]))
        .await;
    let owner = config(&cluster, "o", &[]).await;
    config(&cluster, "d", &[reference(&owner, "")]).await;
    let lost = "{apiVersion: broken.io/v1, kind: Thing, name: t, uid: 11111111-2222-3333-4444-555555555555}"
        .to_string();
    config(&cluster, "kept", &[lost]).await;
    settle(&cluster).await;
    delete(&cluster, "o", "Background").await;
    assert_eq!(left(&cluster).await, "kept<t");
}
