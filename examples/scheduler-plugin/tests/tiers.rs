//! The scheduler with its plugin, against an API server in the same process.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use mizzen_apiserver::{Server, User};
use mizzen_scheduler::{Handle, Options, start};
use mizzen_sdk::Object;
use mizzen_sdk::dynamic::DynamicClient;
use mizzen_sdk::resource::{NODES, PODS};
use mizzen_value::yaml;

/// An API server with nodes, and the scheduler.
struct TierCluster {
    api: DynamicClient,
    _scheduler: Handle,
}

impl TierCluster {
    async fn start() -> TierCluster {
        let server: Server = mizzen_controlplane::in_memory().await;
        let client = || Client::new(server.in_process(User::master("admin"), "test"), "default");
        let mut options = Options::new(client());
        let file = include_bytes!("../manifests/configuration.yaml");
        options.configuration = Arc::new(scheduler_plugin::configuration(file).unwrap());
        let scheduler = start(options).unwrap();
        scheduler.synced().await;
        let api = DynamicClient::new(client());
        TierCluster {
            api,
            _scheduler: scheduler,
        }
    }

    async fn create_node(&self, name: &str, tier: &str) {
        let node = read(&format!(
            "{{metadata: {{name: {name}, labels: {{example.com/tier: {tier}}}}}, \
              status: {{allocatable: {{cpu: '4', memory: 8Gi, pods: '110'}}}}}}"
        ));
        let mut node = self.api.create(&NODES, &node).await.unwrap();
        // A new node has a taint until its agent is ready.
        node.entry("spec").remove("taints");
        self.api.update(&NODES, &node).await.unwrap();
    }

    /// Creates a pod, and returns its node.
    async fn schedule(&self, pod: &Object) -> String {
        let mut pod = pod.clone();
        pod.entry("metadata").set("namespace", "default");
        self.api.create(&PODS, &pod).await.unwrap();
        // The clock is paused: everything that is due now happens first.
        tokio::time::sleep(Duration::from_millis(300)).await;
        let pod = self.api.get(&PODS, &pod.key()).await.unwrap();
        pod["spec"]["nodeName"].str().to_owned()
    }
}

fn read(text: &str) -> Object {
    Object(yaml::read(text.as_bytes()).unwrap().value)
}

/// The pods of `manifests/pods.yaml`.
fn pods() -> Vec<Object> {
    let documents = include_str!("../manifests/pods.yaml").split("---\n");
    documents.map(read).collect()
}

#[tokio::test(start_paused = true)]
async fn pods_of_an_application_share_a_node_of_their_tier() {
    let cluster = TierCluster::start().await;
    for (name, tier) in [("a", "tin"), ("b", "gold"), ("c", "gold"), ("d", "gold")] {
        cluster.create_node(name, tier).await;
    }
    let [first, second] = &pods()[..] else {
        panic!("two pods")
    };
    let node = cluster.schedule(first).await;
    assert!(["b", "c", "d"].contains(&node.as_str()), "{node}");
    assert_eq!(cluster.schedule(second).await, node);
}

#[tokio::test(start_paused = true)]
async fn a_pod_waits_for_a_node_of_its_tier() {
    let cluster = TierCluster::start().await;
    cluster.create_node("a", "tin").await;
    let pod = &pods()[0];
    assert_eq!(cluster.schedule(pod).await, "");
    let key = "default/web-0".parse().unwrap();
    let waiting = cluster.api.get(&PODS, &key).await.unwrap();
    let message = waiting["status"]["conditions"].list()[0]["message"].str();
    let expected = "0/1 nodes are available: 1 node(s) were not in tier gold.";
    assert!(message.starts_with(expected), "{message}");
    cluster.create_node("b", "gold").await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    let pod = cluster.api.get(&PODS, &key).await.unwrap();
    assert_eq!(pod["spec"]["nodeName"].str(), "b");
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
