//! `mizzen node` with `mizzen apiserver`: a pod runs, and its logs are read.

use std::process::Stdio;

use serde_json::json;
use tokio::process::{Child, Command};

use crate::client::Client;
use crate::process::{Home, Process};

/// Nodes of a server, in a process of their own.
fn nodes(home: &Home, arguments: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mizzen"));
    command
        .args(["node", "--secure-port=0"])
        .arg("--kubeconfig")
        .arg(home.kubeconfig())
        .args(arguments);
    command
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

/// Waits until an object satisfies a condition.
async fn until(
    client: &Client,
    path: &str,
    wanted: impl Fn(&serde_json::Value) -> bool,
) -> serde_json::Value {
    let mut events = client.watch(path).await;
    loop {
        let event = events.next().await.expect("the watch goes on");
        if wanted(&event["object"]) {
            return event["object"].clone();
        }
    }
}

async fn node(server: &Process, name: &str) -> serde_json::Value {
    let client = server.admin().await;
    let path = format!("/api/v1/nodes?watch=true&fieldSelector=metadata.name={name}");
    until(&client, &path, |node| {
        node["status"]["conditions"].is_array()
    })
    .await
}

#[tokio::test]
async fn a_pod_runs_on_a_node_of_another_process_and_its_log_can_be_read() {
    let home = Home::in_memory();
    let server = home.start().await;
    let mut agent = nodes(
        &home,
        &["--nodes", "2", "--name", "edge", "--capacity", "cpu=4"],
    );
    let registered = node(&server, "edge-1").await;
    assert_eq!(registered["status"]["allocatable"]["cpu"], "4");
    if cfg!(target_os = "linux") {
        assert_eq!(registered["status"]["addresses"][0]["address"], "127.0.0.2");
    }
    let client = server.admin().await;
    let pod = json!({
        "metadata": { "name": "web", "annotations": { "mizzen.dev/logs": "hello\nworld" } },
        "spec": { "nodeName": "edge-1", "containers": [{ "name": "web", "image": "web" }] },
    });
    client
        .post("/api/v1/namespaces/default/pods", pod.to_string())
        .await
        .expect(201);
    let path = "/api/v1/namespaces/default/pods?watch=true&fieldSelector=metadata.name=web";
    until(&client, path, |pod| pod["status"]["phase"] == "Running").await;
    let log = client
        .get("/api/v1/namespaces/default/pods/web/log?tailLines=1")
        .await
        .expect(200);
    assert_eq!(log.text(), "world\n");
    agent.kill().await.unwrap();
    server.stop().await;
}
