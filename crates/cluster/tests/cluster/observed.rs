//! Observability of a control plane: metrics, health, status, flags, and spans in the log.

use std::collections::BTreeSet;

use http_body_util::Full;
use hyper::Request;
use serde_json::{Value, json};

use crate::process::Home;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";

#[tokio::test]
async fn a_control_plane_serves_the_metrics_of_all_components() {
    let process = Home::in_memory().whole().start().await;
    let admin = process.admin().await;
    let metrics = admin.get("/metrics").await.expect(200).text();
    for shown in [
        "apiserver_request_total{",
        "apiserver_client_certificate_expiration_seconds_count ",
        "apiserver_tls_handshake_errors_total 0",
        "serviceaccount_valid_tokens_total 0",
        "kubernetes_build_info{",
        "kubernetes_feature_enabled{name=\"ComponentStatusz\",stage=\"BETA\"} 1",
        "leader_election_master_status{name=\"kube-controller-manager\"} 1",
        "leader_election_master_status{name=\"kube-scheduler\"} 1",
        "running_managed_controllers{manager=\"kube-controller-manager\",name=\"deployment-controller\"} 1",
        "workqueue_adds_total{name=\"deployment\"} ",
        "workqueue_depth{name=\"deployment\"} ",
        "workqueue_longest_running_processor_seconds{name=\"deployment\"} ",
        "workqueue_queue_duration_seconds_bucket{name=\"deployment\",le=\"1e-08\"} ",
        "workqueue_retries_total{name=\"deployment\"} ",
        "workqueue_unfinished_work_seconds{name=\"deployment\"} ",
        "workqueue_work_duration_seconds_count{name=\"garbage_collector_attempt_to_delete\"} ",
        "scheduler_pending_pods{queue=\"active\"} ",
        "scheduler_cache_size{type=\"nodes\"} ",
        "informer_queued_items{group=\"\",",
        "reflector_lists_total{name=\"/api/v1/pods\"} 1",
        "process_resident_memory_bytes ",
    ] {
        let is_shown = metrics.lines().any(|line| line.starts_with(shown));
        assert!(is_shown, "{shown} is not in\n{metrics}");
    }
    let declared: Vec<&str> = metrics
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "))
        .collect();
    let distinct: BTreeSet<&str> = declared.iter().copied().collect();
    assert_eq!(
        declared.len(),
        distinct.len(),
        "each family is declared once"
    );
    let series = metrics.lines().filter(|line| !line.starts_with('#'));
    let names: Vec<&str> = series
        .filter_map(|line| line.rsplit_once(' '))
        .map(|line| line.0)
        .collect();
    let distinct: BTreeSet<&str> = names.iter().copied().collect();
    assert_eq!(names.len(), distinct.len(), "no series is there twice");

    let components = admin
        .get("/api/v1/componentstatuses")
        .await
        .expect(200)
        .json();
    let healthy: Vec<(&str, &str)> = components["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| {
            let condition = &item["conditions"][0];
            (
                item["metadata"]["name"].as_str().unwrap(),
                condition["status"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        healthy,
        [
            ("controller-manager", "True"),
            ("scheduler", "True"),
            ("etcd-0", "True")
        ]
    );
    process.stop().await;
}

#[tokio::test]
async fn an_api_server_serves_statusz_and_flagz() {
    let home = Home::in_memory().with("--allow-privileged=false");
    let process = home.start().await;
    let admin = process.admin().await;
    let status = admin.get("/statusz").await.expect(200).text();
    for line in ["apiserver statusz", "Emulation version: 1.36"] {
        assert!(
            status.lines().any(|known| known == line),
            "{line} is not in\n{status}"
        );
    }
    let paths = status.lines().find_map(|line| line.strip_prefix("Paths: "));
    assert_eq!(
        paths,
        Some("/flagz /healthz /livez /metrics /readyz /statusz /version")
    );
    let flags = admin.get("/flagz").await.expect(200).text();
    assert!(
        flags.starts_with("\napiserver flagz\n")
            && flags.contains("\nallow-privileged: false\n")
            && flags.contains("\nport: 0\n"),
        "{flags}"
    );
    let index = admin.get("/").await.expect(200).json();
    let paths = index["paths"].as_array().unwrap();
    assert!(paths.contains(&json!("/statusz")) && paths.contains(&json!("/flagz")));
    process.anonymous().await.get("/statusz").await.expect(403);
    process.stop().await;
}

/// The events of a log in JSON, one per line.
fn events(log: &str) -> Vec<Value> {
    let lines = log.lines().filter(|line| line.starts_with('{'));
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[tokio::test]
async fn requests_and_reconciles_are_spans_in_the_log() {
    let home = Home::in_memory()
        .whole()
        .with("--log-format=json")
        .logging();
    let process = home.start().await;
    let admin = process.admin().await;
    let request = Request::post(CONFIG_MAPS)
        .header("audit-id", "seen")
        .header("content-type", "application/json")
        .body(Full::from(json!({"metadata": {"name": "a"}}).to_string()))
        .unwrap();
    admin.fetch(request).await.unwrap().expect(201);
    process.stop().await;
    let events = events(&home.log());
    let request = events
        .iter()
        .find(|event| event["span"]["audit_id"] == "seen" && event["message"] == "request served")
        .expect("the request is logged");
    let span = &request["span"];
    assert_eq!(
        (
            &span["name"],
            &span["user"],
            &span["verb"],
            &span["resource"],
            &span["code"]
        ),
        (
            &json!("request"),
            &json!("admin"),
            &json!("create"),
            &json!("configmaps"),
            &json!(201)
        )
    );
    assert!(request["duration_us"].is_u64(), "{request}");
    let reconciled = events
        .iter()
        .find(|event| event["span"]["controller"] == "root-ca-certificate-publisher-controller")
        .expect("reconciles are logged");
    assert_eq!(reconciled["span"]["outcome"], "done", "{reconciled}");
    assert!(reconciled["span"]["key"].is_string());
}

#[tokio::test]
async fn syncs_of_pods_are_spans_by_which_a_log_filter_selects() {
    let home = Home::in_memory()
        .whole()
        .with("--nodes=2")
        .with("--log-format=json")
        .filtered("warn,[sync_pod{node=node-1}]=debug");
    let process = home.start().await;
    let admin = process.admin().await;
    for (name, node) in [("a", "node-0"), ("b", "node-1")] {
        let pod = json!({
            "metadata": {"name": name},
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}
        });
        admin.post(PODS, pod.to_string()).await.expect(201);
    }
    let running = format!("{PODS}?watch=true&fieldSelector=status.phase=Running");
    let mut running = admin.watch(&running).await;
    for _ in 0..2 {
        running.next().await.expect("both pods run");
    }
    process.stop().await;
    let events = events(&home.log());
    let synced = events
        .iter()
        .filter(|event| event["message"] == "pod synced");
    let spans: BTreeSet<(&str, &str, &str)> = synced
        .map(|event| {
            assert!(event["duration_us"].is_u64(), "{event}");
            let field = |name: &str| event["span"][name].as_str().unwrap();
            (field("node"), field("pod"), field("outcome"))
        })
        .collect();
    assert!(
        spans.contains(&("node-1", "default/b", "status")),
        "{spans:?}"
    );
    assert!(
        spans.iter().all(|(node, ..)| *node == "node-1"),
        "{spans:?}"
    );
}

#[tokio::test]
async fn a_log_filter_selects_requests_by_fields_of_their_spans() {
    let home = Home::in_memory()
        .with("--log-format=json")
        .filtered("warn,[request{verb=create}]=debug");
    let process = home.start().await;
    let admin = process.admin().await;
    admin
        .post(CONFIG_MAPS, json!({"metadata": {"name": "a"}}).to_string())
        .await
        .expect(201);
    admin.get(CONFIG_MAPS).await.expect(200);
    process.stop().await;
    let verbs: BTreeSet<String> = events(&home.log())
        .iter()
        .filter_map(|event| event["span"]["verb"].as_str().map(String::from))
        .collect();
    assert_eq!(verbs, BTreeSet::from(["create".to_owned()]));
}
