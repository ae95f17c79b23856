//! cgroups and figures of real pods.

use std::path::{Path, PathBuf};

use mizzen_value::quantity::Quantity;
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
    /// The figures of a pod.
    pub(super) async fn figures(&self, pod: &str) -> Value {
        let summary = self.kubelet("/stats/summary").await;
        let summary = json::parse(summary.as_bytes()).unwrap();
        let mut pods = summary["pods"].list().iter();
        let found = pods.find(|found| found["podRef"]["name"].str() == pod);
        found.cloned().unwrap_or_default()
    }

    /// Resizes the pod `web`: a patch of its specification.
    async fn resize(&self, spec: Value) {
        let (client, key) = (self.cluster.dynamic_client(), Key::new("default", "web"));
        let change = value!({ "spec": spec });
        let patched = client
            .patch(&PODS, &key, "resize", PatchType::Strategic, &change)
            .await;
        patched.unwrap();
    }
}

/// The reasons and messages of the conditions of a pod's resize.
fn resizes(pod: &Object) -> Vec<(String, String)> {
    let conditions = pod["status"]["conditions"].list().iter();
    let resizes = conditions.filter(|it| it["type"].str().starts_with("PodResize"));
    let text = |condition: &Value, field: &str| condition[field].str().to_owned();
    let shown = resizes.map(|it| (text(it, "reason"), text(it, "message")));
    shown.collect()
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
    // The limits of a pod are those of its cgroup, and of its containers that have none.
    let pooled = container("command: [sleep, '1000']");
    let of_pod = "resources: {requests: {cpu: 100m}, limits: {cpu: 300m, memory: 64Mi}}";
    let grace = "terminationGracePeriodSeconds: 1";
    node.run("pooled", &format!("{pooled}, {of_pod}, {grace}"))
        .await;
    let pod = node.until_pod("web", "Running ready=True c=running").await;
    let (dir, limit) = cgroup("burstable", pod.uid());
    assert_eq!(
        std::fs::read_to_string(dir.join(limit)).unwrap(),
        "33554432\n"
    );
    let pooled = node
        .until_pod("pooled", "Running ready=True c=running")
        .await;
    let (dir_of_pooled, _) = cgroup("burstable", pooled.uid());
    assert_eq!(
        std::fs::read_to_string(dir_of_pooled.join(limit)).unwrap(),
        "67108864\n"
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
        node.resize(value!({ "containers": containers })).await;
    };
    let has = async |list: &'static str, name: &'static str, amount: &'static str| {
        node.until(&format!("{name} is {amount}"), async |node| {
            let pod = get_pod(&node.cluster, "web").await;
            let status = &pod["status"]["containerStatuses"][0];
            status["resources"][list][name].str() == amount && resizes(&pod).is_empty()
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
async fn a_resize_of_a_whole_pod_changes_its_cgroup_and_containers_without_limits() {
    let Some(mut node) = RealNode::start("real-whole", 33).await else {
        return;
    };
    let one = |name: &str, more: &str| {
        format!(
            "{{name: {name}, image: '{BUSYBOX}', imagePullPolicy: Never, command: [sleep, '1000']{more}}}"
        )
    };
    let own = ", resources: {limits: {cpu: 100m, memory: 16Mi}}";
    let containers = format!("containers: [{}, {}]", one("c", ""), one("d", own));
    let resources =
        "resources: {requests: {cpu: 200m, memory: 32Mi}, limits: {cpu: 400m, memory: 64Mi}}";
    let grace = "terminationGracePeriodSeconds: 1";
    node.run("web", &format!("{containers}, {resources}, {grace}"))
        .await;
    let before = node.until_pod("web", "Running ready=True").await;
    let (dir, limit) = cgroup("burstable", before.uid());
    // The limits of the pod and of its containers, in MiB.
    let limits = || {
        let statuses = before["status"]["containerStatuses"].list().iter();
        let ids = statuses.filter_map(|it| it["containerID"].str().split_once("://"));
        let dirs = std::iter::once(dir.clone()).chain(ids.map(|(_, id)| dir.join(id)));
        let read = |dir: PathBuf| std::fs::read_to_string(dir.join(limit)).unwrap();
        dirs.map(|dir| read(dir).trim().parse::<u64>().unwrap() >> 20)
            .collect::<Vec<u64>>()
    };
    assert_eq!(limits(), [64, 64, 16]);

    // What is deferred is not allocated by another agent either.
    let object = node.cluster.object(&NODES, node.name).await;
    let allocatable = Quantity::parse_or_zero(object["status"]["allocatable"]["cpu"].str());
    let most = allocatable.milli_value() - 500;
    let full = format!("resources: {{requests: {{cpu: {most}m}}}}");
    node.run(
        "full",
        &container(&format!("command: [sleep, '1000'], {full}")),
    )
    .await;
    node.until_pod("full", "Running ready=True").await;
    let cpu = value!({ "cpu": "800m" });
    node.resize(value!({ "resources": { "requests": (cpu.clone()), "limits": cpu } }))
        .await;
    let is_deferred = |pod: &Object| resizes(pod).iter().any(|(reason, _)| reason == "Deferred");
    node.until("the resize is deferred", async |node| {
        is_deferred(&get_pod(&node.cluster, "web").await)
    })
    .await;
    node.run_agent().await;
    node.run("next", &container("command: [sleep, '1000']"))
        .await;
    node.until_pod("next", "Running ready=True").await;
    let pod = get_pod(&node.cluster, "web").await;
    let status = &pod["status"];
    assert!(is_deferred(&pod), "{status:?}");
    assert_eq!(status["allocatedResources"]["cpu"].str(), "200m");
    assert_eq!(status["resources"]["limits"]["cpu"].str(), "400m");

    for (cpu, memory, expected) in [
        ("600m", "96Mi", [96, 96, 16]),
        ("300m", "48Mi", [48, 48, 16]),
    ] {
        let limits_now = value!({ "cpu": cpu, "memory": memory });
        node.resize(
            value!({ "resources": { "requests": { "cpu": "300m" }, "limits": limits_now } }),
        )
        .await;
        node.until(&format!("the pod has {memory}"), async |node| {
            let pod = get_pod(&node.cluster, "web").await;
            let known = &pod["status"]["resources"]["limits"];
            known["memory"].str() == memory && known["cpu"].str() == cpu && resizes(&pod).is_empty()
        })
        .await;
        assert_eq!(limits(), expected);
    }
    let cadvisor = node.kubelet("/metrics/cadvisor").await;
    let of_c = "container_spec_cpu_quota{container=\"c\"";
    let mut quotas = cadvisor.lines().filter(|line| line.starts_with(of_c));
    assert!(
        quotas.any(|line| line.contains("pod=\"web\"") && line.contains(" 30000 ")),
        "{cadvisor}"
    );
    assert_eq!(show(&get_pod(&node.cluster, "web").await), show(&before));
    node.until("Events say it", async |node| {
        let events = events_of(&node.cluster, "web").await;
        let said = |start: &str| {
            events
                .iter()
                .filter(|event| event.starts_with(start))
                .count()
        };
        let completed = said("Normal ResizeCompleted  Pod resize completed: {\"containers\":[");
        said("Warning ResizeDeferred  Pod resize Deferred: ") == 1
            && said("Normal ResizeStarted  Pod resize started: ") == 2
            && completed == 2
    })
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
    node.resize(value!({ "containers": containers })).await;
    node.until("the resize is refused", async |node| {
        let pod = get_pod(&node.cluster, "web").await;
        resizes(&pod).iter().any(|(reason, why)| {
            reason == "Error"
                && why.starts_with("cannot decrease memory limits: ")
                && why.contains(
                    "attempting to set container \"c\" memory limit (16777216) below current usage (",
                )
        })
    })
    .await;
    node.until("an Event says so", async |node| {
        let events = events_of(&node.cluster, "web").await;
        events.iter().any(|event| {
            event.starts_with("Warning ResizeError  Pod resize error: ")
                && event.contains("cannot decrease memory limits: ")
        })
    })
    .await;
    let (_, err, code) = node.exec("web", "rm /data/x", "").await;
    assert_eq!((err.as_str(), code), ("", 0));
    node.until("the resize is done", async |node| {
        resizes(&get_pod(&node.cluster, "web").await).is_empty()
    })
    .await;
    let pod = get_pod(&node.cluster, "web").await;
    let status = &pod["status"]["containerStatuses"][0];
    assert_eq!(status["resources"]["limits"]["memory"].str(), "16Mi");
    assert_eq!(status["restartCount"].int(), 0);
}
