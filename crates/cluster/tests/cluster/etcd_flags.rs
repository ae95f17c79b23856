//! Flags of etcd that take effect while a server runs.

use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, timeout};

use crate::client::Client;
use crate::etcd_server::{Cluster, Options, installed};
use crate::process::{Home, Process, STEP_TIMEOUT};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// Less than the default interval at which etcd is asked for its size.
const SOON: Duration = Duration::from_secs(20);

/// A server with these arguments on an etcd of its own.
async fn start(arguments: &[&str]) -> Option<(Process, Cluster)> {
    let etcd = installed().into_iter().next()?;
    let etcd = etcd.start(Options::default()).await;
    let home = Home::on_disk()
        .with("--etcd-servers")
        .with(etcd.endpoint(0));
    Some((home.start_with(arguments).await, etcd))
}

#[tokio::test]
async fn each_check_of_etcd_waits_as_long_as_its_flag_says() {
    let health = "--etcd-healthcheck-timeout";
    let readiness = "--etcd-readycheck-timeout";
    for (short, long, failing, waiting) in [
        (readiness, health, "/readyz/etcd-readiness", "/livez/etcd"),
        (health, readiness, "/livez/etcd", "/readyz/etcd-readiness"),
    ] {
        let Some((process, etcd)) = start(&[short, "100ms", long, "5m"]).await else {
            return;
        };
        let client = process.admin().await;
        for path in [failing, waiting] {
            client.get(path).await.expect(200);
        }
        etcd.pause(0);
        let waiter = client.clone();
        let waiting = tokio::spawn(async move { waiter.get(waiting).await });
        client.get(failing).await.expect(500);
        assert!(!waiting.is_finished(), "the other check waits for etcd");
        etcd.resume(0);
        let answer = timeout(STEP_TIMEOUT, waiting).await;
        answer.expect("etcd answers again").unwrap().expect(200);
        process.stop().await;
    }
}

/// The size of etcd in the metrics of a server.
async fn size(client: &Client) -> Option<f64> {
    let text = client.get("/metrics").await.expect(200).text();
    let family = r#"apiserver_storage_size_bytes{storage_cluster_id="etcd-0"}"#;
    let line = text.lines().find_map(|line| line.strip_prefix(family))?;
    line.trim().parse().ok()
}

#[tokio::test]
async fn etcd_is_asked_for_its_size_at_the_interval_of_the_flag() {
    let flag = "--etcd-db-metric-poll-interval";
    let Some((process, _etcd)) = start(&[flag, "20ms"]).await else {
        return;
    };
    let client = process.admin().await;
    let deadline = Instant::now() + SOON;
    let grown_from = async |old: f64| {
        while Instant::now() < deadline {
            if let Some(size) = size(&client).await.filter(|size| *size > old) {
                return size;
            }
        }
        panic!("no size above {old} within {SOON:?}");
    };
    let before = grown_from(0.0).await;
    for n in 0..4 {
        let text = "x".repeat(1 << 20);
        let map = json!({ "metadata": { "name": format!("m{n}") }, "data": { "text": text } });
        client.post(CONFIG_MAPS, map.to_string()).await.expect(201);
    }
    grown_from(before).await;
    process.stop().await;

    let Some((process, _etcd)) = start(&[flag, "0"]).await else {
        return;
    };
    let client = process.admin().await;
    client.get("/readyz/etcd").await.expect(200);
    assert_eq!(size(&client).await, None);
    process.stop().await;
}
