//! `kubectl top`, and the metrics API.

use super::Kubectl;
use crate::process::Home;

/// The rows of a table without its headings, with one space between cells.
fn rows(table: &str) -> Vec<String> {
    let cells = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    table.lines().skip(1).map(cells).collect()
}

#[tokio::test]
async fn top_shows_what_simulated_nodes_and_pods_use() {
    let home = Home::in_memory().whole().with("--nodes=2");
    let Some(kubectl) = Kubectl::start_in(home).await else {
        return;
    };
    kubectl.run("create -f usage.yaml").await;
    kubectl.run("wait --for=condition=Ready pod/busy").await;
    assert_eq!(rows(&kubectl.run("top pods").await), ["busy 260m 80Mi"]);
    assert_eq!(
        rows(&kubectl.run("top pod busy --containers").await),
        ["busy side 10m 16Mi", "busy web 250m 64Mi"]
    );
    let sum = "top pods -A --sum -l app=busy";
    if !kubectl.lacks(sum) {
        let found = rows(&kubectl.run(sum).await);
        assert_eq!(
            [&found[0], found.last().unwrap()],
            ["default busy 260m 80Mi", "260m 80Mi"]
        );
    }
    // Both have 50m and 256Mi of their own, of 8 cores and 32Gi.
    let mut nodes = rows(&kubectl.run("top nodes").await);
    nodes.sort_by_key(|row| row.contains("310m"));
    let used: Vec<&str> = nodes.iter().map(|row| &row["node-0 ".len()..]).collect();
    assert_eq!(used, ["50m 0% 256Mi 0%", "310m 3% 336Mi 1%"]);
    kubectl
        .shows(
            "get podmetrics",
            &["NAME", "CPU", "MEMORY", "WINDOW", "260m", "80Mi"],
        )
        .await;
    kubectl
        .shows("get --raw /apis/metrics.k8s.io/v1beta1", &["NodeMetrics"])
        .await;
    let refused = kubectl.refused("top pod none").await;
    assert!(refused.contains("pods \"none\" not found"), "{refused}");
    // Metrics of a namespace may be read with the role `view`.
    kubectl
        .run("create rolebinding view --clusterrole=view --user=jane")
        .await;
    let viewed = kubectl.run("top pods --as=jane").await;
    assert_eq!(rows(&viewed), ["busy 260m 80Mi"]);
    let refused = kubectl.refused("top nodes --as=jane").await;
    assert!(
        refused.contains("cannot list resource \"nodes\" in API group"),
        "{refused}"
    );
}

#[tokio::test]
async fn an_api_server_alone_does_not_serve_the_metrics_api() {
    let Some(kubectl) = Kubectl::start().await else {
        return;
    };
    let refused = kubectl.refused("top nodes").await;
    assert!(refused.contains("Metrics API not available"), "{refused}");
}

#[tokio::test]
async fn without_nodes_a_flag_enables_the_metrics_api() {
    const VERSION: &str = "get --raw /apis/metrics.k8s.io/v1beta1";
    let home = || Home::in_memory().whole().with("--nodes=0");
    let Some(kubectl) = Kubectl::start_in(home()).await else {
        return;
    };
    kubectl.refused(VERSION).await;
    let Some(kubectl) = Kubectl::start_in(home().with("--metrics-server")).await else {
        return;
    };
    kubectl.shows(VERSION, &["NodeMetrics"]).await;
}
