//! The node IPAM controller.

use mizzen_controllers::{NodeMasks, Options};
use mizzen_sdk::resource::NODES;
use mizzen_testing::Cluster;
use mizzen_value::address::Cidr;

use crate::{cluster_of, settle, start};

const CONTROLLER: [&str; 1] = ["node-ipam-controller"];

async fn node(cluster: &Cluster, name: &str, spec: &str) -> String {
    cluster
        .create(&format!(
            "{{apiVersion: v1, kind: Node, metadata: {{name: {name}}}, spec: {{{spec}}}}}"
        ))
        .await;
    settle(cluster).await;
    cluster.object(&NODES, name).await["spec"]["podCIDR"]
        .str()
        .to_string()
}

#[tokio::test(start_paused = true)]
async fn nodes_get_pod_cidrs_and_existing_ones_are_kept() {
    let cluster = start(&[]).await;
    node(
        &cluster,
        "old",
        "podCIDR: 10.9.0.0/24, podCIDRs: [10.9.0.0/24]",
    )
    .await;
    let range = |options: &mut Options| options.pod_ranges = vec!["10.9.0.0/22".into()];
    cluster
        .restart_with(|builder| builder.controllers(CONTROLLER).tune_controllers(range))
        .await;
    assert_eq!(node(&cluster, "a", "").await, "10.9.1.0/24");
    assert_eq!(node(&cluster, "b", "").await, "10.9.2.0/24");
    assert_eq!(node(&cluster, "c", "").await, "10.9.3.0/24");
    assert_eq!(node(&cluster, "d", "").await, "");
    cluster.delete(&NODES, "a").await;
    cluster.advance(std::time::Duration::from_secs(60)).await;
    assert_eq!(
        cluster.object(&NODES, "d").await["spec"]["podCIDR"].str(),
        "10.9.1.0/24"
    );
}

#[tokio::test(start_paused = true)]
async fn a_node_that_changes_concurrently_keeps_its_pod_cidr() {
    let cluster = cluster_of(&CONTROLLER)
        .tune_controllers(|options| options.pod_ranges = vec!["10.9.0.0/22".into()])
        .start()
        .await;
    for name in ["a", "b"] {
        cluster
            .create(&format!(
                "{{apiVersion: v1, kind: Node, metadata: {{name: {name}}}}}"
            ))
            .await;
        for number in 0..20 {
            cluster
                .change(&NODES, name, |node| {
                    node.entry("metadata")
                        .entry("labels")
                        .set("n", number.to_string())
                })
                .await;
        }
    }
    settle(&cluster).await;
    let block = async |name| {
        cluster.object(&NODES, name).await["spec"]["podCIDR"]
            .str()
            .to_string()
    };
    assert_ne!(block("a").await, block("b").await);
    assert_eq!(
        cluster
            .objects(&mizzen_sdk::resource::EVENTS, "default")
            .await,
        [],
        "nothing failed"
    );
}

#[tokio::test(start_paused = true)]
async fn without_a_range_nodes_get_nothing() {
    let cluster = start(&CONTROLLER).await;
    assert_eq!(node(&cluster, "a", "").await, "");
}

#[tokio::test(start_paused = true)]
async fn a_node_gets_a_pod_cidr_of_each_family() {
    let ranges = ["10.9.0.0/16".to_string(), "fd00::/56".to_string()];
    let cluster = cluster_of(&CONTROLLER)
        .tune_controllers(move |options| options.pod_ranges = ranges.to_vec())
        .start()
        .await;
    node(&cluster, "a", "").await;
    let node = cluster.object(&NODES, "a").await;
    let blocks: Vec<_> = node["spec"]["podCIDRs"]
        .list()
        .iter()
        .map(|block| block.str())
        .collect();
    assert_eq!(blocks, ["10.9.0.0/24", "fd00::/64"]);
}

#[tokio::test(start_paused = true)]
async fn pod_cidrs_have_the_chosen_size_and_do_not_overlap_with_services() {
    let sizes = |options: &mut Options| {
        options.pod_ranges = vec!["10.9.0.0/24".into()];
        options.node_masks = NodeMasks {
            v4: 26,
            ..NodeMasks::default()
        };
        options.service_ranges = Cidr::parse_sloppy("10.9.0.64/27").into_iter().collect();
    };
    let cluster = cluster_of(&CONTROLLER)
        .tune_controllers(sizes)
        .start()
        .await;
    assert_eq!(node(&cluster, "a", "").await, "10.9.0.0/26");
    assert_eq!(node(&cluster, "b", "").await, "10.9.0.128/26");
    assert_eq!(node(&cluster, "c", "").await, "10.9.0.192/26");
    assert_eq!(node(&cluster, "d", "").await, "");
}
