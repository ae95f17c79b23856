//! `/metrics/resource` of a node through the API server, over a real connection and on real time.

use mizzen_testing::Cluster;

use crate::fixtures::run_pod;
use crate::logs::{Authority, cluster, until};

const PATH: &str = "/metrics/resource";

async fn report(cluster: &Cluster, node: &str, path: &str) -> Result<String, String> {
    let report = mizzen_controlplane::get_from_kubelet(cluster.server(), node, path).await;
    let report = report.map_err(|status| status.message)?;
    Ok(String::from_utf8(report.into()).unwrap())
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_node_reports_its_own_pods() {
    let authority = Authority::new();
    let identity = authority.sign("kube-apiserver-kubelet-client");
    let cluster = cluster(&authority, Some(identity)).await;
    let usage = "mizzen.dev/usage: 'cpu=250m,memory=64Mi'";
    let spec = "containers: [{name: web, image: web}]";
    run_pod(&cluster, "web", usage, spec).await;
    until(&cluster, "web", "ready=True").await;
    let own = report(&cluster, "node-0", PATH).await.unwrap();
    let labels = r#"{container="web",namespace="default",pod="web"}"#;
    let memory = format!("container_memory_working_set_bytes{labels} 6.7108864e+07 17000000");
    assert!(own.contains(&memory), "{own}");
    assert!(own.contains("\nnode_memory_working_set_bytes 3.3554432e+08 "));
    assert!(own.contains("# TYPE container_cpu_usage_seconds_total counter\n"));
    let other = report(&cluster, "node-1", PATH).await.unwrap();
    assert!(!other.contains("container_"), "{other}");
    assert!(other.contains("\nnode_memory_working_set_bytes 2.68435456e+08 "));
    // Each node serves all nodes of its process at their own paths.
    let named = "/metrics/nodes/node-0/metrics/resource";
    let named = report(&cluster, "node-1", named).await.unwrap();
    assert!(named.contains(&memory), "{named}");
    let unknown = "/metrics/nodes/node-9/metrics/resource";
    let unknown = report(&cluster, "node-1", unknown).await.unwrap_err();
    assert!(unknown.contains("404"), "{unknown}");
}

/// The value of a series without its timestamp.
#[cfg(target_os = "linux")]
fn value(report: &str, series: &str) -> f64 {
    let line = report.lines().find_map(|line| line.strip_prefix(series));
    let line = line.unwrap_or_else(|| panic!("{series} is not in\n{report}"));
    let value = line.split_whitespace().next().unwrap();
    value.parse().unwrap()
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn cpu_counters_never_fall() {
    let authority = Authority::new();
    let identity = authority.sign("kube-apiserver-kubelet-client");
    let cluster = cluster(&authority, Some(identity)).await;
    let usage = "mizzen.dev/usage: 'cpu=900'";
    let spec = "containers: [{name: web, image: web}]";
    run_pod(&cluster, "web", usage, spec).await;
    until(&cluster, "web", "ready=True").await;
    let mut last = [0.0; 3];
    for usage in ["cpu=900", "cpu=1m", "cpu=1m"] {
        let change = format!("{{metadata: {{annotations: {{mizzen.dev/usage: '{usage}'}}}}}}");
        let pods = &mizzen_sdk::resource::PODS;
        cluster.patch(pods, "default/web", "", &change).await;
        let report = report(&cluster, "node-0", PATH).await.unwrap();
        let now = [
            r#"container_cpu_usage_seconds_total{container="web",namespace="default",pod="web"}"#,
            r#"pod_cpu_usage_seconds_total{namespace="default",pod="web"}"#,
            "node_cpu_usage_seconds_total",
        ]
        .map(|series| value(&report, series));
        let falls = now.iter().zip(last).any(|(now, last)| *now < last);
        assert!(!falls, "{last:?} to {now:?}");
        last = now;
    }
}

#[tokio::test]
async fn metrics_need_the_api_server_certificate() {
    let authority = Authority::new();
    for (identity, code) in [(Some(authority.sign("jane")), "403"), (None, "401")] {
        let cluster = cluster(&authority, identity).await;
        let spec = "containers: [{name: web, image: web}]";
        run_pod(&cluster, "web", "", spec).await;
        until(&cluster, "web", "ready=True").await;
        let refused = report(&cluster, "node-0", PATH).await.unwrap_err();
        assert!(refused.contains(code), "{refused}");
    }
}
