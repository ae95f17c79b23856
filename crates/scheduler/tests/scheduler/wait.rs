//! Pods wait for what can help them.

use std::time::Duration;

use mizzen_sdk::resource::{NODES, PODS};

use crate::cluster::Cluster;

#[tokio::test(start_paused = true)]
async fn a_pod_waits_for_the_first_node() {
    let cluster = Cluster::start().await;
    cluster.pod("p", "{}").await;
    assert_eq!(cluster.place("p").await, "");
    cluster.node("n1", "{}").await;
    // Nothing was wrong with any node, so that only time helps.
    cluster.pass(Duration::from_secs(3)).await;
    assert_eq!(cluster.place("p").await, "n1");
}

#[tokio::test(start_paused = true)]
async fn room_that_becomes_free_is_used() {
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
async fn what_cannot_help_wakes_nobody() {
    let cluster = Cluster::start().await;
    cluster.node("n1", "{}").await;
    cluster.pod_of("p", "8", 0).await;
    assert_eq!(cluster.place("p").await, "");
    let attempts = |cluster: &Cluster| {
        let text = cluster.scheduler.metrics_text();
        let line = text.lines().find(|line| line.contains("result=\"unschedulable\"} ")).unwrap().to_string();
        line.rsplit(' ').next().unwrap().to_string()
    };
    assert_eq!(attempts(&cluster), "1");
    cluster.patch(&NODES, "n1", "", "{metadata: {labels: {disk: ssd}}}").await;
    cluster.pod_of("small", "1", 0).await;
    cluster.settle().await;
    assert_eq!(attempts(&cluster), "1");
    cluster.patch(&NODES, "n1", "status", "{status: {allocatable: {cpu: '16'}}}").await;
    assert_eq!(cluster.place("p").await, "n1");
}

#[tokio::test(start_paused = true)]
async fn gates_must_be_gone() {
    let cluster = Cluster::start().await;
    cluster.node("n1", "{}").await;
    cluster.pod("p", "{spec: {schedulingGates: [{name: example.com/one}]}}").await;
    assert_eq!(cluster.place("p").await, "");
    assert_eq!(cluster.refusal("p").await.0, "SchedulingGated");
    cluster.patch(&PODS, "default/p", "", "{spec: {schedulingGates: null}}").await;
    assert_eq!(cluster.place("p").await, "n1");
}
