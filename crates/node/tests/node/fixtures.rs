//! Pods, and what the nodes make of them.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use mizzen_apiserver::User;
use mizzen_sdk::dynamic::DeleteOptions;
use mizzen_sdk::resource::{EVENTS, PODS};
use mizzen_sdk::{Object, ResourceType, yaml};
use mizzen_testing::Cluster;
use mizzen_value::Value;

/// When virtual time starts.
const BEGIN: i64 = 1_700_000_000;

/// A cluster with nodes, half a second after they were registered. There are neither controllers nor a scheduler.
pub(crate) async fn start(n_nodes: usize) -> Cluster {
    let nodes = Cluster::builder().server_only().nodes(n_nodes);
    let cluster = nodes.without_bootstrap().start().await;
    cluster.advance(Duration::from_millis(500)).await;
    cluster
}

/// Advances the time.
pub(crate) async fn pass(cluster: &Cluster, seconds: u64) {
    cluster.advance(Duration::from_secs(seconds)).await;
}

/// The status code and body of a GET.
pub(crate) async fn text(cluster: &Cluster, path: &str) -> (u16, String) {
    let (uri, user) = (path.parse().unwrap(), Some(User::master("admin")));
    let get = http::Method::GET;
    let answer = cluster
        .server()
        .call(user, get, uri, Default::default(), Bytes::new())
        .await;
    let code = answer.status().as_u16();
    let text = answer.into_body().collect().await.unwrap().to_bytes();
    (code, String::from_utf8_lossy(&text).into_owned())
}

/// The seconds from the start of the test until a timestamp.
pub(crate) fn second(text: &Value) -> i64 {
    mizzen_value::time::to_unix(text.str()).map_or(-1, |seconds| seconds - BEGIN)
}

/// Creates a pod on `node-0` from its spec and annotations as YAML.
pub(crate) async fn run_pod(
    cluster: &Cluster,
    name: &str,
    annotations: &str,
    spec: &str,
) -> Object {
    let text = format!(
        "{{metadata: {{name: {name}, annotations: {{{annotations}}}}}, spec: {{nodeName: node-0, {spec}}}}}"
    );
    create(cluster, &PODS, &text).await
}

/// Creates an object in `default`.
pub(crate) async fn create(cluster: &Cluster, of: &ResourceType, text: &str) -> Object {
    let mut object = read(text);
    object.entry("metadata").set("namespace", "default");
    let client = cluster.dynamic_client();
    client.create(of, &object).await.unwrap()
}

/// A pod in `default` that exists.
pub(crate) async fn get_pod(cluster: &Cluster, name: &str) -> Object {
    cluster.object(&PODS, &format!("default/{name}")).await
}

/// Deletes a pod, optionally with a grace period.
pub(crate) async fn delete_pod(cluster: &Cluster, name: &str, grace_seconds: Option<i64>) {
    let options = DeleteOptions {
        grace_seconds,
        ..DeleteOptions::default()
    };
    let key = format!("default/{name}");
    cluster.delete_with(&PODS, &key, &options).await;
}

/// The events of a pod in order: type, reason, field path, message and count.
pub(crate) async fn events_of(cluster: &Cluster, pod: &str) -> Vec<String> {
    let mut events = cluster.objects(&EVENTS, "").await;
    events.retain(|event| event["involvedObject"]["name"].str() == pod);
    events.sort_by_key(|event| event.name().to_string());
    let show = |event: &Object| {
        let part = event["involvedObject"]["fieldPath"].str();
        format!(
            "{} {} {part} {} x{}",
            event["type"].str(),
            event["reason"].str(),
            event["message"].str(),
            event["count"].int()
        )
    };
    events.iter().map(show).collect()
}

/// Decodes an object from YAML or JSON.
pub(crate) fn read(text: &str) -> Object {
    yaml::read(text.as_bytes()).unwrap()
}

/// The phase of a pod, whether it is ready, and the state of each container.
pub(crate) fn show(pod: &Object) -> String {
    let status = &pod["status"];
    let ready = status["conditions"]
        .list()
        .iter()
        .find(|condition| condition["type"].str() == "Ready");
    let ready = ready.map_or("?", |condition| condition["status"].str());
    let lists = [
        "initContainerStatuses",
        "containerStatuses",
        "ephemeralContainerStatuses",
    ];
    let containers = lists
        .iter()
        .flat_map(|list| status[*list].list())
        .map(show_container);
    let containers: Vec<String> = containers.collect();
    format!(
        "{} ready={ready} {}",
        status["phase"].str(),
        containers.join(" ")
    )
}

fn show_container(status: &Value) -> String {
    let state = match status["state"].entries().next() {
        Some(("waiting", waiting)) => waiting["reason"].str().to_string(),
        Some(("running", _)) if status["ready"].bool() => "running".into(),
        Some(("running", _)) if status["started"].bool() => "unready".into(),
        Some(("running", _)) => "starting".into(),
        Some(("terminated", end)) => format!("{}({})", end["reason"].str(), end["exitCode"].int()),
        _ => "?".into(),
    };
    let restarts = match status["restartCount"].int() {
        0 => String::new(),
        n => format!("+{n}"),
    };
    format!("{}={state}{restarts}", status["name"].str())
}
