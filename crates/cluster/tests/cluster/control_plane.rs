//! `mizzen up` and the components of a control plane: a Deployment runs, its steps are traced, its logs are read.

use std::process::Stdio;

use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;
use tokio::time::timeout;

use crate::process::{Home, STEP_TIMEOUT};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

#[tokio::test]
async fn the_steps_of_a_deployment_are_printed() {
    let home = Home::in_memory().whole();
    let process = home.start().await;
    let client = process.admin().await;
    let mut trace = Command::new(env!("CARGO_BIN_EXE_mizzen"))
        .args(["trace", "deployment/web", "--until-ready", "--kubeconfig"])
        .arg(home.kubeconfig())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut said = BufReader::new(trace.stderr.take().unwrap()).lines();
    let waiting = timeout(STEP_TIMEOUT, said.next_line())
        .await
        .expect("it says that it waits")
        .unwrap();
    assert!(waiting.is_some_and(|line| line.contains("does not exist yet")));
    let labels = json!({"app": "web"});
    let containers = json!([{"name": "web", "image": "web:1"}]);
    let metadata = json!({"labels": labels, "annotations": {"mizzen.dev/logs": "hello\nworld"}});
    let deployment = json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 2, "selector": {"matchLabels": labels},
            "template": {"metadata": metadata, "spec": {"containers": containers}},
        },
    });
    client
        .post(DEPLOYMENTS, deployment.to_string())
        .await
        .expect(201);
    let output = timeout(STEP_TIMEOUT, trace.wait_with_output())
        .await
        .expect("it becomes ready")
        .unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    let actors: Vec<&str> = lines
        .lines()
        .filter_map(|line| line.split_whitespace().nth(1))
        .collect();
    let first = |actor: &str| {
        actors
            .iter()
            .position(|one| *one == actor)
            .unwrap_or_else(|| panic!("no {actor} in\n{lines}"))
    };
    let pods = client
        .get("/api/v1/namespaces/default/pods")
        .await
        .expect(200)
        .json();
    let names: Vec<&str> = pods["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|pod| pod["metadata"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(names.len(), 2);
    assert!(
        lines.contains("deployment/web") && lines.lines().last().unwrap().contains("2 of 2 ready"),
        "{lines}"
    );
    assert!(
        first("replicaset-controller") < first("scheduler")
            && first("scheduler") < first("kubelet"),
        "{lines}"
    );
    let logs = client
        .get(&format!("/api/v1/namespaces/default/pods/{}/log", names[0]))
        .await
        .expect(200);
    assert_eq!(logs.text(), "hello\nworld\n");
    process.stop().await;
}

#[tokio::test]
async fn components_need_a_valid_kubeconfig() {
    for part in ["controllers", "scheduler", "node"] {
        let output = Command::new(env!("CARGO_BIN_EXE_mizzen"))
            .args([part, "--kubeconfig", "/nonexistent"])
            .output();
        let output = timeout(STEP_TIMEOUT, output)
            .await
            .expect("ends by itself")
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(
            !output.status.success() && said.contains("/nonexistent"),
            "{part}: {said}"
        );
    }
}

#[tokio::test]
async fn standalone_components_work_as_in_the_control_plane() {
    let home = Home::in_memory();
    let process = home.start().await;
    let client = process.admin().await;
    let run = |part: &str| {
        Command::new(env!("CARGO_BIN_EXE_mizzen"))
            .args([part, "--secure-port=0", "--kubeconfig"])
            .arg(home.kubeconfig())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap()
    };
    let _parts = [run("controllers"), run("scheduler"), run("node")];
    let labels = json!({"app": "web"});
    let deployment = json!({
        "metadata": {"name": "web"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "web", "image": "web:1"}]}},
        },
    });
    client
        .post(DEPLOYMENTS, deployment.to_string())
        .await
        .expect(201);
    let mut events = client.watch(&format!("{DEPLOYMENTS}?watch=true")).await;
    let ready = async {
        while let Some(event) = events.next().await {
            if event["object"]["status"]["readyReplicas"] == 1 {
                return;
            }
        }
        panic!("the watch ended");
    };
    timeout(STEP_TIMEOUT, ready)
        .await
        .expect("a pod becomes ready");
    let lease = client
        .get("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager")
        .await;
    assert!(
        !lease.expect(200).json()["spec"]["holderIdentity"]
            .as_str()
            .unwrap()
            .is_empty()
    );
    process.stop().await;
}

/// As envtest with `MIZZEN_ENVTEST_LOOPS`: pods need no service account, because no controller creates one.
#[tokio::test]
async fn named_loops_run_beside_an_api_server() {
    let home = Home::in_memory()
        .with("--loops")
        .with("namespace,replicaset");
    let process = home.start().await;
    let client = process.admin().await;
    const NAMESPACES: &str = "/api/v1/namespaces";
    const REPLICA_SETS: &str = "/apis/apps/v1/namespaces/web/replicasets";
    let namespace = json!({"metadata": {"name": "web"}}).to_string();
    client.post(NAMESPACES, namespace).await.expect(201);
    let labels = json!({"app": "web"});
    let containers = json!([{"name": "web", "image": "web:1"}]);
    let replica_set = json!({
        "metadata": {"name": "web"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}},
        },
    });
    let replica_set = replica_set.to_string();
    client.post(REPLICA_SETS, replica_set).await.expect(201);
    let mut pods = client.watch("/api/v1/namespaces/web/pods?watch=1").await;
    let added = timeout(STEP_TIMEOUT, pods.next()).await.expect("a pod");
    let pod = &added.unwrap()["object"];
    assert_eq!(pod["metadata"]["ownerReferences"][0]["kind"], "ReplicaSet");
    assert_eq!(pod["spec"]["nodeName"], json!(null));

    let query = format!("{NAMESPACES}?watch=1&fieldSelector=metadata.name=web");
    let mut namespaces = client.watch(&query).await;
    let path = format!("{NAMESPACES}/web");
    client.call("DELETE", &path, "").await.expect(200);
    let deleted = async { while namespaces.next_name().await != "DELETED web" {} };
    timeout(STEP_TIMEOUT, deleted)
        .await
        .expect("the namespace is deleted");
    process.stop().await;
}

/// The scheduler allocates and reserves devices, a controller releases them: both need the permission to bind claims.
#[tokio::test]
async fn devices_are_allocated_and_given_back_under_the_roles_of_upstream() {
    const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
    const PODS: &str = "/api/v1/namespaces/default/pods";
    let process = Home::in_memory().whole().start().await;
    let client = process.admin().await;
    let mut nodes = client.watch("/api/v1/nodes?watch=true").await;
    let node = timeout(STEP_TIMEOUT, nodes.next())
        .await
        .expect("a node comes")
        .unwrap();
    let node = node["object"]["metadata"]["name"]
        .as_str()
        .unwrap()
        .to_owned();
    let class = json!({"metadata": {"name": "gpu"}, "spec": {}});
    client
        .post("/apis/resource.k8s.io/v1/deviceclasses", class.to_string())
        .await
        .expect(201);
    let pool = json!({"name": node, "generation": 1, "resourceSliceCount": 1});
    let slice = json!({
        "metadata": {"name": "s"},
        "spec": {"driver": "gpu.example.com", "pool": pool, "nodeName": node, "devices": [{"name": "d"}]},
    });
    client
        .post("/apis/resource.k8s.io/v1/resourceslices", slice.to_string())
        .await
        .expect(201);
    let request = json!({"name": "r", "exactly": {"deviceClassName": "gpu"}});
    let claim = json!({"metadata": {"name": "c"}, "spec": {"devices": {"requests": [request]}}});
    client.post(CLAIMS, claim.to_string()).await.expect(201);
    let pod = json!({
        "metadata": {"name": "p"},
        "spec": {
            "containers": [{"name": "c", "image": "i"}],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}],
        },
    });
    client.post(PODS, pod.to_string()).await.expect(201);
    let mut claims = client.watch(&format!("{CLAIMS}?watch=true")).await;
    let mut until = async |is_allocated: bool, is_reserved: bool| {
        let seen = async {
            loop {
                let claim = claims.next().await.expect("the watch goes on")["object"].clone();
                let (allocation, users) = (
                    &claim["status"]["allocation"],
                    &claim["status"]["reservedFor"],
                );
                if (!allocation.is_null(), !users.is_null()) == (is_allocated, is_reserved) {
                    return;
                }
            }
        };
        timeout(STEP_TIMEOUT, seen)
            .await
            .expect("the claim comes to be so");
    };
    until(true, true).await;
    // Kubernetes: the scheduler does not release an allocation if its pod is deleted before it is bound.
    let mut pods = client
        .watch(&format!(
            "{PODS}?watch=true&fieldSelector=status.phase=Running"
        ))
        .await;
    timeout(STEP_TIMEOUT, pods.next())
        .await
        .expect("the pod runs")
        .unwrap();
    client
        .call("DELETE", &format!("{PODS}/p?gracePeriodSeconds=0"), "")
        .await
        .expect(200);
    until(false, false).await;
    process.stop().await;
}
