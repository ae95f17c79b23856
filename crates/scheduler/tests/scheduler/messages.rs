//! Messages of the PodScheduled condition and of FailedScheduling events.

use mizzen_sdk::resource::NODES;

use crate::fixtures::{create_node, create_pod, events, pod_of, refusal, start};

/// Checks the message, after the count of nodes, of a pod with `spec` on a cluster with the node `n1`.
async fn check(node: &str, pod: &str, message: &str) {
    let cluster = start().await;
    create_node(&cluster, "n1", node).await;
    create_pod(&cluster, "p", pod).await;
    let expected = (
        "Unschedulable".to_string(),
        format!("0/1 nodes are available: {message}"),
    );
    assert_eq!(refusal(&cluster, "p").await, expected);
    let events = events(&cluster, "p", "FailedScheduling").await;
    assert_eq!(events.len(), 1);
    assert_eq!(events[0]["message"].str(), expected.1);
    assert_eq!(
        (events[0]["action"].str(), events[0]["type"].str()),
        ("Scheduling", "Warning")
    );
}

const UNHELPFUL: &str = "no new claims to deallocate, preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.";

#[tokio::test(start_paused = true)]
async fn insufficient_resources() {
    let pod = "{spec: {containers: [{name: c, image: i, resources: {requests: {cpu: '8', memory: 64Gi}}}]}}";
    check(
        "{}",
        pod,
        &format!("1 Insufficient cpu, 1 Insufficient memory. {UNHELPFUL}"),
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn untolerated_taint() {
    let node = "{spec: {taints: [{key: a, value: b, effect: NoSchedule}]}}";
    check(
        node,
        "{}",
        &format!("1 node(s) had untolerated taint(s). {UNHELPFUL}"),
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn unschedulable_node() {
    check(
        "{spec: {unschedulable: true}}",
        "{}",
        &format!("1 node(s) were unschedulable. {UNHELPFUL}"),
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn unmatched_node_selector() {
    let message = format!("1 node(s) didn't match Pod's node affinity/selector. {UNHELPFUL}");
    check("{}", "{spec: {nodeSelector: {disk: ssd}}}", &message).await;
}

#[tokio::test(start_paused = true)]
async fn unknown_node_name() {
    let pod = "{spec: {affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms:
        [{matchFields: [{key: metadata.name, operator: In, values: [zzz]}]}]}}}}}";
    check(
        "{}",
        pod,
        &format!("1 node(s) didn't satisfy plugin(s) [NodeAffinity]. {UNHELPFUL}"),
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn no_nodes() {
    let cluster = start().await;
    create_pod(&cluster, "p", "{}").await;
    let expected = (
        "Unschedulable".to_string(),
        "no nodes available to schedule pods".to_string(),
    );
    assert_eq!(refusal(&cluster, "p").await, expected);
}

#[tokio::test(start_paused = true)]
async fn message_follows_the_cluster_state() {
    let cluster = start().await;
    create_node(&cluster, "n1", "{spec: {unschedulable: true}}").await;
    pod_of(&cluster, "p", "8", 0).await;
    let (_, message) = refusal(&cluster, "p").await;
    assert!(
        message.contains("1 node(s) were unschedulable."),
        "{message}"
    );
    cluster
        .patch(&NODES, "n1", "", "{spec: {unschedulable: null}}")
        .await;
    let (_, message) = refusal(&cluster, "p").await;
    assert!(message.contains("1 Insufficient cpu."), "{message}");
    assert_eq!(events(&cluster, "p", "FailedScheduling").await.len(), 2);
}
