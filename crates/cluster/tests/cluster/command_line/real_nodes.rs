//! `mizzen down --purge` of a cluster with a real node, with a private containerd.

use std::path::Path;
use std::time::Duration;

use mizzen_cri::CriClient;
use mizzen_cri::messages::{ContainerState, ListContainersRequest, ListPodSandboxRequest};
use tokio::time::{Instant, sleep};

use super::{Outcome, User};
use crate::containerd::PrivateContainerd;
use crate::process::STEP_TIMEOUT;

/// The name of the node, which no other test has.
const NODE: &str = "real-purge";

const OBJECTS: &str = "
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: default}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: default}
spec:
  containers:
  - name: c
    image: 'mizzen.test/busybox:1'
    imagePullPolicy: Never
    command: [sleep, '1000']
    ports: [{containerPort: 80, hostPort: 18080}]
    volumeMounts:
    - {name: memory, mountPath: /memory}
    - {name: image, mountPath: /image}
    - {name: data, mountPath: /data}
  volumes:
  - {name: memory, emptyDir: {medium: Memory}}
  - {name: image, image: {reference: 'mizzen.test/busybox:1', pullPolicy: Never}}
  - {name: data, persistentVolumeClaim: {claimName: data}}
";

/// Waits for a condition.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !holds().await {
        assert!(began.elapsed() < STEP_TIMEOUT, "not in time: {what}");
        sleep(Duration::from_millis(100)).await;
    }
}

/// Whether a directory has one of this name below it.
fn has_below(dir: &Path, name: &str) -> bool {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut dirs = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    dirs.any(|entry| entry.file_name() == name || has_below(&entry.path(), name))
}

async fn output(user: &User, program: &str, arguments: &[&str]) -> String {
    let mut command = user.program(program);
    command.args(arguments);
    Outcome::of(command).await.expect(0).stdout
}

#[tokio::test]
async fn a_purged_cluster_leaves_nothing_on_the_machine() {
    let Some(mut containerd) = PrivateContainerd::start().await else {
        return;
    };
    let user = User::new();
    let path = |name: &str| containerd.path(name).display().to_string();
    let up = format!(
        "up --detach --name real --node-runtime cri --node-name {NODE} --cri-endpoint {} --node-root-dir {} \
         --pod-logs-dir {} --cni-conf-dir {} --cluster-cidr 10.215.0.0/16 --eviction-hard=",
        containerd.endpoint(),
        path("node"),
        path("pod-logs"),
        path("cni"),
    );
    user.succeed(&up).await;
    std::fs::write(user.path().join("objects.yaml"), OBJECTS).unwrap();
    // The default service account comes a moment later.
    until("the objects are created", async || {
        user.mizzen("import -q objects.yaml --name real").await.code == 0
    })
    .await;
    let client = CriClient::connect(&containerd.endpoint()).await.unwrap();
    until("the container runs", async || {
        let listed = client.call(ListContainersRequest::default()).await.unwrap();
        let mut containers = listed.containers.iter();
        containers.any(|container| container.state() == ContainerState::Running)
    })
    .await;

    let conflist = containerd.network_dir().join("10-mizzen.conflist");
    let network: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&conflist).unwrap()).unwrap();
    let bridge = network["plugins"][0]["bridge"].as_str().unwrap();
    let bridge = Path::new("/sys/class/net").join(bridge);
    let addresses = Path::new("/var/lib/cni/networks").join(format!("mizzen-{NODE}"));
    let mut pods = std::fs::read_dir(containerd.path("node").join("pods")).unwrap();
    let uid = pods.next().unwrap().unwrap().file_name();
    let cgroup = format!("pod{}", uid.to_str().unwrap());
    let has_cgroup = || has_below(Path::new("/sys/fs/cgroup"), &cgroup);
    let has_mounts = || {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        mounts.contains(&path("node"))
    };
    let has_rules = async || {
        let rules = output(&user, "iptables", &["-t", "nat", "-S"]).await;
        rules.contains(&format!("mizzen-{NODE}"))
    };
    let has_snapshots = || {
        let listed = containerd.ctr(&["snapshots", "list"]).output().unwrap();
        String::from_utf8(listed.stdout)
            .unwrap()
            .contains("mizzen/")
    };
    assert!(bridge.exists() && addresses.exists() && has_cgroup() && has_mounts());
    assert!(has_rules().await && has_snapshots());
    let volumes = std::fs::read_dir(containerd.path("node").join("volumes")).unwrap();
    assert_eq!(volumes.count(), 1);

    let directory = user.root().join("real");
    let gone = format!("removed the pods of node {NODE}\ndeleted the data of cluster real\n");
    let purged = user.succeed("down --name real --purge").await;
    assert!(purged.ends_with(&gone), "{purged}");
    let sandboxes = client.call(ListPodSandboxRequest::default()).await.unwrap();
    assert_eq!(sandboxes.items, []);
    assert!(!bridge.exists() && !addresses.exists() && !conflist.exists());
    let left = (has_cgroup(), has_mounts(), has_snapshots());
    assert_eq!(left, (false, false, false));
    assert!(!has_rules().await);
    for left in [
        directory,
        containerd.path("node"),
        containerd.path("pod-logs"),
        containerd.path("containers"),
    ] {
        assert!(!left.exists(), "{}", left.display());
    }

    // While the runtime is away, nothing is deleted.
    user.succeed(&up).await;
    containerd.kill();
    let failed = user.mizzen("down --name real --purge").await.expect(1);
    failed.with_error(&[&format!("cannot remove node {NODE} from this machine")]);
    containerd.launch().await;
    let purged = user.succeed("down --name real --purge").await;
    assert!(purged.ends_with(&gone), "{purged}");
}
