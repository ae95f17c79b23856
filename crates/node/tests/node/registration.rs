//! Registration, heartbeats and removal of nodes.

use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;

use kube::Client;
use mizzen_apiserver::User;
use mizzen_authorization::{Attributes, AttributesTarget, Authorizer, Decision, DecisionReason};
use mizzen_controlplane::Plugins;
use mizzen_registry::BoxFuture;
use mizzen_sdk::Key;
use mizzen_sdk::dynamic::{DeleteOptions, PatchType};
use mizzen_sdk::resource::{LEASES, NODES, PODS};
use mizzen_value::value;

use crate::cluster::{Cluster, show};

fn ready(node: &mizzen_sdk::Object) -> &mizzen_value::Value {
    let mut conditions = node["status"]["conditions"].list().iter();
    conditions
        .find(|condition| condition["type"].str() == "Ready")
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn node_is_registered_like_a_kubelet() {
    let cluster = Cluster::with(1).await;
    let node = cluster.get(&NODES, &Key::cluster("node-0")).await;
    assert_eq!(node.label("kubernetes.io/hostname"), Some("node-0"));
    assert_eq!(node["status"]["allocatable"]["pods"].str(), "110");
    assert_eq!(node["status"]["addresses"][0]["address"].str(), "127.0.0.1");
    let ready = ready(&node);
    assert_eq!(
        (ready["status"].str(), ready["reason"].str()),
        ("True", "KubeletReady")
    );
    assert_eq!(ready["message"].str(), "kubelet is posting ready status");
    let lease = cluster
        .get(&LEASES, &Key::new("kube-node-lease", "node-0"))
        .await;
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
        let mut cluster = Cluster::new().await;
        cluster.start(3, |options| options.address = first.parse().unwrap());
        cluster.pass(1).await;
        let nodes = cluster.list(&NODES).await;
        let addresses: Vec<&str> = nodes
            .iter()
            .map(|node| node["status"]["addresses"][0]["address"].str())
            .collect();
        assert_eq!(addresses, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn lease_and_status_heartbeat_intervals() {
    let cluster = Cluster::with(1).await;
    let lease = async || {
        cluster
            .get(&LEASES, &Key::new("kube-node-lease", "node-0"))
            .await
    };
    let (mut seen, key) = (Vec::new(), Key::cluster("node-0"));
    for _ in 0..3 {
        cluster.pass(10).await;
        seen.push(Cluster::second(&lease().await["spec"]["renewTime"]));
    }
    assert_eq!(seen, [10, 20, 30]);
    let heartbeat =
        async || Cluster::second(&ready(&cluster.get(&NODES, &key).await)["lastHeartbeatTime"]);
    assert_eq!(heartbeat().await, 0);
    cluster.pass(280).await;
    assert_eq!(heartbeat().await, 300);
    assert_eq!(
        Cluster::second(&ready(&cluster.get(&NODES, &key).await)["lastTransitionTime"]),
        0
    );
}

#[tokio::test(start_paused = true)]
async fn not_ready_node_reports_ready_again() {
    let cluster = Cluster::with(1).await;
    let key = Key::cluster("node-0");
    let dead = value!({ "status": { "conditions": [{ "type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown" }] } });
    cluster
        .api
        .patch(&NODES, &key, "status", PatchType::Strategic, &dead)
        .await
        .unwrap();
    cluster.pass_millis(100).await;
    assert_eq!(
        ready(&cluster.get(&NODES, &key).await)["reason"].str(),
        "KubeletReady"
    );
}

#[tokio::test(start_paused = true)]
async fn deleted_lease_is_recreated() {
    let cluster = Cluster::with(1).await;
    let key = Key::new("kube-node-lease", "node-0");
    cluster
        .api
        .delete(&LEASES, &key, &DeleteOptions::default())
        .await
        .unwrap();
    cluster.pass(10).await;
    assert!(cluster.find(&LEASES, &key).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn deleted_node_is_not_recreated() {
    let cluster = Cluster::with(2).await;
    let (node, lease) = (
        Key::cluster("node-1"),
        Key::new("kube-node-lease", "node-1"),
    );
    cluster
        .api
        .delete(&NODES, &node, &DeleteOptions::default())
        .await
        .unwrap();
    cluster.pass_millis(100).await;
    cluster
        .api
        .delete(&LEASES, &lease, &DeleteOptions::default())
        .await
        .unwrap();
    cluster.pass(30).await;
    assert!(cluster.find(&NODES, &node).await.is_none());
    assert!(cluster.find(&LEASES, &lease).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn restarted_agent_updates_the_capacity() {
    let mut cluster = Cluster::with(1).await;
    let key = Key::cluster("node-0");
    let before = cluster.get(&NODES, &key).await;
    cluster.start(1, |options| options.capacity.set("cpu", "64"));
    cluster.pass(1).await;
    let after = cluster.get(&NODES, &key).await;
    assert_eq!(
        (after.uid(), after["status"]["allocatable"]["cpu"].str()),
        (before.uid(), "64")
    );
}

#[tokio::test(start_paused = true)]
async fn a_thousand_nodes_register_and_renew() {
    let cluster = Cluster::with(1000).await;
    cluster.pass(25).await;
    assert_eq!(cluster.list(&NODES).await.len(), 1000);
    let leases = cluster.list(&LEASES).await;
    assert_eq!(leases.len(), 1000);
    let late = leases
        .iter()
        .filter(|lease| Cluster::second(&lease["spec"]["renewTime"]) < 15);
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
    let mut cluster = Cluster::set_up(|options| {
        options.plugins = Plugins::alone();
        options.plugins.enable("NodeRestriction").unwrap();
        options.server.authorizers = vec![listener.clone()];
    })
    .await;
    let server = cluster.server.clone();
    cluster.start(2, |options| {
        let client = move |name: &str| {
            Client::new(server.in_process(User::node(name), "kubelet"), "default")
        };
        options.client_of = Arc::new(client);
    });
    cluster.pass_millis(500).await;
    cluster
        .run_pod("p", "", "containers: [{name: c, image: i}]")
        .await;
    cluster.pass(11).await;
    assert_eq!(
        show(&cluster.pod("p").await),
        "Running ready=True c=running"
    );
    assert!(!cluster.told("p").await.is_empty());
    cluster.delete_pod("p", None).await;
    cluster.pass(31).await;
    assert!(
        cluster
            .find(&PODS, &Key::new("default", "p"))
            .await
            .is_none()
    );
    let asked = listener.0.lock();
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
    assert_eq!(*asked, expected);
}
