//! `mizzen trace`: steps, failures, and invalid targets.

use std::path::Path;
use std::process::{Output, Stdio};

use serde_json::json;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::client::Client;
use crate::process::{Home, STEP_TIMEOUT};

const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

fn trace(kubeconfig: &Path, arguments: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mizzen"));
    command
        .arg("trace")
        .args(arguments)
        .arg("--kubeconfig")
        .arg(kubeconfig);
    command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

async fn end(trace: Child) -> (Output, String) {
    let output = timeout(STEP_TIMEOUT, trace.wait_with_output())
        .await
        .expect("it ends by itself")
        .unwrap();
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    (output, said)
}

fn template(annotation: &str, spec: serde_json::Value) -> serde_json::Value {
    let mut spec = spec;
    spec["containers"] = json!([{"name": "web", "image": "web:1"}]);
    json!({"metadata": {"labels": {"app": "web"}, "annotations": {"mizzen.dev/simulate": annotation}}, "spec": spec})
}

async fn deploy(client: &Client, annotation: &str, spec: serde_json::Value) {
    let deployment = json!({
        "metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": template(annotation, spec)},
    });
    client
        .post(DEPLOYMENTS, deployment.to_string())
        .await
        .expect(201);
}

#[tokio::test]
async fn trace_ends_when_its_output_is_closed() {
    let home = Home::in_memory().whole();
    let process = home.start().await;
    let mut unread = trace(&home.kubeconfig(), &["deployment/web"]);
    drop(unread.stdout.take());
    deploy(&process.admin().await, "", json!({})).await;
    let (output, said) = end(unread).await;
    assert!(output.status.success(), "{said}");
}

#[tokio::test]
async fn failures_are_printed_and_end_until_ready() {
    let home = Home::in_memory().whole();
    let process = home.start().await;
    let client = process.admin().await;
    let job = json!({
        "metadata": {"name": "bad"},
        "spec": {"backoffLimit": 0, "template": template("exit 1", json!({"restartPolicy": "Never"}))},
    });
    client.post(JOBS, job.to_string()).await.expect(201);
    let (output, said) = end(trace(&home.kubeconfig(), &["job/bad", "--until-ready"])).await;
    assert!(
        !output.status.success()
            && said.contains("it will not be ready: job/bad failed: BackoffLimitExceeded"),
        "{said}"
    );
    deploy(
        &client,
        "ready never",
        json!({"serviceAccountName": "nope"}),
    )
    .await;
    let path = format!("{DEPLOYMENTS}/web");
    let waiting = trace(
        &home.kubeconfig(),
        &["deployments.apps/web", "--until-ready"],
    );
    let mut events = client
        .watch("/api/v1/namespaces/default/events?watch=true")
        .await;
    let refused = async {
        while let Some(event) = events.next().await {
            if event["object"]["reason"] == "FailedCreate" {
                return;
            }
        }
    };
    timeout(STEP_TIMEOUT, refused)
        .await
        .expect("its pod is refused");
    let account = json!({"serviceAccountName": "default", "serviceAccount": "default"});
    let body = json!({"spec": {"template": {"spec": account}}});
    client
        .call("PATCH", &path, body.to_string())
        .await
        .expect(200);
    let (output, said) = end(waiting).await;
    assert!(
        said.contains("warning FailedCreate: Error creating: pods \"web-"),
        "{said}"
    );
    assert!(
        said.contains("error looking up service account default/nope"),
        "{said}"
    );
    assert!(
        !output.status.success() && said.contains("\"never\" is not a duration"),
        "{said}"
    );
    process.stop().await;
}

#[tokio::test]
async fn trace_rejects_invalid_targets_at_once() {
    let home = Home::on_disk();
    let process = home.start().await;
    for (object, problem) in [
        ("deployment/", "expected KIND/NAME"),
        ("deployment/web/x", "expected KIND/NAME"),
        ("Deployment/WEB_", "invalid name \"WEB_\""),
        (
            "secret/a",
            "\"secret\" cannot be traced; supported kinds are cronjob, deployment",
        ),
    ] {
        let (output, said) = end(trace(&home.kubeconfig(), &[object])).await;
        assert!(
            !output.status.success() && said.contains(problem),
            "{object}: {said}"
        );
    }
    let jane = Command::new(env!("CARGO_BIN_EXE_mizzen"))
        .args([
            "kubeconfig",
            "--user",
            "jane",
            "--server",
            &format!("https://{}", process.address),
            "--data-dir",
        ])
        .arg(home.data_dir())
        .output()
        .await
        .unwrap();
    let file = home.path().join("jane.kubeconfig");
    std::fs::write(&file, jane.stdout).unwrap();
    let (output, said) = end(trace(&file, &["po/a"])).await;
    let refusal = "mizzen trace: request failed: pods \"a\" is forbidden: User \"jane\" cannot get resource \"pods\" in API \
                   group \"\" in the namespace \"default\"";
    assert!(!output.status.success() && said.trim() == refusal, "{said}");
    process.stop().await;
}
