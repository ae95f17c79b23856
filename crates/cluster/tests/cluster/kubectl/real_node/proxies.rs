//! `kubectl proxy` and `get --raw` to a server in a container and to its Service; `kubectl top`.

use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::time::timeout;

use super::super::stream::fetch;
use super::start;
use crate::containerd::PrivateContainerd;
use crate::process::STEP_TIMEOUT;

const NODE: &str = "real-proxies";

#[tokio::test]
async fn pods_and_services_are_proxied_and_measured() {
    let Some(containerd) = PrivateContainerd::start().await else {
        return;
    };
    let Some(kubectl) = start(&containerd, NODE, 223).await else {
        return;
    };
    kubectl.run_pods("real-web.yaml", &["web"]).await;
    let below = "/api/v1/namespaces/default";
    let raw = async |path: &str| kubectl.run(&format!("get --raw {path}")).await;
    for path in ["pods/web:8080/proxy/", "pods/web/proxy/index.html"] {
        assert_eq!(raw(&format!("{below}/{path}")).await, "page\n", "{path}");
    }
    let missing = format!("get --raw {below}/pods/web:8080/proxy/none");
    let refused = kubectl.refused(&missing).await;
    assert!(refused.contains("(NotFound)"), "{refused}");
    let closed = format!("get --raw {below}/pods/web:9999/proxy/");
    let refused = kubectl.refused(&closed).await;
    assert!(
        refused.contains("error trying to reach service: dial tcp 10.223.")
            && refused.contains("connect: connection refused"),
        "{refused}"
    );
    // The node, by its name and with the port of its kubelet.
    let port = kubectl
        .run("get nodes -o jsonpath={.items[0].status.daemonEndpoints.kubeletEndpoint.Port}")
        .await;
    for name in [NODE.to_owned(), format!("{NODE}:{port}")] {
        let node = format!("/api/v1/nodes/{name}/proxy");
        assert_eq!(raw(&format!("{node}/healthz")).await, "ok", "{name}");
        let pods = raw(&format!("{node}/pods")).await;
        assert!(pods.contains(r#""name":"web""#), "{pods}");
        let summary = raw(&format!("{node}/stats/summary")).await;
        assert!(summary.contains(r#""systemContainers""#), "{summary}");
    }
    let service = format!("get --raw {below}/services/web:http/proxy/");
    kubectl.until(&service, |page| page == "page\n").await;

    let mut command = kubectl.command("proxy --port=0");
    let mut proxy = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(proxy.stdout.take().unwrap()).lines();
    let line = timeout(STEP_TIMEOUT, lines.next_line())
        .await
        .expect("it serves in time");
    let line = line.unwrap().unwrap();
    let (_, port) = line.rsplit_once(':').unwrap();
    for (path, part) in [
        (format!("{below}/pods/web:8080/proxy/"), "page\n"),
        (format!("{below}/services/web:http/proxy/"), "page\n"),
    ] {
        let answer = fetch(port, &path).await;
        assert!(
            answer.starts_with("HTTP/1.1 200 ") && answer.contains(part),
            "{path}: {answer}"
        );
    }
    proxy.kill().await.unwrap();

    // A rate needs two measurements.
    let table = kubectl
        .until("top pod web --containers --no-headers", |table| {
            table.lines().count() == 2
        })
        .await;
    for name in ["c", "idle"] {
        let row = table.lines().find(|row| {
            let cells: Vec<&str> = row.split_whitespace().collect();
            cells.len() == 4
                && cells[..2] == ["web", name]
                && cells[2].ends_with('m')
                && cells[3].ends_with("Mi")
        });
        assert!(row.is_some(), "{table}");
    }
    let table = kubectl
        .until("top node --no-headers", |table| table.starts_with(NODE))
        .await;
    let cells: Vec<&str> = table.split_whitespace().collect();
    assert_eq!(cells.len(), 5, "{table}");
    assert!(
        cells[2].ends_with('%') && cells[4].ends_with('%'),
        "{table}"
    );
}
