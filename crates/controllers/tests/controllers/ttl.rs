//! The TTL controller.

use mizzen_sdk::resource::NODES;

use crate::{settle, start};

#[tokio::test(start_paused = true)]
async fn a_node_of_a_small_cluster_has_ttl_zero() {
    let cluster = start(&["ttl-controller"]).await;
    cluster
        .create("{apiVersion: v1, kind: Node, metadata: {name: n1}}")
        .await;
    settle(&cluster).await;
    let ttl = |node: mizzen_sdk::Object| {
        node.annotation("node.alpha.kubernetes.io/ttl")
            .map(String::from)
    };
    assert_eq!(ttl(cluster.object(&NODES, "n1").await), Some("0".into()));
    cluster
        .change(&NODES, "n1", |node| {
            drop(node.entry("metadata").remove("annotations"))
        })
        .await;
    settle(&cluster).await;
    assert_eq!(ttl(cluster.object(&NODES, "n1").await), Some("0".into()));
}
