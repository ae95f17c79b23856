//! The pod garbage collector.

use std::time::Duration;

use mizzen_sdk::dynamic::DeleteOptions;
use mizzen_sdk::resource::{NODES, PODS};
use mizzen_testing::Cluster;
use mizzen_value::value;

use crate::{cluster_of, start};

async fn begin() -> Cluster {
    let cluster = start(&["pod-garbage-collector-controller"]).await;
    cluster
        .create("{apiVersion: v1, kind: Node, metadata: {name: n1}}")
        .await;
    cluster
}

/// A pod with a finalizer, so that its last state can be read.
async fn add_pod(cluster: &Cluster, name: &str, node: &str) {
    let pod = "{apiVersion: v1, kind: Pod, metadata: {name: NAME, namespace: default, finalizers: [example.com/hold]},
        spec: {nodeName: 'NODE', containers: [{name: c, image: i}]}}";
    cluster
        .create(&pod.replace("NAME", name).replace("NODE", node))
        .await;
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_missing_node_are_failed_and_deleted() {
    let cluster = begin().await;
    add_pod(&cluster, "kept", "n1").await;
    add_pod(&cluster, "lost", "n2").await;
    cluster.advance(Duration::from_secs(38)).await;
    assert!(!cluster.object(&PODS, "default/lost").await.is_terminating());
    cluster.advance(Duration::from_secs(30)).await;
    let lost = cluster.object(&PODS, "default/lost").await;
    assert_eq!(
        (lost.is_terminating(), lost.at("status.phase").str()),
        (true, "Failed")
    );
    let conditions = lost["status"]["conditions"].list();
    let target = conditions
        .iter()
        .find(|it| it["type"].str() == "DisruptionTarget")
        .expect("a condition");
    assert_eq!(target["message"].str(), "PodGC: node no longer exists");
    assert!(!cluster.object(&PODS, "default/kept").await.is_terminating());
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_node_comes_in_time_stays() {
    let cluster = begin().await;
    add_pod(&cluster, "early", "n2").await;
    cluster.advance(Duration::from_secs(35)).await;
    cluster
        .create("{apiVersion: v1, kind: Node, metadata: {name: n2}}")
        .await;
    cluster.advance(Duration::from_secs(120)).await;
    assert!(
        !cluster
            .object(&PODS, "default/early")
            .await
            .is_terminating()
    );
}

#[tokio::test(start_paused = true)]
async fn a_terminating_pod_of_an_out_of_service_node_is_deleted() {
    let cluster = begin().await;
    add_pod(&cluster, "a", "n1").await;
    let long = DeleteOptions {
        grace_seconds: Some(3600),
        ..DeleteOptions::default()
    };
    cluster
        .dynamic_client()
        .delete(&PODS, &"default/a".parse().unwrap(), &long)
        .await
        .unwrap();
    cluster.advance(Duration::from_secs(60)).await;
    assert_eq!(
        cluster
            .object(&PODS, "default/a")
            .await
            .at("status.phase")
            .str(),
        "Pending"
    );
    let taint = value!({"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"});
    cluster
        .change(&NODES, "n1", |node| {
            node.entry("spec").set("taints", vec![taint])
        })
        .await;
    cluster.advance(Duration::from_secs(21)).await;
    let pod = cluster.object(&PODS, "default/a").await;
    assert_eq!(pod.at("status.phase").str(), "Failed");
    assert_eq!(pod.at("metadata.deletionGracePeriodSeconds").int(), 0);
}

#[tokio::test(start_paused = true)]
async fn as_many_ended_pods_are_kept_as_was_chosen() {
    for (threshold, expected) in [(1, 1), (0, 3)] {
        let cluster = cluster_of(&["pod-garbage-collector-controller"])
            .tune_controllers(move |options| options.terminated_pod_gc_threshold = threshold)
            .start()
            .await;
        for name in ["a", "b", "c"] {
            let pod = "{apiVersion: v1, kind: Pod, metadata: {name: NAME, namespace: default}, spec: {containers: [{name: c, image: i}]}}";
            cluster.create(&pod.replace("NAME", name)).await;
            let key = format!("default/{name}");
            cluster
                .change_status(&PODS, &key, |status| status.set("phase", "Succeeded"))
                .await;
        }
        cluster.advance(Duration::from_secs(60)).await;
        assert_eq!(
            cluster.objects(&PODS, "default").await.len(),
            expected,
            "{threshold}"
        );
    }
}
