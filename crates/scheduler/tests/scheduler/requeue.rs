//! Requeueing of unschedulable pods.

use std::time::Duration;

use mizzen_sdk::metrics::Families;
use mizzen_sdk::resource::{NODES, PODS};

use crate::cluster::Cluster;

#[tokio::test(start_paused = true)]
async fn pod_waits_for_the_first_node() {
    let cluster = Cluster::start().await;
    cluster.pod("p", "{}").await;
    assert_eq!(cluster.place("p").await, "");
    cluster.node("n1", "{}").await;
    // No plugin rejected a node, so that only the timeout requeues the pod.
    cluster.pass(Duration::from_secs(3)).await;
    assert_eq!(cluster.place("p").await, "n1");
}

#[tokio::test(start_paused = true)]
async fn pod_deletion_requeues_pods() {
    let cluster = Cluster::start().await;
    cluster.node("n1", "{}").await;
    cluster.pod_of("a", "3", 0).await;
    assert_eq!(cluster.place("a").await, "n1");
    cluster.pod_of("b", "3", 0).await;
    assert_eq!(cluster.place("b").await, "");
    cluster.delete(&PODS, "default/a").await;
    assert_eq!(cluster.place("b").await, "n1");
}

#[tokio::test(start_paused = true)]
async fn unrelated_event_requeues_nothing() {
    let cluster = Cluster::start().await;
    cluster.node("n1", "{}").await;
    cluster.pod_of("p", "8", 0).await;
    assert_eq!(cluster.place("p").await, "");
    assert_eq!(attempts(&cluster), "1");
    cluster
        .patch(&NODES, "n1", "", "{metadata: {labels: {disk: ssd}}}")
        .await;
    cluster.pod_of("small", "1", 0).await;
    cluster.settle().await;
    assert_eq!(attempts(&cluster), "1");
    cluster
        .patch(
            &NODES,
            "n1",
            "status",
            "{status: {allocatable: {cpu: '16'}}}",
        )
        .await;
    assert_eq!(cluster.place("p").await, "n1");
}

#[tokio::test(start_paused = true)]
async fn scheduling_gates_block_the_pod() {
    let cluster = Cluster::start().await;
    cluster.node("n1", "{}").await;
    cluster
        .pod("p", "{spec: {schedulingGates: [{name: example.com/one}]}}")
        .await;
    assert_eq!(cluster.place("p").await, "");
    assert_eq!(cluster.refusal("p").await.0, "SchedulingGated");
    cluster
        .patch(&PODS, "default/p", "", "{spec: {schedulingGates: null}}")
        .await;
    assert_eq!(cluster.place("p").await, "n1");
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

async fn check_hears(pod: &str, refusal: &str) {
    let cluster = Cluster::start().await;
    for node in ["n1", "n2"] {
        cluster.node(node, "{}").await;
    }
    cluster.pod("p", pod).await;
    let said = async |expected: &str| {
        let (_, message) = cluster.refusal("p").await;
        assert!(
            message.starts_with(&format!("0/2 nodes are available: {expected}. ")),
            "{message}"
        );
    };
    said(&format!("2 {refusal}")).await;
    cluster
        .patch(
            &NODES,
            "n1",
            "",
            "{spec: {taints: [{key: k, value: v, effect: NoSchedule}]}}",
        )
        .await;
    said(&format!("1 {refusal}, 1 node(s) had untolerated taint(s)")).await;
    cluster
        .patch(&NODES, "n2", "", "{spec: {unschedulable: true}}")
        .await;
    cluster
        .patch(&NODES, "n1", "", "{spec: {taints: null}}")
        .await;
    said(&format!("1 {refusal}, 1 node(s) were unschedulable")).await;
    cluster
        .patch(&NODES, "n2", "", "{spec: {unschedulable: null}}")
        .await;
    said(&format!("2 {refusal}")).await;
    assert_eq!(attempts(&cluster), "4");
    assert_eq!(cluster.events("p", "FailedScheduling").await.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn last_event_matches_the_final_state() {
    let cluster = Cluster::start().await;
    for node in ["n1", "n2", "n3"] {
        cluster.node(node, "{}").await;
    }
    cluster.pod("p", "{spec: {nodeSelector: {foo: bar}}}").await;
    cluster.settle().await;
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
    let (_, message) = cluster.refusal("p").await;
    assert!(
        message.contains("3 node(s) had untolerated taint(s)"),
        "{message}"
    );
    let mut events = cluster.events("p", "FailedScheduling").await;
    events.sort_by_key(|event| event.name().to_string());
    assert_eq!(events.last().unwrap()["message"].str(), message);
}

/// The number of failed scheduling attempts of a pod.
fn attempts(cluster: &Cluster) -> String {
    let text = Families::of(&[&cluster.scheduler]).to_string();
    let line = text
        .lines()
        .find(|line| line.contains("result=\"unschedulable\"} "))
        .unwrap()
        .to_string();
    line.rsplit(' ').next().unwrap().to_string()
}
