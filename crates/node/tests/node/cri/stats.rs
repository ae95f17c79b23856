//! cgroups and figures of real pods.

use std::path::{Path, PathBuf};

use mizzen_value::{Value, json};

use super::*;

/// The directory of a pod's cgroup, and the file with its memory limit.
fn cgroup(class: &str, uid: &str) -> (PathBuf, &'static str) {
    let path = format!("kubepods/{class}/pod{uid}");
    let root = Path::new("/sys/fs/cgroup");
    match root.join("memory").is_dir() {
        true => (root.join("memory").join(path), "memory.limit_in_bytes"),
        false => (root.join(path), "memory.max"),
    }
}

impl RealNode {
    async fn kubelet(&self, path: &str) -> String {
        let report =
            mizzen_controlplane::get_from_kubelet(self.cluster.server(), self.name, path).await;
        let report = report.map_err(|status| status.message).unwrap();
        String::from_utf8(report.into()).unwrap()
    }

    /// The figures of a pod.
    async fn figures(&self, pod: &str) -> Value {
        let summary = self.kubelet("/stats/summary").await;
        let summary = json::parse(summary.as_bytes()).unwrap();
        let mut pods = summary["pods"].list().iter();
        let found = pods.find(|found| found["podRef"]["name"].str() == pod);
        found.cloned().unwrap_or_default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_has_a_cgroup_with_its_limits_and_is_measured() {
    let Some(node) = RealNode::start("real-stats", 31).await else {
        return;
    };
    let spec = container(
        "command: [sh, -c, 'head -c 3000000 /dev/zero > /data/x; exec sleep 1000'], \
         volumeMounts: [{name: data, mountPath: /data}], \
         resources: {requests: {cpu: 100m, memory: 16Mi}, limits: {cpu: 200m, memory: 32Mi}}",
    );
    let volumes = "volumes: [{name: data, emptyDir: {}}], terminationGracePeriodSeconds: 1";
    node.run("web", &format!("{spec}, {volumes}")).await;
    let full =
        "volumes: [{name: data, emptyDir: {sizeLimit: 1Mi}}], terminationGracePeriodSeconds: 1";
    node.run("full", &format!("{spec}, {full}")).await;
    let pod = node.until_pod("web", "Running ready=True c=running").await;
    let (dir, limit) = cgroup("burstable", pod.uid());
    assert_eq!(
        std::fs::read_to_string(dir.join(limit)).unwrap(),
        "33554432\n"
    );

    node.until("the pod is measured", async |node| {
        let figures = node.figures("web").await;
        figures["volume"][0]["usedBytes"].int() >= 3_000_000
    })
    .await;
    let figures = node.figures("web").await;
    let measured = &figures["containers"][0];
    assert_eq!(measured["name"].str(), "c");
    assert!(
        measured["cpu"]["usageCoreNanoSeconds"].int() > 0,
        "{measured:?}"
    );
    assert!(
        measured["memory"]["workingSetBytes"].int() > 0,
        "{measured:?}"
    );
    assert!(
        figures["network"]["interfaces"].list().len() == 1,
        "{figures:?}"
    );
    let used = figures["memory"]["workingSetBytes"].int();
    let available = figures["memory"]["availableBytes"].int();
    assert_eq!(used + available, 33_554_432);

    let labels = r#"container="c",namespace="default",pod="web""#;
    let resources = node.kubelet("/metrics/resource").await;
    let series = format!("container_memory_working_set_bytes{{{labels}}} ");
    assert!(resources.contains(&series), "{resources}");
    let cadvisor = node.kubelet("/metrics/cadvisor").await;
    assert!(
        cadvisor.contains("container_spec_cpu_quota{container=\"c\",id=\"/kubepods/burstable/pod")
    );
    let interface = "namespace=\"default\",pod=\"web\",interface=\"eth0\"";
    assert!(cadvisor.contains(interface), "{cadvisor}");

    // Its volume is above the limit.
    let evicted = node.until_pod("full", "Failed").await;
    assert_eq!(evicted["status"]["reason"].str(), "Evicted");
    let message = "Usage of EmptyDir volume \"data\" exceeds the limit \"1Mi\". ";
    assert_eq!(evicted["status"]["message"].str(), message);

    delete_pod(&node.cluster, "web", None).await;
    node.until("the cgroup is removed", async |_| !dir.exists())
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resize_changes_the_cgroup_and_restarts_only_where_the_policy_says_so() {
    let Some(node) = RealNode::start("real-resize", 32).await else {
        return;
    };
    let spec = container(
        "command: [sleep, '1000'], resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}, \
         {resourceName: memory, restartPolicy: RestartContainer}], \
         resources: {requests: {cpu: 100m, memory: 16Mi}, limits: {cpu: 200m, memory: 32Mi}}",
    );
    let grace = "terminationGracePeriodSeconds: 1";
    node.run("web", &format!("{spec}, {grace}")).await;
    let pod = node.until_pod("web", "Running ready=True c=running").await;
    let (dir, limit) = cgroup("burstable", pod.uid());
    let resize = async |resources: Value| {
        let containers = value!([{ "name": "c", "resources": resources }]);
        let change = value!({ "spec": { "containers": containers } });
        let (client, key) = (node.cluster.dynamic_client(), Key::new("default", "web"));
        let patched = client
            .patch(&PODS, &key, "resize", PatchType::Strategic, &change)
            .await;
        patched.unwrap();
    };
    let has = async |list: &'static str, name: &'static str, amount: &'static str| {
        node.until(&format!("{name} is {amount}"), async |node| {
            let pod = get_pod(&node.cluster, "web").await;
            let status = &pod["status"]["containerStatuses"][0];
            let mut conditions = pod["status"]["conditions"].list().iter();
            status["resources"][list][name].str() == amount
                && !conditions.any(|it| it["type"].str().starts_with("PodResize"))
        })
        .await;
    };
    resize(value!({ "limits": { "cpu": "300m" } })).await;
    has("limits", "cpu", "300m").await;
    assert_eq!(show(&get_pod(&node.cluster, "web").await), show(&pod));
    let cadvisor = node.kubelet("/metrics/cadvisor").await;
    let mut quotas = cadvisor
        .lines()
        .filter(|line| line.starts_with("container_spec_cpu_quota"));
    assert!(quotas.all(|line| line.contains(" 30000 ")), "{cadvisor}");

    resize(value!({ "limits": { "memory": "48Mi" } })).await;
    has("limits", "memory", "48Mi").await;
    node.until_pod("web", "Running ready=True c=running+1")
        .await;
    node.until("the pod has its memory", async |_| {
        std::fs::read_to_string(dir.join(limit)).unwrap() == "50331648\n"
    })
    .await;
    delete_pod(&node.cluster, "web", None).await;
    node.until("the cgroup is removed", async |_| !dir.exists())
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_memory_limit_is_lowered_only_above_what_is_used() {
    let Some(node) = RealNode::start("real-decrease", 146).await else {
        return;
    };
    let spec = container(
        "command: [sh, -c, 'head -c 25000000 /dev/zero > /data/x; exec sleep 1000'], \
         volumeMounts: [{name: data, mountPath: /data}], \
         resources: {requests: {cpu: 100m, memory: 8Mi}, limits: {cpu: 200m, memory: 64Mi}}",
    );
    let volume = "volumes: [{name: data, emptyDir: {medium: Memory}}]";
    let grace = "terminationGracePeriodSeconds: 1";
    node.run("web", &format!("{spec}, {volume}, {grace}")).await;
    node.until_pod("web", "Running ready=True c=running").await;
    node.until("memory is used", async |node| {
        node.exec("web", "wc -c < /data/x", "").await.0 == "25000000\n"
    })
    .await;
    let containers = value!([{ "name": "c", "resources": { "limits": { "memory": "16Mi" } } }]);
    let change = value!({ "spec": { "containers": containers } });
    let (client, key) = (node.cluster.dynamic_client(), Key::new("default", "web"));
    let patched = client
        .patch(&PODS, &key, "resize", PatchType::Strategic, &change)
        .await;
    patched.unwrap();
    let resize = async |node: &RealNode| {
        let pod = get_pod(&node.cluster, "web").await;
        let mut conditions = pod["status"]["conditions"].list().iter();
        let found = conditions.find(|it| it["type"].str() == "PodResizeInProgress");
        found.map(|it| format!("{}: {}", it["reason"].str(), it["message"].str()))
    };
    node.until("the resize is refused", async |node| {
        let why = resize(node).await.unwrap_or_default();
        why.starts_with("Error: cannot decrease memory limits: ")
            && why.contains(
                "attempting to set container \"c\" memory limit (16777216) below current usage (",
            )
    })
    .await;
    let (_, err, code) = node.exec("web", "rm /data/x", "").await;
    assert_eq!((err.as_str(), code), ("", 0));
    node.until("the resize is done", async |node| {
        resize(node).await.is_none()
    })
    .await;
    let pod = get_pod(&node.cluster, "web").await;
    let status = &pod["status"]["containerStatuses"][0];
    assert_eq!(status["resources"]["limits"]["memory"].str(), "16Mi");
    assert_eq!(status["restartCount"].int(), 0);
}
