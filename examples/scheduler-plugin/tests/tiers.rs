//! The scheduler with its plugin, in a control plane in the process of the test.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use mizzen_sdk::resource::NODES;
use mizzen_testing::Cluster;

const CONFIGURATION: &[u8] = include_bytes!("../manifests/configuration.yaml");
const PODS: &str = include_str!("../manifests/pods.yaml");

/// A cluster with a node in each tier, whose scheduler has the plugin.
async fn start(tiers: &[&str]) -> Cluster {
    let configuration = Arc::new(scheduler_plugin::configuration(CONFIGURATION).unwrap());
    let builder = Cluster::builder()
        .nodes(tiers.len())
        .tune_scheduler(move |options| options.configuration = configuration.clone());
    let cluster = builder.start().await;
    for (idx, tier) in tiers.iter().enumerate() {
        assign(&cluster, &format!("node-{idx}"), tier).await;
    }
    cluster
}

/// Puts a node into a tier.
async fn assign(cluster: &Cluster, node: &str, tier: &str) {
    let labels = format!("metadata: {{labels: {{example.com/tier: {tier}}}}}");
    cluster.patch(&NODES, node, "", &labels).await;
}

/// The node of a pod; empty if it has none.
async fn node_of(cluster: &Cluster, pod: &str) -> String {
    let pod: Pod = cluster.get(pod).await;
    pod.spec.and_then(|spec| spec.node_name).unwrap_or_default()
}

#[tokio::test]
async fn pods_of_an_application_share_a_node_of_their_tier() {
    let cluster = start(&["tin", "gold", "gold", "gold"]).await;
    for pod in PODS.split("---\n") {
        cluster.apply(pod).await;
        cluster.settle().await;
    }
    let node = node_of(&cluster, "web-0").await;
    assert!(
        ["node-1", "node-2", "node-3"].contains(&node.as_str()),
        "{node}"
    );
    assert_eq!(node_of(&cluster, "web-1").await, node);
}

#[tokio::test]
async fn a_pod_waits_for_a_node_of_its_tier() {
    let cluster = start(&["tin"]).await;
    cluster.apply(PODS.split("---\n").next().unwrap()).await;
    cluster.settle().await;
    let pod: Pod = cluster.get("web-0").await;
    let conditions = pod.status.and_then(|status| status.conditions);
    let message = conditions.unwrap_or_default().swap_remove(0).message;
    let message = message.unwrap_or_default();
    let expected = "0/1 nodes are available: 1 node(s) were not in tier gold.";
    assert!(message.starts_with(expected), "{message}");
    // The hint of the plugin: a change of the node is worth a new attempt.
    assign(&cluster, "node-0", "gold").await;
    let is_bound = |pod: &Pod| {
        pod.spec
            .as_ref()
            .is_some_and(|spec| spec.node_name.is_some())
    };
    cluster.until_object("web-0", is_bound).await;
    assert_eq!(node_of(&cluster, "web-0").await, "node-0");
}

#[test]
fn arguments_of_the_plugin_are_checked() {
    let file = include_str!("../manifests/configuration.yaml").replace("example.com/tier", "''");
    let error = scheduler_plugin::configuration(file.as_bytes()).err();
    let error = error.map(|error| error.to_string());
    assert_eq!(
        error.as_deref(),
        Some("initializing plugin \"Tiers\": label must not be empty")
    );
}
