//! The node lifecycle and taint eviction controllers.

use std::time::Duration;

use mizzen_controllers::NodeMonitor;
use mizzen_sdk::Object;
use mizzen_sdk::dynamic::ListOptions;
use mizzen_sdk::resource::{EVENTS, LEASES, NODES, PODS};
use mizzen_testing::Cluster;
use mizzen_value::{Value, time, value};

use crate::{cluster_of, settle, start};

const BOTH: [&str; 2] = ["node-lifecycle-controller", "taint-eviction-controller"];

async fn node(cluster: &Cluster, name: &str) {
    let text = format!("{{apiVersion: v1, kind: Node, metadata: {{name: {name}}}}}");
    cluster.create(&text).await;
    report(cluster, name, "True").await;
}

/// The kubelet reports the node's Ready condition.
async fn report(cluster: &Cluster, name: &str, ready: &str) {
    let now = time::from_unix(cluster.now());
    let condition = value!({"type": "Ready", "status": ready, "reason": "KubeletReady", "lastHeartbeatTime": now});
    cluster
        .change_status(&NODES, name, |status| {
            status.set("conditions", vec![condition])
        })
        .await;
}

async fn keep_alive(cluster: &Cluster, names: &[&str], seconds: u64) {
    for _ in 0..seconds / 10 {
        cluster.advance(Duration::from_secs(10)).await;
        for name in names {
            report(cluster, name, "True").await;
        }
    }
}

async fn pod(cluster: &Cluster, name: &str, node: &str, tolerations: &str) {
    cluster.create(&format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: default}}, spec: {{nodeName: {node}, \
             tolerations: {tolerations}, containers: [{{name: c, image: i}}]}}}}"
        ))
        .await;
    let condition = value!({"type": "Ready", "status": "True"});
    cluster
        .change_status(&PODS, &format!("default/{name}"), |status| {
            status.set("conditions", vec![condition])
        })
        .await;
}

async fn taints(cluster: &Cluster, name: &str) -> Vec<String> {
    let node = cluster.object(&NODES, name).await;
    let text = |taint: &Value| {
        format!(
            "{}:{}",
            taint["key"].str().rsplit('/').next().unwrap(),
            taint["effect"].str()
        )
    };
    let mut taints: Vec<String> = node["spec"]["taints"].list().iter().map(text).collect();
    taints.sort();
    taints
}

async fn events(cluster: &Cluster, reason: &str) -> Vec<String> {
    let options = ListOptions {
        fields: format!("reason={reason}"),
        ..ListOptions::default()
    };
    let events = cluster
        .dynamic_client()
        .list(&EVENTS, "default", &options)
        .await
        .unwrap();
    events
        .iter()
        .map(|event| event["message"].str().to_string())
        .collect()
}

fn ready(object: &Object) -> &str {
    let conditions = object["status"]["conditions"].list();
    conditions
        .iter()
        .find(|one| one["type"].str() == "Ready")
        .map_or("", |one| one["status"].str())
}

#[tokio::test(start_paused = true)]
async fn a_node_without_heartbeats_is_tainted_and_recovers() {
    let cluster = start(&BOTH).await;
    node(&cluster, "a").await;
    node(&cluster, "b").await;
    let tolerant = "[{key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 300}]";
    pod(&cluster, "p", "a", tolerant).await;
    keep_alive(&cluster, &["b"], 40).await;
    assert_eq!(ready(&cluster.object(&NODES, "a").await), "True");
    keep_alive(&cluster, &["b"], 20).await;
    settle(&cluster).await;

    let lost = cluster.object(&NODES, "a").await;
    let condition = &lost["status"]["conditions"][0];
    assert_eq!(
        (condition["reason"].str(), condition["message"].str()),
        ("NodeStatusUnknown", "Kubelet stopped posting node status.")
    );
    assert_eq!(lost["status"]["conditions"].list().len(), 4);
    assert_eq!(
        taints(&cluster, "a").await,
        ["unreachable:NoExecute", "unreachable:NoSchedule"]
    );
    assert_eq!(ready(&cluster.object(&PODS, "default/p").await), "False");
    let event_messages = events(&cluster, "NodeNotReady").await;
    assert_eq!(
        event_messages,
        ["Node a status is now: NodeNotReady", "Node is not ready"]
    );

    report(&cluster, "a", "True").await;
    keep_alive(&cluster, &["a", "b"], 10).await;
    assert_eq!(taints(&cluster, "a").await, [""; 0]);
    assert_eq!(
        events(&cluster, "TaintManagerEviction").await,
        ["Cancelling deletion of Pod default/p"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_lease_keeps_a_node_alive() {
    let cluster = start(&BOTH).await;
    node(&cluster, "a").await;
    cluster.create("{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: a, namespace: kube-node-lease}, spec: {}}").await;
    for second in 0..12 {
        cluster.advance(Duration::from_secs(10)).await;
        let renewed = format!("2026-01-01T00:00:{second:02}.000000Z");
        cluster
            .change(&LEASES, "kube-node-lease/a", |lease| {
                lease.entry("spec").set("renewTime", renewed)
            })
            .await;
    }
    assert_eq!(ready(&cluster.object(&NODES, "a").await), "True");
    cluster.advance(Duration::from_secs(60)).await;
    assert_eq!(ready(&cluster.object(&NODES, "a").await), "Unknown");
}

#[tokio::test(start_paused = true)]
async fn no_pod_is_evicted_when_no_node_is_ready() {
    let cluster = start(&BOTH).await;
    node(&cluster, "a").await;
    node(&cluster, "b").await;
    cluster.advance(Duration::from_secs(6)).await;
    report(&cluster, "a", "False").await;
    cluster.advance(Duration::from_secs(6)).await;
    assert_eq!(
        taints(&cluster, "a").await,
        ["not-ready:NoExecute", "not-ready:NoSchedule"]
    );
    report(&cluster, "b", "False").await;
    cluster.advance(Duration::from_secs(30)).await;
    assert_eq!(taints(&cluster, "a").await, ["not-ready:NoSchedule"]);
    assert_eq!(taints(&cluster, "b").await, ["not-ready:NoSchedule"]);
    report(&cluster, "b", "True").await;
    cluster.advance(Duration::from_secs(30)).await;
    assert_eq!(
        taints(&cluster, "a").await,
        ["not-ready:NoExecute", "not-ready:NoSchedule"]
    );
    assert_eq!(taints(&cluster, "b").await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn nodes_are_tainted_at_the_eviction_rate() {
    let cluster = start(&BOTH).await;
    let names = ["a", "b", "c", "d", "e"];
    for name in names {
        node(&cluster, name).await;
    }
    cluster.advance(Duration::from_secs(6)).await;
    report(&cluster, "a", "False").await;
    report(&cluster, "b", "False").await;
    let count = async || {
        let mut n_driven = 0;
        for name in names {
            n_driven += usize::from(
                taints(&cluster, name)
                    .await
                    .contains(&"not-ready:NoExecute".into()),
            );
        }
        n_driven
    };
    cluster.advance(Duration::from_secs(6)).await;
    assert_eq!(count().await, 1);
    cluster.advance(Duration::from_secs(11)).await;
    assert_eq!(count().await, 2);
    // Three of five are more than the threshold: the zone is small, so no further pods are evicted.
    report(&cluster, "c", "False").await;
    cluster.advance(Duration::from_secs(29)).await;
    assert_eq!(count().await, 2);
}

#[tokio::test(start_paused = true)]
async fn added_and_deleted_nodes_cause_events() {
    let cluster = start(&BOTH).await;
    node(&cluster, "a").await;
    cluster.advance(Duration::from_secs(6)).await;
    assert_eq!(
        events(&cluster, "RegisteredNode").await,
        ["Node a event: Registered Node a in Controller"]
    );
    cluster.delete(&NODES, "a").await;
    cluster.advance(Duration::from_secs(6)).await;
    assert_eq!(
        events(&cluster, "RemovingNode").await,
        ["Node a event: Removing Node a from Controller"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_pod_added_to_a_node_that_is_not_ready_is_not_ready() {
    let cluster = start(&BOTH).await;
    node(&cluster, "a").await;
    node(&cluster, "b").await;
    report(&cluster, "a", "False").await;
    settle(&cluster).await;
    let text = "{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: default}, spec: {containers: [{name: c, image: i}]}}";
    cluster.create(text).await;
    let condition = value!({"type": "Ready", "status": "True"});
    cluster
        .change_status(&PODS, "default/p", |status| {
            status.set("conditions", vec![condition])
        })
        .await;
    settle(&cluster).await;
    assert_eq!(ready(&cluster.object(&PODS, "default/p").await), "True");
    let binding = value!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"kind": "Node", "name": "a"}});
    cluster
        .dynamic_client()
        .create_at(&PODS, &"default/p".parse().unwrap(), "binding", &binding)
        .await
        .unwrap();
    settle(&cluster).await;
    assert_eq!(ready(&cluster.object(&PODS, "default/p").await), "False");
}

async fn drive(cluster: &Cluster, on: bool) {
    let taint = value!({"key": "evict", "value": "now", "effect": "NoExecute"});
    let taints = if on { vec![taint] } else { vec![] };
    cluster
        .change(&NODES, "a", |node| node.entry("spec").set("taints", taints))
        .await;
    settle(cluster).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_evicted_after_its_toleration_seconds() {
    let cluster = start(&["taint-eviction-controller"]).await;
    node(&cluster, "a").await;
    pod(&cluster, "now", "a", "[]").await;
    pod(
        &cluster,
        "later",
        "a",
        "[{key: evict, operator: Exists, effect: NoExecute, tolerationSeconds: 20}]",
    )
    .await;
    pod(&cluster, "never", "a", "[{key: evict, operator: Exists}]").await;
    drive(&cluster, true).await;
    let going = async |name: &str| {
        cluster
            .object(&PODS, &format!("default/{name}"))
            .await
            .is_terminating()
    };
    assert!(going("now").await && !going("later").await);
    let pod = cluster.object(&PODS, "default/now").await;
    let mut conditions = pod["status"]["conditions"].list().iter();
    let condition = conditions
        .find(|one| one["type"].str() == "DisruptionTarget")
        .unwrap();
    assert_eq!(condition["reason"].str(), "DeletionByTaintManager");
    cluster.advance(Duration::from_secs(18)).await;
    assert!(!going("later").await);
    cluster.advance(Duration::from_secs(2)).await;
    assert!(going("later").await && !going("never").await);
    let mut event_messages = events(&cluster, "TaintManagerEviction").await;
    event_messages.sort();
    assert_eq!(
        event_messages,
        [
            "Marking for deletion Pod default/later",
            "Marking for deletion Pod default/now"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_pod_stays_when_the_taint_is_removed_first() {
    let cluster = start(&["taint-eviction-controller"]).await;
    node(&cluster, "a").await;
    pod(
        &cluster,
        "p",
        "a",
        "[{key: evict, operator: Exists, effect: NoExecute, tolerationSeconds: 20}]",
    )
    .await;
    drive(&cluster, true).await;
    drive(&cluster, false).await;
    cluster.advance(Duration::from_secs(60)).await;
    assert!(!cluster.object(&PODS, "default/p").await.is_terminating());
    assert_eq!(
        events(&cluster, "TaintManagerEviction").await,
        ["Cancelling deletion of Pod default/p"]
    );
}

#[tokio::test(start_paused = true)]
async fn taints_added_while_the_controller_was_down_evict_pods() {
    let cluster = start(&[]).await;
    node(&cluster, "a").await;
    pod(&cluster, "p", "a", "[]").await;
    drive(&cluster, true).await;
    cluster
        .restart_with(|builder| builder.controllers(["taint-eviction-controller"]))
        .await;
    settle(&cluster).await;
    assert!(cluster.object(&PODS, "default/p").await.is_terminating());
}

#[tokio::test(start_paused = true)]
async fn the_node_monitor_grace_period_is_configurable() {
    let monitor = NodeMonitor {
        grace_period: Duration::from_secs(16),
        ..NodeMonitor::default()
    };
    let cluster = cluster_of(&BOTH)
        .tune_controllers(move |options| options.node_monitor = monitor)
        .start()
        .await;
    node(&cluster, "n1").await;
    cluster.advance(Duration::from_secs(15)).await;
    assert_eq!(ready(&cluster.object(&NODES, "n1").await), "True");
    cluster.advance(Duration::from_secs(15)).await;
    assert_eq!(ready(&cluster.object(&NODES, "n1").await), "Unknown");
}
