//! The life of pods and nodes in a whole control plane.

use k8s_openapi::api::core::v1::{Node, Pod, PodCondition};
use mizzen_node as node;
use mizzen_sdk::clock;
use mizzen_testing::Cluster;

use super::{cluster, is_ready, pass};

/// The conditions of a pod in the order in which they appeared.
async fn history(cluster: &Cluster, name: &str) -> Vec<String> {
    let show = |one: &PodCondition| format!("{}={}", one.type_, one.status);
    let states = cluster.history::<Pod>(name).await.into_iter();
    let mut all: Vec<String> = states
        .map(|pod| pod.status.and_then(|status| status.conditions))
        .map(|conditions| conditions.iter().flatten().map(show).collect::<Vec<_>>())
        .map(|conditions| conditions.join(" "))
        .collect();
    all.dedup();
    all
}

/// Starts one more node, `late-0`.
fn start_late_node(cluster: &Cluster) {
    let clock = clock::following(cluster.clock().clone());
    cluster.run("late", move |client| {
        node::run(node::Options {
            prefix: "late".into(),
            clock: clock.clone(),
            ..node::Options::simulated(client, 1)
        })
    });
}

const SCHEDULED: &str = "PodScheduled=True";
const CREATING: &str = "PodReadyToStartContainers=False Initialized=True Ready=False ContainersReady=False PodScheduled=True";
const READY: &str = "PodReadyToStartContainers=True Initialized=True Ready=True ContainersReady=True PodScheduled=True";

#[tokio::test]
async fn the_conditions_of_a_new_pod_appear_in_their_order() {
    let cluster = cluster().await;
    cluster
        .apply("{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, image: i}]}}")
        .await;
    pass(&cluster, 10).await;
    assert_eq!(
        history(&cluster, "p").await,
        ["", SCHEDULED, CREATING, READY]
    );
}

#[tokio::test]
async fn an_unschedulable_pod_is_scheduled_when_a_node_appears() {
    let cluster = cluster().await;
    cluster
        .apply(
            "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {nodeSelector: {kubernetes.io/hostname: late-0}, \
             containers: [{name: c, image: i}]}}",
        )
        .await;
    pass(&cluster, 10).await;
    start_late_node(&cluster);
    pass(&cluster, 60).await;
    assert_eq!(
        history(&cluster, "p").await,
        ["", "PodScheduled=False", SCHEDULED, CREATING, READY]
    );
}

/// A pod on the node that is lost.
fn pod(name: &str, tolerations: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{nodeName: late-0, tolerations: {tolerations}, \
         containers: [{{name: c, image: i}}]}}}}"
    )
}

/// The taints of the node, and whether it is ready.
async fn late_node(cluster: &Cluster) -> (Vec<String>, String) {
    let node = cluster.get::<Node>("late-0").await;
    let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
    let taints = taints.into_iter();
    let taints = taints.map(|taint| format!("{}:{}", taint.key, taint.effect));
    let conditions = node.status.and_then(|status| status.conditions);
    let mut conditions = conditions.into_iter().flatten();
    let ready = conditions.find(|condition| condition.type_ == "Ready");
    let ready = ready.map(|condition| condition.status);
    (taints.collect(), ready.unwrap_or_default())
}

#[tokio::test]
async fn an_unreachable_node_becomes_ready_again() {
    let cluster = cluster().await;
    start_late_node(&cluster);
    pass(&cluster, 30).await;
    cluster.apply(&pod("patient", "[{operator: Exists}]")).await;
    cluster.apply(&pod("hasty", "[]")).await;
    pass(&cluster, 10).await;
    assert_eq!(late_node(&cluster).await, (vec![], "True".into()));
    for name in ["patient", "hasty"] {
        assert!(is_ready(&cluster.get::<Pod>(name).await), "{name}");
    }

    cluster.stop("late");
    pass(&cluster, 120).await;
    let lost = [
        "node.kubernetes.io/unreachable:NoSchedule",
        "node.kubernetes.io/unreachable:NoExecute",
    ];
    assert_eq!(
        late_node(&cluster).await,
        (lost.map(String::from).into(), "Unknown".into())
    );
    let is_terminating = |pod: &Pod| pod.metadata.deletion_timestamp.is_some();
    assert!(
        !is_terminating(&cluster.get("hasty").await),
        "pods tolerate a lost node for five minutes"
    );
    pass(&cluster, 300).await;
    let (patient, hasty) = (
        cluster.get::<Pod>("patient").await,
        cluster.get::<Pod>("hasty").await,
    );
    assert!(!is_ready(&patient) && !is_terminating(&patient));
    assert!(
        !is_ready(&hasty) && is_terminating(&hasty),
        "no kubelet confirms that it is gone"
    );

    start_late_node(&cluster);
    pass(&cluster, 60).await;
    assert_eq!(late_node(&cluster).await, (vec![], "True".into()));
    let back = cluster.get::<Pod>("patient").await;
    assert!(is_ready(&back), "{:?}", back.status);
    assert_eq!(back.metadata.uid, patient.metadata.uid);
    assert!(cluster.find::<Pod>("hasty").await.is_none());
}
