//! What `metrics.k8s.io` answers.

use mizzen_sdk::dynamic::DeleteOptions;
use mizzen_sdk::{ResourceType, resource};
use mizzen_value::{Value, json};

use crate::fixtures::{get, pass, read, run_pod, start, start_at, table};

const NODES: &str = "/apis/metrics.k8s.io/v1beta1/nodes";
const ALL_PODS: &str = "/apis/metrics.k8s.io/v1beta1/pods";
const PODS: &str = "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods";
const API_SERVICES: ResourceType =
    ResourceType::cluster("apiregistration.k8s.io", "v1", "apiservices", "APIService");
const API_SERVICE: &str = "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.metrics.k8s.io";

/// Names with CPU and memory of a list.
fn usage(list: &Value) -> Vec<String> {
    let row = |item: &Value| {
        let containers = item["containers"].list().iter();
        let used = std::iter::once(&item["usage"])
            .chain(containers.map(|container| &container["usage"]))
            .filter(|usage| !usage.is_null())
            .map(|usage| format!(" {} {}", usage["cpu"].str(), usage["memory"].str()));
        format!(
            "{}{}",
            item["metadata"]["name"].str(),
            used.collect::<String>()
        )
    };
    list["items"].list().iter().map(row).collect()
}

#[tokio::test(start_paused = true)]
async fn usage_of_nodes_and_pods_comes_from_annotations() {
    let cluster = start().await;
    run_pod(&cluster, "a", "node-0", "cpu=250m,memory=64Mi").await;
    run_pod(&cluster, "b", "node-1", "cpu=1500m").await;
    run_pod(&cluster, "waiting", "", "cpu=1").await;
    cluster
        .create(
            "{apiVersion: v1, kind: Pod, metadata: {name: two, namespace: other}, \
             spec: {nodeName: node-0, containers: [{name: one, image: i}, {name: two, image: i}]}}",
        )
        .await;
    pass(&cluster, 30).await;
    let pods = read(&cluster, ALL_PODS).await;
    assert_eq!(
        usage(&pods),
        ["a 250m 64Mi", "b 1500m 16Mi", "two 1m 16Mi 1m 16Mi"]
    );
    let pod = &pods["items"][0];
    let now = mizzen_value::time::from_unix(1_700_000_000 + 36);
    assert_eq!(
        json::to_string(pod),
        format!(
            "{{\"metadata\":{{\"name\":\"a\",\
             \"namespace\":\"default\",\"creationTimestamp\":\"{now}\",\"labels\":{{\"app\":\"a\"}}}},\"timestamp\":\"{now}\",\
             \"window\":\"1s\",\"containers\":[{{\"name\":\"web\",\"usage\":{{\"cpu\":\"250m\",\"memory\":\"64Mi\"}}}}]}}"
        )
    );
    // A node has its pods and 50m of its own.
    let nodes = read(&cluster, NODES).await;
    assert_eq!(usage(&nodes), ["node-0 302m 352Mi", "node-1 1550m 272Mi"]);
    assert_eq!(nodes["kind"].str(), "NodeMetricsList");
    assert!(nodes["metadata"].is_empty(), "{nodes:?}");
    assert_eq!(
        nodes["items"][0]["metadata"]["labels"]["kubernetes.io/hostname"].str(),
        "node-0"
    );
}

#[tokio::test(start_paused = true)]
async fn metrics_are_selected_like_the_objects_that_they_are_of() {
    let cluster = start().await;
    for name in ["a", "b", "waiting"] {
        let node = if name == "waiting" { "" } else { "node-0" };
        run_pod(&cluster, name, node, "cpu=250m").await;
    }
    pass(&cluster, 30).await;
    let selected = async |query: &str| usage(&read(&cluster, &format!("{PODS}{query}")).await);
    assert_eq!(selected("?labelSelector=app%3Db").await, ["b 250m 16Mi"]);
    assert_eq!(
        selected("?labelSelector=app%20in%20(a,waiting)").await,
        ["a 250m 16Mi"]
    );
    assert_eq!(
        selected("?fieldSelector=metadata.name%3Da").await,
        ["a 250m 16Mi"]
    );
    assert_eq!(
        usage(
            &read(
                &cluster,
                "/apis/metrics.k8s.io/v1beta1/namespaces/other/pods"
            )
            .await
        ),
        [""; 0]
    );
    let one = read(&cluster, &format!("{PODS}/a")).await;
    assert_eq!(one["containers"][0]["usage"]["cpu"].str(), "250m");
    let node = read(&cluster, &format!("{NODES}/node-0")).await;
    assert_eq!(node["usage"]["cpu"].str(), "550m");
    let refusals = [
        (
            format!("{PODS}/waiting"),
            404,
            "podmetrics.metrics.k8s.io \"default/waiting\" not found",
        ),
        (format!("{PODS}/none"), 404, "pods \"none\" not found"),
        (format!("{NODES}/none"), 404, "nodes \"none\" not found"),
        (
            format!("{PODS}?labelSelector=a%3D%3D%3D"),
            400,
            "found '=', expected: identifier",
        ),
    ];
    for (path, code, message) in refusals {
        let (found, status) = get(&cluster, &path, "application/json").await;
        assert_eq!(found, code, "{path}");
        assert!(status["message"].str().contains(message), "{status:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn usage_follows_its_steps_and_a_changed_annotation() {
    let cluster = start().await;
    run_pod(
        &cluster,
        "a",
        "node-0",
        "cpu=100m for 1m then cpu=800m,memory=1Gi",
    )
    .await;
    pass(&cluster, 30).await;
    let used = async || usage(&read(&cluster, PODS).await);
    assert_eq!(used().await, ["a 100m 16Mi"]);
    pass(&cluster, 90).await;
    assert_eq!(used().await, ["a 800m 1Gi"]);
    let change = r#"{"metadata":{"annotations":{"mizzen.dev/usage":"cpu=20m"}}}"#;
    cluster
        .patch(&resource::PODS, "default/a", "", change)
        .await;
    pass(&cluster, 15).await;
    assert_eq!(used().await, ["a 20m 16Mi"]);
    let change = r#"{"metadata":{"annotations":{"mizzen.dev/usage":"cpu=2"}}}"#;
    cluster
        .patch(&resource::PODS, "default/a", "", change)
        .await;
    pass(&cluster, 15).await;
    assert_eq!(used().await, ["a 2 16Mi"]);
    // The node's counter does not fall with the pod.
    let now = DeleteOptions {
        grace_seconds: Some(0),
        ..DeleteOptions::default()
    };
    cluster
        .delete_with(&resource::PODS, "default/a", &now)
        .await;
    pass(&cluster, 15).await;
    assert_eq!(used().await, [""; 0]);
    assert_eq!(
        usage(&read(&cluster, NODES).await),
        ["node-0 50m 256Mi", "node-1 50m 256Mi"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_is_scraped_on_request_and_at_most_every_ten_seconds() {
    let cluster = start().await;
    run_pod(&cluster, "a", "node-0", "cpu=100m").await;
    pass(&cluster, 30).await;
    let scraped = async || {
        read(&cluster, PODS).await["items"][0]["timestamp"]
            .str()
            .to_owned()
    };
    let first = scraped().await;
    pass(&cluster, 8).await;
    assert_eq!(scraped().await, first, "it is fresh");
    pass(&cluster, 4).await;
    let second = scraped().await;
    assert_ne!(second, first);
    // Were it scraped in the meantime, usage would be measured from that time on.
    pass(&cluster, 30).await;
    let window = read(&cluster, PODS).await["items"][0]["window"]
        .str()
        .to_owned();
    let seconds: f64 = window.trim_end_matches('s').parse().unwrap();
    assert!(seconds >= 30.0, "{window}");
}

#[tokio::test(start_paused = true)]
async fn nodes_that_share_an_address_are_distinguished() {
    let cluster = start_at("::1".parse().unwrap()).await;
    run_pod(&cluster, "a", "node-1", "cpu=250m").await;
    pass(&cluster, 30).await;
    assert_eq!(
        usage(&read(&cluster, NODES).await),
        ["node-0 50m 256Mi", "node-1 300m 272Mi"]
    );
}

#[tokio::test(start_paused = true)]
async fn the_group_is_discovered_described_and_shown_as_a_table() {
    let cluster = start().await;
    run_pod(&cluster, "a", "node-0", "cpu=250m").await;
    pass(&cluster, 30).await;
    assert_eq!(
        table(&cluster, PODS).await,
        ["Name cpu memory Window", "a 250m 16Mi 1s"]
    );
    let groups = read(&cluster, "/apis").await;
    let last = groups["groups"].list().last().unwrap();
    assert_eq!(last["name"].str(), "metrics.k8s.io");
    let group = read(&cluster, "/apis/metrics.k8s.io").await;
    assert_eq!(group["preferredVersion"]["version"].str(), "v1beta1");
    let resources = read(&cluster, "/apis/metrics.k8s.io/v1beta1").await;
    assert_eq!(
        json::to_string(&resources["resources"]),
        r#"[{"name":"nodes","singularName":"","namespaced":false,"kind":"NodeMetrics","verbs":["get","list"]},{"name":"pods","singularName":"","namespaced":true,"kind":"PodMetrics","verbs":["get","list"]}]"#
    );
    let index = read(&cluster, "/openapi/v3").await;
    let url = &index["paths"]["apis/metrics.k8s.io/v1beta1"]["serverRelativeURL"];
    let document = read(&cluster, url.str()).await;
    assert!(document["paths"].get(NODES).is_some(), "{url:?}");
    let document = read(&cluster, "/openapi/v2").await;
    assert!(document["paths"].get(ALL_PODS).is_some());
    assert!(document["paths"].get("/api/v1/pods").is_some());
    let service = read(&cluster, API_SERVICE).await;
    assert_eq!(
        json::to_string(&service["spec"]),
        r#"{"group":"metrics.k8s.io","version":"v1beta1","groupPriorityMinimum":100,"versionPriority":100}"#
    );
    assert_eq!(service["status"]["conditions"][0]["reason"].str(), "Local");
}

#[tokio::test(start_paused = true)]
async fn an_api_service_of_another_server_wins() {
    let cluster = start().await;
    assert_eq!(usage(&read(&cluster, PODS).await), [""; 0]);
    let change = r#"{"spec":{"insecureSkipTLSVerify":true,"service":{"namespace":"default","name":"none"}}}"#;
    cluster
        .patch(&API_SERVICES, "v1beta1.metrics.k8s.io", "", change)
        .await;
    pass(&cluster, 60).await;
    let service = read(&cluster, API_SERVICE).await;
    assert_eq!(service["spec"]["service"]["name"].str(), "none");
    assert_eq!(
        service["status"]["conditions"][0]["reason"].str(),
        "ServiceNotFound"
    );
    assert_eq!(get(&cluster, PODS, "application/json").await.0, 503);
    cluster
        .delete(&API_SERVICES, "v1beta1.metrics.k8s.io")
        .await;
    pass(&cluster, 60).await;
    assert_eq!(usage(&read(&cluster, PODS).await), [""; 0]);
}
