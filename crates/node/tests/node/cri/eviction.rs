//! Pods that are evicted because the machine, or a disk of the node, really runs short.

use std::path::Path;

use mizzen_node::eviction::parse_thresholds;
use mizzen_value::json;
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use super::*;

impl RealNode {
    /// Restarts the agent with a hard threshold, and measures often.
    async fn evict_below(&mut self, threshold: &str) {
        self.eviction = EvictionConfig {
            thresholds: parse_thresholds(threshold, "", "", "").unwrap(),
            pressure_transition_period: Duration::from_millis(100),
            interval: Duration::from_millis(200),
            ..EvictionConfig::default()
        };
        self.run_agent().await;
    }

    async fn until_condition(&self, name: &str, status: &str) {
        self.until(&format!("{name} is {status}"), async |node| {
            let found = node.cluster.object(&NODES, node.name).await;
            let mut conditions = found["status"]["conditions"].list().iter();
            conditions.any(|it| it["type"].str() == name && it["status"].str() == status)
        })
        .await;
    }

    /// Waits until the pod `greedy` is evicted. Returns its message.
    async fn until_evicted(&self) -> String {
        let pod = self.until_pod("greedy", "Failed ready=False").await;
        assert_eq!(pod["status"]["reason"].str(), "Evicted", "{}", show(&pod));
        pod["status"]["message"].str().into()
    }

    /// A figure of the node in its summary.
    async fn node_figure(&self, part: &str, name: &str) -> i64 {
        let summary = self.kubelet("/stats/summary").await;
        let summary = json::parse(summary.as_bytes()).unwrap();
        summary["node"][part][name].int()
    }
}

/// A tmpfs on a directory, which is unmounted at the end.
struct SmallDisk<'a>(&'a Path);

impl<'a> SmallDisk<'a> {
    fn mount(path: &'a Path, options: &str) -> SmallDisk<'a> {
        let (source, flags) = (Some("tmpfs"), MsFlags::empty());
        mount(source, path, Some("tmpfs"), flags, Some(options)).unwrap();
        SmallDisk(path)
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = umount2(self.0, MntFlags::MNT_DETACH);
    }
}

const GRACE: &str = "terminationGracePeriodSeconds: 1";

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_fills_the_disk_of_the_node_is_evicted_and_its_files_are_removed() {
    let Some(mut node) = RealNode::start("real-full", 91).await else {
        return;
    };
    let root = node.containerd.path("node");
    let _disk = SmallDisk::mount(&root, "size=64m");
    node.evict_below("nodefs.available<24Mi").await;
    let volume = format!("volumes: [{{name: v, emptyDir: {{}}}}], {GRACE}");
    let writing = |command: &str| {
        let mount = "volumeMounts: [{name: v, mountPath: /v}]";
        let command = format!("command: [sh, -c, '{command}; exec sleep 1000'], {mount}");
        format!("{}, {volume}", container(&command))
    };
    node.run("modest", &writing("echo 1 > /v/x")).await;
    node.until_pod("modest", "Running ready=True c=running")
        .await;
    node.until_condition("DiskPressure", "False").await;
    node.run("greedy", &writing("head -c 50000000 /dev/zero > /v/x"))
        .await;
    let message = node.until_evicted().await;
    let expected =
        "The node was low on resource: ephemeral-storage. Threshold quantity: 24Mi, available: ";
    assert!(message.starts_with(expected), "{message}");
    node.until("its files are removed", async |node| {
        node.node_figure("fs", "usedBytes").await < 10_000_000
    })
    .await;
    node.until_condition("DiskPressure", "False").await;
    let modest = get_pod(&node.cluster, "modest").await;
    assert!(show(&modest).contains("Running ready=True c=running"));
    delete_pod(&node.cluster, "modest", Some(0)).await;
    delete_pod(&node.cluster, "greedy", Some(0)).await;
    node.until("the runtime is empty", async |node| {
        node.count().await == (0, 0)
    })
    .await;
    // Volumes that are still mounted would keep the disk.
    node.cluster.restart_with(|builder| builder.nodes(0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_takes_what_is_left_of_memory_is_evicted() {
    let Some(mut node) = RealNode::start("real-memory", 92).await else {
        return;
    };
    let available = node.node_figure("memory", "availableBytes").await;
    let threshold = format!("memory.available<{}Mi", (available >> 20) - 300);
    node.evict_below(&threshold).await;
    // It takes at most 3 GB, and other programs of the machine may end meanwhile. Pods without requests are not admitted
    // under pressure.
    let command = "command: [sh, -c, 'for i in $(seq 30); do head -c 100000000 /dev/zero > /v/$i; done; exec sleep 1000'], \
                   resources: {requests: {memory: 1Mi}}, volumeMounts: [{name: v, mountPath: /v}]";
    let volume = format!("volumes: [{{name: v, emptyDir: {{medium: Memory}}}}], {GRACE}");
    node.run("greedy", &format!("{}, {volume}", container(command)))
        .await;
    let message = node.until_evicted().await;
    let expected = "The node was low on resource: memory. Threshold quantity: ";
    assert!(message.starts_with(expected), "{message}");
    assert!(message.contains("Container c was using "), "{message}");
    let request = "request is 1Mi, has larger consumption of memory.";
    assert!(message.contains(request), "{message}");
    delete_pod(&node.cluster, "greedy", Some(0)).await;
    node.until("the runtime is empty", async |node| {
        node.count().await == (0, 0)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_takes_what_is_left_of_process_ids_is_evicted() {
    let Some(mut node) = RealNode::start("real-pids", 93).await else {
        return;
    };
    let max = node.node_figure("rlimit", "maxpid").await;
    let running = node.node_figure("rlimit", "curproc").await;
    node.evict_below(&format!("pid.available<{}", max - running - 100))
        .await;
    let command = "command: [sh, -c, 'for i in $(seq 1000); do sleep 1000 & done; wait']";
    node.run("greedy", &format!("{}, {GRACE}", container(command)))
        .await;
    let message = node.until_evicted().await;
    let expected = "The node was low on resource: pids. Threshold quantity: ";
    assert!(message.starts_with(expected), "{message}");
    delete_pod(&node.cluster, "greedy", Some(0)).await;
    node.until("the runtime is empty", async |node| {
        node.count().await == (0, 0)
    })
    .await;
}
