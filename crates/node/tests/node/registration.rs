//! Registration, heartbeats and removal of nodes.

use std::time::Duration;

use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;

use mizzen_authorization::{Attributes, AttributesTarget, Authorizer, Decision, DecisionReason};
use mizzen_controlplane::Options as ServerOptions;
use mizzen_node::Options;
use mizzen_registry::BoxFuture;
use mizzen_sdk::Key;
use mizzen_sdk::dynamic::PatchType;
use mizzen_sdk::resource::{LEASES, NODES, PODS};
use mizzen_testing::Cluster;
use mizzen_value::value;

use crate::fixtures::{delete_pod, events_of, get_pod, pass, run_pod, second, show, start};

fn ready(node: &mizzen_sdk::Object) -> &mizzen_value::Value {
    let mut conditions = node["status"]["conditions"].list().iter();
    conditions
        .find(|condition| condition["type"].str() == "Ready")
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn node_is_registered_like_a_kubelet() {
    let cluster = start(1).await;
    let node = cluster.object(&NODES, "node-0").await;
    assert_eq!(node.label("kubernetes.io/hostname"), Some("node-0"));
    assert_eq!(node["status"]["allocatable"]["pods"].str(), "110");
    assert_eq!(node["status"]["addresses"][0]["address"].str(), "127.0.0.1");
    let ready = ready(&node);
    assert_eq!(
        (ready["status"].str(), ready["reason"].str()),
        ("True", "KubeletReady")
    );
    assert_eq!(ready["message"].str(), "kubelet is posting ready status");
    let lease = cluster.object(&LEASES, "kube-node-lease/node-0").await;
    assert_eq!(lease.owners()[0]["uid"].str(), node.uid());
    assert_eq!(lease["spec"]["holderIdentity"].str(), "node-0");
    assert_eq!(lease["spec"]["leaseDurationSeconds"].int(), 40);
}

#[tokio::test(start_paused = true)]
async fn loopback_nodes_have_distinct_addresses() {
    for (first, expected) in [
        ("127.0.0.1", ["127.0.0.1", "127.0.0.2", "127.0.0.3"]),
        ("127.0.0.255", ["127.0.0.255", "127.0.1.0", "127.0.1.1"]),
        ("127.255.255.254", ["127.255.255.254"; 3]),
        ("192.0.2.7", ["192.0.2.7"; 3]),
        ("::1", ["::1"; 3]),
    ] {
        let nodes = Cluster::builder().server_only().nodes(3);
        let nodes = nodes.tune_nodes(move |options| options.address = first.parse().unwrap());
        let cluster = nodes.start().await;
        pass(&cluster, 1).await;
        let nodes = cluster.objects(&NODES, "").await;
        let addresses: Vec<&str> = nodes
            .iter()
            .map(|node| node["status"]["addresses"][0]["address"].str())
            .collect();
        assert_eq!(addresses, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn lease_and_status_heartbeat_intervals() {
    let cluster = start(1).await;
    let lease = async || cluster.object(&LEASES, "kube-node-lease/node-0").await;
    let (mut seen, key) = (Vec::new(), "node-0");
    for _ in 0..3 {
        pass(&cluster, 10).await;
        seen.push(second(&lease().await["spec"]["renewTime"]));
    }
    assert_eq!(seen, [10, 20, 30]);
    let heartbeat =
        async || second(&ready(&cluster.object(&NODES, key).await)["lastHeartbeatTime"]);
    assert_eq!(heartbeat().await, 0);
    pass(&cluster, 280).await;
    assert_eq!(heartbeat().await, 300);
    assert_eq!(
        second(&ready(&cluster.object(&NODES, key).await)["lastTransitionTime"]),
        0
    );
}

#[tokio::test(start_paused = true)]
async fn not_ready_node_reports_ready_again() {
    let cluster = start(1).await;
    let key = "node-0";
    let dead = value!({ "status": { "conditions": [{ "type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown" }] } });
    cluster
        .dynamic_client()
        .patch(
            &NODES,
            &Key::cluster(key),
            "status",
            PatchType::Strategic,
            &dead,
        )
        .await
        .unwrap();
    cluster.advance(Duration::from_millis(100)).await;
    assert_eq!(
        ready(&cluster.object(&NODES, key).await)["reason"].str(),
        "KubeletReady"
    );
}

#[tokio::test(start_paused = true)]
async fn deleted_lease_is_recreated() {
    let cluster = start(1).await;
    let key = "kube-node-lease/node-0";
    cluster.delete(&LEASES, key).await;
    pass(&cluster, 10).await;
    assert!(cluster.find_object(&LEASES, key).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn deleted_node_is_not_recreated() {
    let cluster = start(2).await;
    let (node, lease) = ("node-1", "kube-node-lease/node-1");
    cluster.delete(&NODES, node).await;
    cluster.advance(Duration::from_millis(100)).await;
    cluster.delete(&LEASES, lease).await;
    pass(&cluster, 30).await;
    assert!(cluster.find_object(&NODES, node).await.is_none());
    assert!(cluster.find_object(&LEASES, lease).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn restarted_agent_updates_the_capacity() {
    let cluster = start(1).await;
    let key = "node-0";
    let before = cluster.object(&NODES, key).await;
    let larger = |options: &mut Options| options.capacity.set("cpu", "64");
    cluster
        .restart_with(|builder| builder.tune_nodes(larger))
        .await;
    pass(&cluster, 1).await;
    let after = cluster.object(&NODES, key).await;
    assert_eq!(
        (after.uid(), after["status"]["allocatable"]["cpu"].str()),
        (before.uid(), "64")
    );
}

#[tokio::test(start_paused = true)]
async fn a_thousand_nodes_register_and_renew() {
    let cluster = start(1000).await;
    pass(&cluster, 25).await;
    assert_eq!(cluster.objects(&NODES, "").await.len(), 1000);
    let leases = cluster.objects(&LEASES, "").await;
    assert_eq!(leases.len(), 1000);
    let late = leases
        .iter()
        .filter(|lease| second(&lease["spec"]["renewTime"]) < 15);
    assert_eq!(late.count(), 0);
}

/// An authorizer that records its requests and has no opinion.
#[derive(Debug, Default)]
struct Listener(Mutex<BTreeSet<String>>);

impl Authorizer for Listener {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> BoxFuture<'a, Decision> {
        if let AttributesTarget::Resource(wanted) = attributes.target {
            let name = attributes.user.name.as_str();
            let asked = format!(
                "{name} {} {}/{}",
                attributes.verb, wanted.resource, wanted.subresource
            );
            self.0.lock().insert(asked.trim_end_matches('/').into());
        }
        Box::pin(std::future::ready(Decision::NoOpinion(
            DecisionReason::default(),
        )))
    }
}

#[tokio::test(start_paused = true)]
async fn nodes_impersonate_their_own_user() {
    let listener = Arc::new(Listener::default());
    let authorizer = listener.clone();
    let listen = move |options: &mut ServerOptions| {
        options.plugins.enable("NodeRestriction").unwrap();
        options.server.authorizers = vec![authorizer.clone()];
    };
    let nodes = Cluster::builder().server_only().nodes(2);
    let cluster = nodes.tune_server(listen).start().await;
    cluster.advance(Duration::from_millis(500)).await;
    run_pod(&cluster, "p", "", "containers: [{name: c, image: i}]").await;
    pass(&cluster, 11).await;
    assert_eq!(
        show(&get_pod(&cluster, "p").await),
        "Running ready=True c=running"
    );
    assert!(!events_of(&cluster, "p").await.is_empty());
    delete_pod(&cluster, "p", None).await;
    pass(&cluster, 31).await;
    assert!(cluster.find_object(&PODS, "default/p").await.is_none());
    let asked = std::mem::take(&mut *listener.0.lock()).into_iter();
    let (asked, shared): (BTreeSet<String>, BTreeSet<String>) =
        asked.partition(|asked| asked.starts_with("system:node:"));
    // The agent reads for all nodes, and writes nothing.
    let is_read = |asked: &String| asked.contains("agent list ") || asked.contains("agent watch ");
    assert!(shared.iter().all(is_read), "{shared:?}");
    let expected = [
        "node-0 create events",
        "node-0 create leases",
        "node-0 create nodes",
        "node-0 delete pods",
        "node-0 get leases",
        "node-0 patch pods/status",
        "node-0 update leases",
        "node-1 create leases",
        "node-1 create nodes",
        "node-1 get leases",
        "node-1 update leases",
    ];
    let expected: BTreeSet<String> = expected
        .iter()
        .map(|asked| format!("system:node:{asked}"))
        .collect();
    assert_eq!(asked, expected);
}
