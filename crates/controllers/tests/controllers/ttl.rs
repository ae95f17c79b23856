//! The TTL controller.

use mizzen_sdk::resource::NODES;

use crate::cluster::Cluster;

#[tokio::test(start_paused = true)]
async fn a_node_of_a_small_cluster_has_ttl_zero() {
    let cluster = Cluster::with(&["ttl-controller"]).await;
    cluster
        .create("{apiVersion: v1, kind: Node, metadata: {name: n1}}")
        .await;
    cluster.settle().await;
    let ttl = |node: mizzen_sdk::Object| {
        node.annotation("node.alpha.kubernetes.io/ttl")
            .map(String::from)
    };
    assert_eq!(ttl(cluster.get(&NODES, "n1").await), Some("0".into()));
    cluster
        .change(&NODES, "n1", |node| {
            drop(node.entry("metadata").remove("annotations"))
        })
        .await;
    cluster.settle().await;
    assert_eq!(ttl(cluster.get(&NODES, "n1").await), Some("0".into()));
}
