//! `mizzen node --node-runtime cri` joins a machine to a cluster of another process.

use tokio::process::Child;

use super::super::Kubectl;
use crate::containerd::{BUSYBOX, PrivateContainerd};
use crate::process::{Home, command};

const NODE: &str = "real-joined";

fn agent(kubectl: &Kubectl, containerd: &PrivateContainerd) -> Child {
    let path = |name: &str| containerd.path(name).display().to_string();
    let arguments = [
        "node".to_owned(),
        "--node-runtime=cri".to_owned(),
        format!("--node-name={NODE}"),
        format!("--cri-endpoint={}", containerd.endpoint()),
        format!("--node-root-dir={}", path("node")),
        format!("--pod-logs-dir={}", path("pod-logs")),
        format!("--cni-conf-dir={}", containerd.network_dir().display()),
        "--eviction-hard=".to_owned(),
    ];
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    command(&arguments, &kubectl.home.kubeconfig())
        .spawn()
        .unwrap()
}

fn running_tasks(containerd: &PrivateContainerd) -> usize {
    let tasks = containerd.ctr(&["tasks", "list", "--quiet"]).output();
    String::from_utf8(tasks.unwrap().stdout)
        .unwrap()
        .lines()
        .count()
}

#[tokio::test]
async fn a_machine_joins_a_cluster_and_its_pods_survive_a_kill_of_the_agent() {
    let Some(containerd) = PrivateContainerd::start().await else {
        return;
    };
    // It has a simulated node of its own.
    let home = Home::in_memory()
        .whole()
        .with("--nodes=1")
        .with("--cluster-cidr=10.231.0.0/16");
    let Some(kubectl) = Kubectl::start_in(home).await else {
        return;
    };
    let mut first = agent(&kubectl, &containerd);
    let ready = "get node -l mizzen.dev/node-runtime=cri \
                 -o jsonpath={.items[*].status.conditions[?(@.type==\"Ready\")].status}";
    kubectl.until(ready, |status| status == "True").await;
    let nodes = kubectl.run("get nodes -o name").await;
    assert_eq!(nodes.lines().count(), 2, "{nodes}");

    let manifest = format!(
        "---\n{{apiVersion: v1, kind: Pod, metadata: {{name: joined}}, spec: {{terminationGracePeriodSeconds: 1, \
         nodeSelector: {{mizzen.dev/node-runtime: cri}}, containers: [{{name: c, image: '{BUSYBOX}', \
         imagePullPolicy: Never, command: [sh, -c, 'echo started; exec sleep 1000']}}]}}}}"
    );
    let file = kubectl.home.path().join("joined.yaml");
    std::fs::write(&file, manifest).unwrap();
    let file = file.display().to_string();
    kubectl.run_pods(&file, &["joined"]).await;
    let node = "get pod joined -o jsonpath={.spec.nodeName}";
    assert_eq!(kubectl.run(node).await, NODE);
    assert_eq!(kubectl.sh("joined", "hostname").await, "joined\n");
    assert_eq!(kubectl.run("logs joined").await, "started\n");

    // The sandbox and the container.
    assert_eq!(running_tasks(&containerd), 2);
    first.kill().await.unwrap();
    assert_eq!(running_tasks(&containerd), 2);
    let _second = agent(&kubectl, &containerd);
    // The next agent listens at another port, which it says in the status of the node.
    kubectl
        .until("exec joined -- hostname", |name| name == "joined\n")
        .await;
    assert_eq!(kubectl.run("logs joined").await, "started\n");
    let restarts = "get pod joined -o jsonpath={.status.containerStatuses[0].restartCount}";
    assert_eq!(kubectl.run(restarts).await, "0");
    kubectl.run("delete pod joined").await;
    assert_eq!(running_tasks(&containerd), 0);
}
