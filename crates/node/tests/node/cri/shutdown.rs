//! Graceful node shutdown, with a logind of the test on a private D-Bus.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mizzen_node::shutdown::{ShutdownConfig, parse_shutdown_grace_periods, shutdown_grace_periods};
use mizzen_sdk::Object;
use mizzen_sdk::resource::{NODES, PODS};

use super::RealNode;
use crate::containerd::BUSYBOX;
use crate::fixtures::{events_of, get_pod, show};
use crate::logind::{Bus, Logind, prepare_for_shutdown};

const MESSAGE: &str = "Pod was terminated in response to imminent node shutdown.";

/// The pods write to one file when they are told to end and when they do.
struct Pods(PathBuf);

impl Pods {
    fn new(node: &RealNode) -> Pods {
        let dir = node.containerd.path("out");
        fs::create_dir(&dir).unwrap();
        Pods(dir)
    }

    /// The specification of a pod that needs `seconds` to end, and has `grace` seconds for it.
    fn spec(&self, name: &str, seconds: &str, grace: u32, more: &str) -> String {
        let end = format!(
            "trap \"echo {name} told >> /out/order; sleep {seconds}; echo {name} ended >> /out/order; exit 0\" TERM"
        );
        let dir = self.0.display();
        format!(
            "hostNetwork: true, terminationGracePeriodSeconds: {grace}, \
             volumes: [{{name: out, hostPath: {{path: '{dir}'}}}}], \
             containers: [{{name: c, image: '{BUSYBOX}', imagePullPolicy: Never, \
             command: [sh, -c, '{end}; while true; do sleep 0.1; done'], \
             volumeMounts: [{{name: out, mountPath: /out}}]}}]{more}"
        )
    }

    async fn run(&self, node: &RealNode, name: &str, seconds: &str, grace: u32, more: &str) {
        let spec = self.spec(name, seconds, grace, more);
        node.run(name, &spec).await;
        node.until_pod(name, "Running ready=True c=running").await;
    }

    fn order(&self) -> String {
        let text = fs::read_to_string(self.0.join("order")).unwrap_or_default();
        text.trim().replace('\n', ", ")
    }

    fn clear(&self) {
        let _ = fs::remove_file(self.0.join("order"));
    }
}

/// Whether the node is ready, the reason and the message.
async fn readiness(node: &RealNode) -> String {
    let object = node.cluster.object(&NODES, node.name).await;
    let mut conditions = object["status"]["conditions"].list().iter();
    let ready = conditions.find(|it| it["type"].str() == "Ready").unwrap();
    let fields = ["status", "reason", "message"].map(|field| ready[field].str());
    fields.join(" ")
}

async fn until_ready(node: &RealNode, wanted: &str) {
    node.until(wanted, async |node| readiness(node).await == wanted)
        .await;
}

/// The status of a pod that the node has ended: reason, message, and the condition DisruptionTarget.
fn end_of(pod: &Object) -> [String; 3] {
    let status = &pod["status"];
    let mut conditions = status["conditions"].list().iter();
    let target = conditions.find(|it| it["type"].str() == "DisruptionTarget");
    let target = target.map(|target| {
        let fields = ["status", "reason", "message"].map(|field| target[field].str());
        fields.join(" ")
    });
    [
        status["reason"].str().into(),
        status["message"].str().into(),
        target.unwrap_or_default(),
    ]
}

fn ended() -> [String; 3] {
    let target = format!("True TerminationByKubelet {MESSAGE}");
    ["Terminated".into(), MESSAGE.into(), target]
}

fn config(bus: &Bus) -> ShutdownConfig {
    let periods = parse_shutdown_grace_periods("1000:20,0:4").unwrap();
    ShutdownConfig {
        grace_periods: shutdown_grace_periods(Duration::ZERO, Duration::ZERO, periods).unwrap(),
        bus_address: Some(bus.address()),
        logind_conf_dir: bus.conf_dir(),
    }
}

fn put_static_pod(dir: &Path, spec: &str) {
    fs::create_dir(dir).unwrap();
    let text =
        format!("{{apiVersion: v1, kind: Pod, metadata: {{name: static}}, spec: {{{spec}}}}}");
    fs::write(dir.join("static.yaml"), text).unwrap();
}

const READY: &str = "True KubeletReady kubelet is posting ready status";
const SHUTTING_DOWN: &str = "False KubeletNotReady node is shutting down";

#[tokio::test(flavor = "multi_thread")]
async fn pods_end_by_priority_before_the_machine_shuts_down() {
    let Some(mut node) = RealNode::start("real-shutdown", 51).await else {
        return;
    };
    let Some(bus) = Bus::start(&node.containerd.path("")).await else {
        return;
    };
    let pods = Pods::new(&node);
    let classes = "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: high}, value: 1000}";
    node.cluster.apply(classes).await;
    // The node runs without logind, and finds one that starts later.
    node.shutdown = config(&bus);
    node.run_agent().await;
    pods.run(&node, "low", "1", 30, "").await;
    let logind = Logind::start(&bus).await;
    node.until("the lock is taken", async |_| !logind.locks().is_empty())
        .await;
    assert_eq!(logind.locks(), ["shutdown delay"]);
    assert_eq!(logind.delay_seconds(), 24);

    // Only logind announces shutdowns: pods are admitted.
    let other = bus.try_connect().await.unwrap();
    prepare_for_shutdown(&other, None, true).await;
    for n in 1..=9 {
        prepare_for_shutdown(&other, Some(&format!(":1.{n}")), true).await;
    }
    pods.run(&node, "high", "1", 30, ", priorityClassName: high")
        .await;
    pods.run(&node, "endless", "1000", 600, "").await;
    let spec = pods.spec(
        "static",
        "0",
        30,
        ", priority: 1000, priorityClassName: high",
    );
    put_static_pod(&node.containerd.path("manifests"), &spec);
    let name = "static-real-shutdown";
    node.until("the mirror pod exists", async |node| {
        let pods = node.cluster.objects(&PODS, "").await;
        pods.iter().any(|pod| pod.name() == name)
    })
    .await;
    let mirror = node.until_pod(name, "Running ready=True c=running").await;
    assert_eq!(
        (readiness(&node).await.as_str(), logind.is_held()),
        (READY, true)
    );

    logind.prepare_for_shutdown(true).await;
    until_ready(&node, SHUTTING_DOWN).await;
    node.run("late", &pods.spec("late", "0", 30, "")).await;
    let late = node.until_pod("late", "Failed").await;
    assert_eq!(
        end_of(&late),
        [
            "NodeShutdown",
            "Pod was rejected: Pod was rejected as the node is shutting down.",
            ""
        ]
    );
    node.until("the lock is released", async |_| !logind.is_held())
        .await;
    for (name, state) in [
        ("low", "Failed ready=False c=Completed(0)"),
        ("high", "Failed ready=False c=Completed(0)"),
        ("endless", "Failed ready=False c=Error(137)"),
        (name, "Failed ready=False c=Completed(0)"),
    ] {
        let pod = node.until_pod(name, state).await;
        assert_eq!(end_of(&pod), ended(), "{name}");
    }
    let order = pods.order();
    let at = |event: &str| {
        order
            .find(event)
            .unwrap_or_else(|| panic!("{event}: {order}"))
    };
    assert!(
        at("low ended") < at("high told") && at("low ended") < at("static told"),
        "{order}"
    );
    assert!(
        at("endless told") < at("high told") && !order.contains("endless ended"),
        "{order}"
    );
    assert!(readiness(&node).await == SHUTTING_DOWN);

    // A shutdown that is cancelled: the node is ready and has a lock.
    logind.prepare_for_shutdown(false).await;
    until_ready(&node, READY).await;
    node.until("the lock is taken again", async |_| {
        logind.locks().len() == 2
    })
    .await;
    let events = events_of(&node.cluster, node.name).await;
    for message in ["detected shutdown event", "detected shutdown cancellation"] {
        let expected = format!("Normal Shutdown  Shutdown manager {message} x1");
        assert!(events.contains(&expected), "{events:?}");
    }

    // Pods whose turn has not come run on.
    pods.clear();
    pods.run(&node, "first", "3", 30, "").await;
    pods.run(&node, "second", "0", 30, ", priorityClassName: high")
        .await;
    logind.prepare_for_shutdown(true).await;
    node.until("the first pod is told to end", async |_| {
        pods.order() == "first told"
    })
    .await;
    logind.prepare_for_shutdown(false).await;
    let first = node.until_pod("first", "Failed").await;
    assert_eq!(end_of(&first), ended());
    until_ready(&node, READY).await;
    let second = get_pod(&node.cluster, "second").await;
    assert_eq!(show(&second), "Running ready=True c=running");
    assert_eq!(pods.order(), "first told, first ended");
    node.until("the lock is held again", async |_| {
        logind.locks().len() == 3
    })
    .await;

    // A static pod starts again with the next agent; another pod that has ended does not.
    node.run_agent().await;
    node.until("the static pod has another mirror pod", async |node| {
        let key = format!("default/{name}");
        let found = node.cluster.find_object(&PODS, &key).await;
        found.is_some_and(|found| found.uid() != mirror.uid() && show(&found).contains("c=running"))
    })
    .await;
    assert!(show(&get_pod(&node.cluster, "low").await).starts_with("Failed"));

    // Nothing of the node is left in the configuration of logind.
    node.cluster.restart_with(|builder| builder.nodes(0)).await;
    assert!(bus.conf_dir().exists());
    let traces = node.cri_options().traces(&node.shutdown);
    traces.remove().await.unwrap();
    assert!(!bus.conf_dir().exists());
}
