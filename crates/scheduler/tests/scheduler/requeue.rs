//! Requeueing of unschedulable pods.

use std::time::Duration;

use mizzen_sdk::resource::{NODES, PODS};
use mizzen_testing::Cluster;

use crate::fixtures::{
    create_node, create_pod, delete_now, events, place, pod_of, refusal, settle, start,
};

#[tokio::test(start_paused = true)]
async fn pod_waits_for_the_first_node() {
    let cluster = start().await;
    create_pod(&cluster, "p", "{}").await;
    assert_eq!(place(&cluster, "p").await, "");
    create_node(&cluster, "n1", "{}").await;
    // No plugin rejected a node, so that only the timeout requeues the pod.
    cluster.advance(Duration::from_secs(3)).await;
    assert_eq!(place(&cluster, "p").await, "n1");
}

#[tokio::test(start_paused = true)]
async fn pod_deletion_requeues_pods() {
    let cluster = start().await;
    create_node(&cluster, "n1", "{}").await;
    pod_of(&cluster, "a", "3", 0).await;
    assert_eq!(place(&cluster, "a").await, "n1");
    pod_of(&cluster, "b", "3", 0).await;
    assert_eq!(place(&cluster, "b").await, "");
    delete_now(&cluster, &PODS, "default/a").await;
    assert_eq!(place(&cluster, "b").await, "n1");
}

#[tokio::test(start_paused = true)]
async fn unrelated_event_requeues_nothing() {
    let cluster = start().await;
    create_node(&cluster, "n1", "{}").await;
    pod_of(&cluster, "p", "8", 0).await;
    assert_eq!(place(&cluster, "p").await, "");
    assert_eq!(attempts(&cluster), "1");
    cluster
        .patch(&NODES, "n1", "", "{metadata: {labels: {disk: ssd}}}")
        .await;
    pod_of(&cluster, "small", "1", 0).await;
    settle(&cluster).await;
    assert_eq!(attempts(&cluster), "1");
    cluster
        .patch(
            &NODES,
            "n1",
            "status",
            "{status: {allocatable: {cpu: '16'}}}",
        )
        .await;
    assert_eq!(place(&cluster, "p").await, "n1");
}

#[tokio::test(start_paused = true)]
async fn scheduling_gates_block_the_pod() {
    let cluster = start().await;
    create_node(&cluster, "n1", "{}").await;
    create_pod(
        &cluster,
        "p",
        "{spec: {schedulingGates: [{name: example.com/one}]}}",
    )
    .await;
    assert_eq!(place(&cluster, "p").await, "");
    assert_eq!(refusal(&cluster, "p").await.0, "SchedulingGated");
    cluster
        .patch(&PODS, "default/p", "", "{spec: {schedulingGates: null}}")
        .await;
    assert_eq!(place(&cluster, "p").await, "n1");
}

#[tokio::test(start_paused = true)]
async fn taint_changes_update_the_diagnosis() {
    check_hears(
        "{spec: {nodeSelector: {foo: bar}}}",
        "node(s) didn't match Pod's node affinity/selector",
    )
    .await;
    check_hears(
        "{spec: {affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [
            {labelSelector: {matchLabels: {a: b}}, topologyKey: kubernetes.io/hostname}]}}}}",
        "node(s) didn't match pod affinity rules",
    )
    .await;
    let big = "{spec: {containers: [{name: c, image: i, resources: {requests: {cpu: '100'}}}]}}";
    check_hears(big, "Insufficient cpu").await;
}

async fn check_hears(pod: &str, rejection: &str) {
    let cluster = start().await;
    for node in ["n1", "n2"] {
        create_node(&cluster, node, "{}").await;
    }
    create_pod(&cluster, "p", pod).await;
    let said = async |expected: &str| {
        let (_, message) = refusal(&cluster, "p").await;
        assert!(
            message.starts_with(&format!("0/2 nodes are available: {expected}. ")),
            "{message}"
        );
    };
    said(&format!("2 {rejection}")).await;
    cluster
        .patch(
            &NODES,
            "n1",
            "",
            "{spec: {taints: [{key: k, value: v, effect: NoSchedule}]}}",
        )
        .await;
    said(&format!(
        "1 {rejection}, 1 node(s) had untolerated taint(s)"
    ))
    .await;
    cluster
        .patch(&NODES, "n2", "", "{spec: {unschedulable: true}}")
        .await;
    cluster
        .patch(&NODES, "n1", "", "{spec: {taints: null}}")
        .await;
    said(&format!("1 {rejection}, 1 node(s) were unschedulable")).await;
    cluster
        .patch(&NODES, "n2", "", "{spec: {unschedulable: null}}")
        .await;
    said(&format!("2 {rejection}")).await;
    assert_eq!(attempts(&cluster), "4");
    assert_eq!(events(&cluster, "p", "FailedScheduling").await.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn last_event_matches_the_final_state() {
    let cluster = start().await;
    for node in ["n1", "n2", "n3"] {
        create_node(&cluster, node, "{}").await;
    }
    create_pod(&cluster, "p", "{spec: {nodeSelector: {foo: bar}}}").await;
    settle(&cluster).await;
    for node in ["n1", "n2", "n3"] {
        cluster
            .patch(
                &NODES,
                node,
                "",
                "{spec: {taints: [{key: k, value: v, effect: NoSchedule}]}}",
            )
            .await;
    }
    let (_, message) = refusal(&cluster, "p").await;
    assert!(
        message.contains("3 node(s) had untolerated taint(s)"),
        "{message}"
    );
    let mut events = events(&cluster, "p", "FailedScheduling").await;
    events.sort_by_key(|event| event.name().to_string());
    assert_eq!(events.last().unwrap()["message"].str(), message);
}

/// The number of failed scheduling attempts of a pod.
fn attempts(cluster: &Cluster) -> String {
    let text = cluster.metrics();
    let line = text
        .lines()
        .find(|line| line.contains("result=\"unschedulable\"} "))
        .unwrap()
        .to_string();
    line.rsplit(' ').next().unwrap().to_string()
}
