//! `mizzen up` with standalone components: one of several leads.

use serde_json::{Value, json};

use crate::client::Client;
use crate::process::{Home, LoggedCommand};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";

async fn lease(client: &Client, name: &str) -> Value {
    client
        .get(&format!("{LEASES}/{name}"))
        .await
        .expect(200)
        .json()
}

fn holder(lease: &Value) -> &str {
    lease["spec"]["holderIdentity"].as_str().unwrap()
}

#[tokio::test]
async fn a_second_component_waits_for_the_lease_and_names_the_leader() {
    let home = Home::in_memory().whole();
    let process = home.start().await;
    let client = process.admin().await;
    for (command, name) in [
        ("controllers", "kube-controller-manager"),
        ("scheduler", "kube-scheduler"),
        ("node", "node-nodes.mizzen.dev"),
    ] {
        let line = LoggedCommand::start(&[command], &home.kubeconfig())
            .line()
            .await;
        let lease = lease(&client, name).await;
        let expected = format!(
            "waiting for the lease kube-system/{name}, held by {}",
            holder(&lease)
        );
        assert!(line.contains(&expected), "{line}, not {expected}");
    }
    process.stop().await;
}

#[tokio::test]
async fn leadership_changes_are_events() {
    let process = Home::in_memory().whole().start().await;
    let client = process.admin().await;
    let path =
        "/api/v1/namespaces/kube-system/events?watch=true&fieldSelector=reason=LeaderElection";
    let mut events = client.watch(path).await;
    let mut told = std::collections::BTreeSet::new();
    while told.len() < 3 {
        let event = events.next().await.expect("the watch goes on");
        let event = &event["object"];
        let (about, message) = (&event["involvedObject"], event["message"].as_str().unwrap());
        assert!(message.ends_with(" became leader"), "{message}");
        told.insert(format!(
            "{} {}",
            about["kind"].as_str().unwrap(),
            about["name"].as_str().unwrap()
        ));
    }
    let expected = [
        "Lease kube-controller-manager",
        "Lease kube-scheduler",
        "Lease node-nodes.mizzen.dev",
    ];
    assert_eq!(told.into_iter().collect::<Vec<_>>(), expected);
    process.stop().await;
}

#[tokio::test]
async fn a_killed_control_plane_takes_over_its_leases_at_once() {
    let home = Home::on_disk().whole();
    let process = home.start().await;
    let names = ["kube-controller-manager", "kube-scheduler"];
    let mut before = Vec::new();
    for name in names {
        before.push(lease(&process.admin().await, name).await);
    }
    process.kill().await;
    let process = home.start().await;
    for (name, before) in names.into_iter().zip(before) {
        let now = lease(&process.admin().await, name).await;
        let renewed = |lease: &Value| lease["spec"]["renewTime"].as_str().unwrap().to_owned();
        assert!(
            renewed(&now) > renewed(&before),
            "{name} still waits: {now}"
        );
    }
    process.stop().await;
}

#[tokio::test]
async fn an_api_server_serves_while_another_process_leads() {
    let home = Home::on_disk().whole();
    let process = home.start().await;
    process.stop().await;
    let home = home.alone();
    let process = home.start().await;
    let client = process.admin().await;
    let mut held = lease(&client, "kube-controller-manager").await;
    assert_eq!(holder(&held), "", "who stops gives the lease back");
    held["spec"]["holderIdentity"] = json!("somebody");
    client
        .call(
            "PUT",
            &format!("{LEASES}/kube-controller-manager"),
            held.to_string(),
        )
        .await
        .expect(200);
    process.stop().await;
    let home = home.whole().logging();
    let process = home.start().await;
    let expected =
        "controllers: waiting for the lease kube-system/kube-controller-manager, held by somebody";
    assert!(home.log().contains(expected), "{}", home.log());
    let scheduler = lease(&process.admin().await, "kube-scheduler").await;
    assert_ne!(
        holder(&scheduler),
        "",
        "the scheduler has a lease of its own"
    );
    process.stop().await;
}

#[tokio::test]
async fn the_scheduler_is_configured_by_a_file() {
    let home = Home::in_memory().whole();
    let file = home.path().join("scheduler.yaml");
    let argument = file.to_str().unwrap();
    std::fs::write(&file, "kind: Nonsense\n").unwrap();
    let failed = home
        .fail_with(&["--port", "0", "--scheduler-config", argument])
        .await;
    let said = String::from_utf8_lossy(&failed.stderr);
    assert_eq!(failed.status.code(), Some(1));
    assert!(said.contains(&format!("mizzen up: {argument}: ")), "{said}");
    let text = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles: [{schedulerName: mine}]\n";
    std::fs::write(&file, text).unwrap();
    let home = home
        .with("--scheduler-config")
        .with(Box::leak(argument.to_owned().into_boxed_str()));
    let process = home.start().await;
    let client = process.admin().await;
    let pod = json!({
        "metadata": {"name": "web"},
        "spec": {"schedulerName": "mine", "containers": [{"name": "web", "image": "web"}]},
    });
    client
        .post(
            "/api/v1/namespaces/default/serviceaccounts",
            r#"{"metadata":{"name":"default"}}"#,
        )
        .await;
    client
        .post("/api/v1/namespaces/default/pods", pod.to_string())
        .await
        .expect(201);
    let mut events = client
        .watch("/api/v1/namespaces/default/pods?watch=true")
        .await;
    while events.next().await.expect("the watch goes on")["object"]["spec"]["nodeName"].is_null() {}
    process.stop().await;
}
