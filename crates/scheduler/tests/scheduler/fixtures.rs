//! Nodes and pods, and what the scheduler makes of them.

use std::sync::Arc;
use std::time::Duration;

use mizzen_scheduler::Configuration;
use mizzen_sdk::dynamic::{DeleteOptions, ListOptions};
use mizzen_sdk::resource::{EVENTS, NODES, PODS, PRIORITY_CLASSES};
use mizzen_sdk::{Object, ResourceType, yaml};
use mizzen_testing::{Builder, Cluster};
use mizzen_value::Value;

/// A cluster with a scheduler of the default configuration, without nodes.
pub(crate) async fn start() -> Cluster {
    configured("").await
}

/// The same with a configuration. `text` follows its apiVersion and kind.
pub(crate) async fn configured(text: &str) -> Cluster {
    start_with(parse(text)).await
}

pub(crate) async fn start_with(configuration: Configuration) -> Cluster {
    let cluster = start_server().await;
    start_scheduler(&cluster, configuration).await;
    cluster
}

/// Starts an API server alone.
pub(crate) async fn start_server() -> Cluster {
    let server = Cluster::builder().server_only().without_bootstrap();
    server.start().await
}

/// Starts the scheduler of a cluster.
pub(crate) async fn start_scheduler(cluster: &Cluster, configuration: Configuration) {
    let configuration = Arc::new(configuration);
    let with_scheduler = |builder: Builder| {
        builder.scheduler(true).tune_scheduler(move |options| {
            options.configuration = configuration.clone();
            // The first of equal nodes.
            options.rng = Arc::new(|| 0.0);
        })
    };
    cluster.restart_with(with_scheduler).await;
}

/// A configuration. `text` follows its apiVersion and kind.
pub(crate) fn parse(text: &str) -> Configuration {
    let head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";
    Configuration::parse(format!("{head}{text}").as_bytes()).unwrap()
}

/// Creates a node with 4 CPUs, 8 GiB and 110 pods, merged with `more`.
pub(crate) async fn create_node(cluster: &Cluster, name: &str, more: &str) -> Object {
    let mut node = read(&format!(
        "{{apiVersion: v1, kind: Node, metadata: {{name: {name}, labels: {{kubernetes.io/hostname: {name}}}}},
           status: {{allocatable: {{cpu: '4', memory: 8Gi, pods: '110'}}}}}}"
    ));
    merge(&mut node.0, &read(more).0);
    let taints = node["spec"]["taints"].clone();
    let client = cluster.dynamic_client();
    let mut created = client.create(&NODES, &node).await.unwrap();
    // Removes the not-ready taint that the server adds to new nodes.
    created.entry("spec").set("taints", taints);
    client.update(&NODES, &created).await.unwrap()
}

/// Creates a pod in `default`, merged with `more`.
pub(crate) async fn create_pod(cluster: &Cluster, name: &str, more: &str) -> Object {
    let mut pod = read(&format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: default}},
           spec: {{containers: [{{name: c, image: i}}]}}}}"
    ));
    merge(&mut pod.0, &read(more).0);
    cluster.dynamic_client().create(&PODS, &pod).await.unwrap()
}

/// Creates a pod with a CPU request and a priority.
pub(crate) async fn pod_of(cluster: &Cluster, name: &str, cpu: &str, value: i32) -> Object {
    let class = format!("p{value}");
    if value != 0
        && cluster
            .find_object(&PRIORITY_CLASSES, &class)
            .await
            .is_none()
    {
        priority(cluster, &class, value, "PreemptLowerPriority").await;
    }
    let class = match value {
        0 => String::new(),
        _ => format!("priorityClassName: {class}, "),
    };
    let container = format!("{{name: c, image: i, resources: {{requests: {{cpu: '{cpu}'}}}}}}");
    let spec = format!("{{spec: {{{class}containers: [{container}]}}}}");
    create_pod(cluster, name, &spec).await
}

/// Creates a priority class.
pub(crate) async fn priority(cluster: &Cluster, name: &str, value: i32, policy: &str) {
    let class = format!(
        "{{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {{name: {name}}}, value: {value}, preemptionPolicy: {policy}}}"
    );
    cluster.create(&class).await;
}

/// Deletes an object without a grace period.
pub(crate) async fn delete_now(cluster: &Cluster, of: &ResourceType, key: &str) {
    let options = DeleteOptions {
        grace_seconds: Some(0),
        ..DeleteOptions::default()
    };
    cluster.delete_with(of, key, &options).await;
}

/// The node of a pod in `default`.
pub(crate) async fn place(cluster: &Cluster, pod: &str) -> String {
    settle(cluster).await;
    let pod = cluster.object(&PODS, &format!("default/{pod}")).await;
    pod["spec"]["nodeName"].str().to_string()
}

/// The reason and message of the PodScheduled condition of a pod in `default`.
pub(crate) async fn refusal(cluster: &Cluster, pod: &str) -> (String, String) {
    settle(cluster).await;
    let pod = cluster.object(&PODS, &format!("default/{pod}")).await;
    let mut conditions = pod["status"]["conditions"].list().iter();
    let condition = conditions.find(|condition| condition["type"].str() == "PodScheduled");
    let condition = condition.cloned().unwrap_or_default();
    (
        condition["reason"].str().to_string(),
        condition["message"].str().to_string(),
    )
}

/// All events with a reason about a pod in `default`.
pub(crate) async fn events(cluster: &Cluster, pod: &str, reason: &str) -> Vec<Object> {
    settle(cluster).await;
    let which = ListOptions {
        fields: format!("involvedObject.name={pod},reason={reason}"),
        ..ListOptions::default()
    };
    let client = cluster.dynamic_client();
    client.list(&EVENTS, "default", &which).await.unwrap()
}

/// Runs all tasks that are due. It takes less than the first back-off of a pod.
pub(crate) async fn settle(cluster: &Cluster) {
    cluster.advance(Duration::from_millis(300)).await;
}

/// Decodes an object from YAML or JSON.
fn read(text: &str) -> Object {
    yaml::read(text.as_bytes()).unwrap()
}

/// Merges `more` into `value`.
fn merge(value: &mut Value, more: &Value) {
    for (key, more) in more.entries() {
        match more {
            Value::Map(_) => merge(value.entry(key), more),
            more => value.set(key, more.clone()),
        }
    }
}
