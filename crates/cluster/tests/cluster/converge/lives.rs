//! The life of pods and nodes in a whole control plane.

use std::time::Duration;

use mizzen_sdk::resource::{NODES, PODS};
use mizzen_sdk::{Key, Object};
use mizzen_value::{Value, json};

use super::faults::SeededRandom;
use super::world::World;

async fn world() -> World {
    let mut world = World::new(SeededRandom::new(1)).await;
    world.start().await;
    world.pass(Duration::from_secs(5)).await;
    world
}

fn conditions(object: &Value) -> Vec<String> {
    let conditions = object["status"]["conditions"].list().iter();
    conditions
        .map(|one| format!("{}={}", one["type"].str(), one["status"].str()))
        .collect()
}

/// The conditions of a pod in the order in which they appeared.
async fn history(world: &World, name: &str) -> Vec<String> {
    let path = format!(
        "/api/v1/namespaces/default/pods?watch=true&resourceVersion=1&timeoutSeconds=1&fieldSelector=metadata.name={name}"
    );
    let request = http::Request::get(path).body(Vec::new()).unwrap();
    let text = world.api.client().request_text(request).await.unwrap();
    let events = text
        .lines()
        .map(|line| json::parse(line.as_bytes()).unwrap());
    let mut all: Vec<String> = events
        .map(|event| conditions(&event["object"]).join(" "))
        .collect();
    all.dedup();
    all
}

const SCHEDULED: &str = "PodScheduled=True";
const CREATING: &str = "PodReadyToStartContainers=False Initialized=True Ready=False ContainersReady=False PodScheduled=True";
const READY: &str = "PodReadyToStartContainers=True Initialized=True Ready=True ContainersReady=True PodScheduled=True";

#[tokio::test(start_paused = true)]
async fn the_conditions_of_a_new_pod_appear_in_their_order() {
    let world = world().await;
    world
        .apply("{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: default}, spec: {containers: [{name: c, image: i}]}}")
        .await;
    world.pass(Duration::from_secs(10)).await;
    assert_eq!(history(&world, "p").await, ["", SCHEDULED, CREATING, READY]);
}

#[tokio::test(start_paused = true)]
async fn an_unschedulable_pod_is_scheduled_when_a_node_appears() {
    let world = world().await;
    world
        .apply("{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: default}, spec: {nodeSelector: {kubernetes.io/hostname: late-0}, containers: [{name: c, image: i}]}}")
        .await;
    world.pass(Duration::from_secs(10)).await;
    let _late = world.nodes("late", 1);
    world.pass(Duration::from_secs(60)).await;
    assert_eq!(
        history(&world, "p").await,
        ["", "PodScheduled=False", SCHEDULED, CREATING, READY]
    );
}

/// A pod on the node that is lost.
fn pod(name: &str, tolerations: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: default}}, spec: {{nodeName: late-0, \
         tolerations: {tolerations}, containers: [{{name: c, image: i}}]}}}}"
    )
}

async fn node(world: &World) -> (Vec<String>, String) {
    let node = world
        .api
        .get(&NODES, &Key::new("", "late-0"))
        .await
        .unwrap();
    let taints = node["spec"]["taints"].list().iter();
    let taints = taints
        .map(|taint| format!("{}:{}", taint["key"].str(), taint["effect"].str()))
        .collect();
    let ready = conditions(&node)
        .into_iter()
        .find(|condition| condition.starts_with("Ready="));
    (taints, ready.unwrap_or_default())
}

async fn find(world: &World, name: &str) -> Option<Object> {
    let pods = world
        .api
        .list(&PODS, "default", &Default::default())
        .await
        .unwrap();
    pods.into_iter().find(|pod| pod.name() == name)
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_node_becomes_ready_again() {
    let world = world().await;
    let late = world.nodes("late", 1);
    world.pass(Duration::from_secs(30)).await;
    world.apply(&pod("patient", "[{operator: Exists}]")).await;
    world.apply(&pod("hasty", "[]")).await;
    world.pass(Duration::from_secs(10)).await;
    assert_eq!(node(&world).await, (vec![], "Ready=True".into()));
    let is_ready = |pod: &Object| conditions(pod).contains(&"Ready=True".to_owned());
    for name in ["patient", "hasty"] {
        assert!(is_ready(&find(&world, name).await.unwrap()), "{name}");
    }

    drop(late);
    world.pass(Duration::from_secs(120)).await;
    let lost = [
        "node.kubernetes.io/unreachable:NoSchedule",
        "node.kubernetes.io/unreachable:NoExecute",
    ];
    assert_eq!(
        node(&world).await,
        (lost.map(String::from).into(), "Ready=Unknown".into())
    );
    assert!(
        !find(&world, "hasty").await.unwrap().is_terminating(),
        "everybody is patient for five minutes"
    );
    world.pass(Duration::from_secs(300)).await;
    let (patient, hasty) = (
        find(&world, "patient").await.unwrap(),
        find(&world, "hasty").await.unwrap(),
    );
    assert!(!is_ready(&patient) && !patient.is_terminating());
    assert!(
        !is_ready(&hasty) && hasty.is_terminating(),
        "it is told to go, and nobody is there to say that it has"
    );

    let _late = world.nodes("late", 1);
    world.pass(Duration::from_secs(60)).await;
    assert_eq!(node(&world).await, (vec![], "Ready=True".into()));
    let back = find(&world, "patient").await.unwrap();
    assert!(is_ready(&back), "{:?}", conditions(&back));
    assert_eq!(back["metadata"]["uid"], patient["metadata"]["uid"]);
    assert!(find(&world, "hasty").await.is_none());
}
