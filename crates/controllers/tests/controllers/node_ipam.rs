//! The node IPAM controller.

use mizzen_controllers::NodeMasks;
use mizzen_sdk::resource::NODES;
use mizzen_value::address::Cidr;

use crate::cluster::Cluster;

const CONTROLLER: [&str; 1] = ["node-ipam-controller"];

async fn node(cluster: &Cluster, name: &str, spec: &str) -> String {
    cluster
        .create(&format!(
            "{{apiVersion: v1, kind: Node, metadata: {{name: {name}}}, spec: {{{spec}}}}}"
        ))
        .await;
    cluster.settle().await;
    cluster.get(&NODES, name).await["spec"]["podCIDR"]
        .str()
        .to_string()
}

#[tokio::test(start_paused = true)]
async fn nodes_get_pod_cidrs_and_existing_ones_are_kept() {
    let mut cluster = Cluster::with(&[]).await;
    node(
        &cluster,
        "old",
        "podCIDR: 10.9.0.0/24, podCIDRs: [10.9.0.0/24]",
    )
    .await;
    cluster
        .start(&CONTROLLER, |options| {
            options.pod_ranges = vec!["10.9.0.0/22".into()]
        })
        .await;
    assert_eq!(node(&cluster, "a", "").await, "10.9.1.0/24");
    assert_eq!(node(&cluster, "b", "").await, "10.9.2.0/24");
    assert_eq!(node(&cluster, "c", "").await, "10.9.3.0/24");
    assert_eq!(node(&cluster, "d", "").await, "");
    cluster.delete(&NODES, "a").await;
    cluster.pass(std::time::Duration::from_secs(60)).await;
    assert_eq!(
        cluster.get(&NODES, "d").await["spec"]["podCIDR"].str(),
        "10.9.1.0/24"
    );
}

#[tokio::test(start_paused = true)]
async fn a_node_that_changes_concurrently_keeps_its_pod_cidr() {
    let cluster = Cluster::set_up(&CONTROLLER, |options| {
        options.pod_ranges = vec!["10.9.0.0/22".into()]
    })
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
    cluster.settle().await;
    let block = async |name| {
        cluster.get(&NODES, name).await["spec"]["podCIDR"]
            .str()
            .to_string()
    };
    assert_ne!(block("a").await, block("b").await);
    assert_eq!(
        cluster.list(&mizzen_sdk::resource::EVENTS, "default").await,
        [],
        "nothing failed"
    );
}

#[tokio::test(start_paused = true)]
async fn without_a_range_nodes_get_nothing() {
    let cluster = Cluster::with(&CONTROLLER).await;
    assert_eq!(node(&cluster, "a", "").await, "");
}

#[tokio::test(start_paused = true)]
async fn a_node_gets_a_pod_cidr_of_each_family() {
    let ranges = vec!["10.9.0.0/16".to_string(), "fd00::/56".to_string()];
    let cluster = Cluster::set_up(&CONTROLLER, |options| options.pod_ranges = ranges).await;
    node(&cluster, "a", "").await;
    let node = cluster.get(&NODES, "a").await;
    let blocks: Vec<_> = node["spec"]["podCIDRs"]
        .list()
        .iter()
        .map(|block| block.str())
        .collect();
    assert_eq!(blocks, ["10.9.0.0/24", "fd00::/64"]);
}

#[tokio::test(start_paused = true)]
async fn pod_cidrs_have_the_chosen_size_and_do_not_overlap_with_services() {
    let cluster = Cluster::set_up(&CONTROLLER, |options| {
        options.pod_ranges = vec!["10.9.0.0/24".into()];
        options.node_masks = NodeMasks {
            v4: 26,
            ..NodeMasks::default()
        };
        options.service_ranges = Cidr::parse_sloppy("10.9.0.64/27").into_iter().collect();
    })
    .await;
    assert_eq!(node(&cluster, "a", "").await, "10.9.0.0/26");
    assert_eq!(node(&cluster, "b", "").await, "10.9.0.128/26");
    assert_eq!(node(&cluster, "c", "").await, "10.9.0.192/26");
    assert_eq!(node(&cluster, "d", "").await, "");
}
