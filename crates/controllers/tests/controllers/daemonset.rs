//! The DaemonSet controller.

use std::time::Duration;

use mizzen_sdk::Object;
use mizzen_sdk::dynamic::DeleteOptions;
use mizzen_sdk::resource::{CONTROLLER_REVISIONS, DAEMON_SETS, EVENTS, NODES, PODS};
use mizzen_testing::{Builder, Cluster};
use mizzen_value::{json, time, value};

use crate::{read, settle, start};

/// A set `d` for nodes with the label daemon=yes, with more members of its spec.
fn set(more: &str) -> String {
    let mut set = read(
        "{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: d, namespace: default},
          spec: {selector: {matchLabels: {app: d}}, template: {metadata: {labels: {app: d}},
            spec: {nodeSelector: {daemon: 'yes'}, containers: [{name: c, image: 'i:1'}]}}}}",
    );
    for (key, member) in read(more).entries() {
        set.entry("spec").set(key, member.clone());
    }
    json::to_string(&set)
}

async fn begin(nodes: &[&str], more: &str) -> Cluster {
    let cluster = start(&["daemonset-controller"]).await;
    for node in nodes {
        add_node(&cluster, node).await;
    }
    cluster.create(&set(more)).await;
    settle(&cluster).await;
    cluster
}

/// Creates a node without the not-ready taint, which the node lifecycle controller would remove.
async fn add_node(cluster: &Cluster, name: &str) {
    let node = "{apiVersion: v1, kind: Node, metadata: {name: NAME, labels: {daemon: 'yes'}}}";
    cluster.create(&node.replace("NAME", name)).await;
    change_node(cluster, name, |node| {
        drop(node.entry("spec").remove("taints"))
    })
    .await;
}

async fn change_node(cluster: &Cluster, name: &str, change: impl FnOnce(&mut Object)) {
    cluster.change(&NODES, name, change).await;
    settle(cluster).await;
}

fn node_of(pod: &Object) -> String {
    let required =
        pod.at("spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution");
    required["nodeSelectorTerms"][0]["matchFields"][0]["values"][0]
        .str()
        .into()
}

/// The nodes of pods with their images, terminating ones in brackets, sorted.
async fn pods(cluster: &Cluster) -> String {
    let word = |pod: &Object| {
        let image = pod["spec"]["containers"][0]["image"]
            .str()
            .trim_start_matches("i:")
            .to_string();
        let node = node_of(pod);
        if pod.is_terminating() {
            format!("({node}:{image})")
        } else {
            format!("{node}:{image}")
        }
    };
    let mut words: Vec<String> = cluster
        .objects(&PODS, "default")
        .await
        .iter()
        .map(word)
        .collect();
    words.sort();
    words.join(" ")
}

/// Binds every pod to its node and makes it ready, as scheduler and kubelets would.
async fn run(cluster: &Cluster) {
    for pod in cluster.objects(&PODS, "default").await {
        let key = pod.key();
        if pod["spec"]["nodeName"].str().is_empty() {
            let target = value!({"apiVersion": "v1", "kind": "Node", "name": (node_of(&pod))});
            let binding = value!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": (pod.name())}, "target": target});
            cluster
                .dynamic_client()
                .create_at(&PODS, &key, "binding", &binding)
                .await
                .unwrap();
        }
        if !pod.is_terminating() && pod.at("status.phase").str() != "Running" {
            let since = time::from_unix(cluster.now());
            let condition =
                value!({"type": "Ready", "status": "True", "lastTransitionTime": since});
            let status = value!({"phase": "Running", "conditions": [condition]});
            cluster
                .change_status(&PODS, &key.to_string(), |old| *old = status)
                .await;
        }
    }
    settle(cluster).await;
}

/// Deletes terminating pods, as kubelets would.
async fn reap(cluster: &Cluster) {
    for pod in cluster
        .objects(&PODS, "default")
        .await
        .iter()
        .filter(|pod| pod.is_terminating())
    {
        let now = DeleteOptions {
            grace_seconds: Some(0),
            ..DeleteOptions::default()
        };
        cluster
            .dynamic_client()
            .delete(&PODS, &pod.key(), &now)
            .await
            .unwrap();
    }
    settle(cluster).await;
}

async fn update(cluster: &Cluster, image: &str) {
    let change = |set: &mut Object| {
        let template = set.entry("spec").entry("template").entry("spec");
        template.entry("containers").list_mut()[0].set("image", image);
    };
    cluster.change(&DAEMON_SETS, "default/d", change).await;
    settle(cluster).await;
}

/// Desired, current, misplaced, ready, updated, available and unavailable.
async fn status(cluster: &Cluster) -> String {
    let status = cluster.object(&DAEMON_SETS, "default/d").await["status"].clone();
    let fields = [
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberMisscheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
        "numberUnavailable",
    ];
    fields
        .map(|field| status[field].int().to_string())
        .join(" ")
}

#[tokio::test(start_paused = true)]
async fn daemon_pods_follow_nodes() {
    let cluster = begin(&["n1"], "{}").await;
    assert_eq!(pods(&cluster).await, "n1:1");
    add_node(&cluster, "n2").await;
    assert_eq!(pods(&cluster).await, "n1:1 n2:1");
    run(&cluster).await;
    assert_eq!(status(&cluster).await, "2 2 0 2 2 2 0");

    change_node(&cluster, "n2", |node| {
        node.entry("metadata").entry("labels").set("daemon", "no")
    })
    .await;
    assert_eq!(pods(&cluster).await, "(n2:1) n1:1");
    assert_eq!(status(&cluster).await, "1 1 1 1 1 1 0");
    reap(&cluster).await;
    assert_eq!(status(&cluster).await, "1 1 0 1 1 1 0");
    change_node(&cluster, "n2", |node| {
        node.entry("metadata").entry("labels").set("daemon", "yes")
    })
    .await;
    assert_eq!(pods(&cluster).await, "n1:1 n2:1");
}

#[tokio::test(start_paused = true)]
async fn a_pending_daemon_pod_for_a_missing_node_is_deleted() {
    let cluster = begin(&["n1", "n2"], "{}").await;
    cluster.delete(&NODES, "n2").await;
    settle(&cluster).await;
    assert_eq!(
        pods(&cluster).await,
        "n1:1 n2:1",
        "no event enqueued the set"
    );
    // The scheduler writes that it finds no node for the pod.
    let pod = cluster
        .objects(&PODS, "default")
        .await
        .remove(0)
        .key()
        .to_string();
    let condition = value!({"type": "PodScheduled", "status": "False"});
    cluster
        .change_status(&PODS, &pod, |status| {
            status.set("conditions", vec![condition])
        })
        .await;
    settle(&cluster).await;
    assert_eq!(
        (pods(&cluster).await, status(&cluster).await),
        ("n1:1".into(), "1 1 0 0 1 0 1".into())
    );
}

#[tokio::test(start_paused = true)]
async fn taints_keep_new_daemon_pods_away_and_evict_old_ones() {
    let taint = |effect: &str| value!({"key": "k", "effect": effect});
    let cluster = begin(&["n1"], "{}").await;
    run(&cluster).await;
    change_node(&cluster, "n1", |node| {
        node.entry("spec").set("taints", vec![taint("NoSchedule")])
    })
    .await;
    add_node(&cluster, "n2").await;
    assert_eq!(pods(&cluster).await, "n1:1 n2:1");
    change_node(&cluster, "n1", |node| {
        node.entry("spec").set("taints", vec![taint("NoExecute")])
    })
    .await;
    assert_eq!(pods(&cluster).await, "(n1:1) n2:1");
}

#[tokio::test(start_paused = true)]
async fn an_update_replaces_one_daemon_pod_at_a_time() {
    let cluster = begin(&["n1", "n2"], "{}").await;
    run(&cluster).await;
    update(&cluster, "i:2").await;
    assert_eq!(pods(&cluster).await, "(n1:1) n2:1");
    reap(&cluster).await;
    assert_eq!(pods(&cluster).await, "n1:2 n2:1");
    assert_eq!(status(&cluster).await, "2 2 0 1 1 1 1");
    run(&cluster).await;
    assert_eq!(pods(&cluster).await, "(n2:1) n1:2");
    reap(&cluster).await;
    run(&cluster).await;
    assert_eq!(
        (pods(&cluster).await, status(&cluster).await),
        ("n1:2 n2:2".into(), "2 2 0 2 2 2 0".into())
    );
}

#[tokio::test(start_paused = true)]
async fn with_max_surge_the_new_daemon_pod_is_created_first() {
    let strategy =
        "{updateStrategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}}";
    let cluster = begin(&["n1", "n2"], strategy).await;
    run(&cluster).await;
    update(&cluster, "i:2").await;
    assert_eq!(pods(&cluster).await, "n1:1 n1:2 n2:1");
    run(&cluster).await;
    assert_eq!(pods(&cluster).await, "(n1:1) n1:2 n2:1 n2:2");
    reap(&cluster).await;
    run(&cluster).await;
    reap(&cluster).await;
    assert_eq!(
        (pods(&cluster).await, status(&cluster).await),
        ("n1:2 n2:2".into(), "2 2 0 2 2 2 0".into())
    );
}

#[tokio::test(start_paused = true)]
async fn on_delete_replaces_a_daemon_pod_only_after_its_deletion() {
    let cluster = begin(&["n1"], "{updateStrategy: {type: OnDelete}}").await;
    run(&cluster).await;
    update(&cluster, "i:2").await;
    assert_eq!(
        (pods(&cluster).await, status(&cluster).await),
        ("n1:1".into(), "1 1 0 1 0 1 0".into())
    );
    let pod = cluster.objects(&PODS, "default").await.remove(0);
    cluster.delete(&PODS, &pod.key().to_string()).await;
    reap(&cluster).await;
    assert_eq!(pods(&cluster).await, "n1:2");
}

async fn fail(cluster: &Cluster) {
    let pod = cluster.objects(&PODS, "default").await.remove(0);
    cluster
        .change_status(&PODS, &pod.key().to_string(), |status| {
            status.set("phase", "Failed")
        })
        .await;
    cluster.advance(Duration::from_millis(100)).await;
}

#[tokio::test(start_paused = true)]
async fn a_daemon_pod_that_keeps_failing_backs_off() {
    let cluster = begin(&["n1"], "{}").await;
    let phase = async || {
        cluster.objects(&PODS, "default").await[0]
            .at("status.phase")
            .str()
            .to_string()
    };
    fail(&cluster).await;
    assert_eq!(phase().await, "Pending");
    fail(&cluster).await;
    assert_eq!(phase().await, "Failed");
    cluster.advance(Duration::from_millis(1000)).await;
    assert_eq!(phase().await, "Pending");
    fail(&cluster).await;
    cluster.advance(Duration::from_millis(1000)).await;
    assert_eq!(phase().await, "Failed");
    cluster.advance(Duration::from_millis(1100)).await;
    assert_eq!(phase().await, "Pending");
    let events = cluster.objects(&EVENTS, "default").await;
    let failed = events
        .iter()
        .find(|event| event["reason"].str() == "FailedDaemonPod")
        .expect("an event");
    assert!(
        failed["message"]
            .str()
            .starts_with("Found failed daemon pod default/d-"),
        "{failed:?}"
    );
    assert!(
        failed["message"]
            .str()
            .ends_with(" on node n1, will try to kill it"),
        "{failed:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn daemon_pods_become_available_after_min_ready_seconds() {
    let cluster = begin(&["n1"], "{minReadySeconds: 30}").await;
    run(&cluster).await;
    assert_eq!(status(&cluster).await, "1 1 0 1 1 0 1");
    cluster.advance(Duration::from_secs(60)).await;
    assert_eq!(status(&cluster).await, "1 1 0 1 1 1 0");
}

/// The revision numbers, sorted.
async fn revisions(cluster: &Cluster) -> Vec<i64> {
    let list = cluster.objects(&CONTROLLER_REVISIONS, "default").await;
    let mut numbers: Vec<i64> = list
        .iter()
        .map(|revision| revision["revision"].int())
        .collect();
    numbers.sort_unstable();
    numbers
}

#[tokio::test(start_paused = true)]
async fn revisions_are_named_by_the_template_and_deleted_beyond_the_limit() {
    let cluster = begin(&[], "{revisionHistoryLimit: 1}").await;
    let revision = cluster
        .objects(&CONTROLLER_REVISIONS, "default")
        .await
        .remove(0);
    assert_eq!(
        revision.name(),
        format!(
            "d-{}",
            revision
                .label("controller-revision-hash")
                .unwrap_or_default()
        )
    );
    assert_eq!(
        revision.annotation("deprecated.daemonset.template.generation"),
        Some("1")
    );
    update(&cluster, "i:2").await;
    update(&cluster, "i:1").await;
    assert_eq!(revisions(&cluster).await, [2, 3]);
    update(&cluster, "i:3").await;
    settle(&cluster).await;
    assert_eq!(revisions(&cluster).await, [3, 4]);
}

#[tokio::test(start_paused = true)]
async fn a_name_collision_changes_the_revisions_hash() {
    let first = begin(&[], "{}").await;
    let name = first.objects(&CONTROLLER_REVISIONS, "default").await[0]
        .name()
        .to_string();
    let cluster = start(&["daemonset-controller"]).await;
    let taken = "{apiVersion: apps/v1, kind: ControllerRevision, metadata: {name: NAME, namespace: default}, revision: 1, data: {}}";
    cluster.create(&taken.replace("NAME", &name)).await;
    cluster.create(&set("{}")).await;
    settle(&cluster).await;
    let set = cluster.object(&DAEMON_SETS, "default/d").await;
    assert_eq!(
        (
            set.at("status.collisionCount").int(),
            set.at("status.observedGeneration").int()
        ),
        (1, 1)
    );
    assert_eq!(
        cluster
            .objects(&CONTROLLER_REVISIONS, "default")
            .await
            .len(),
        2
    );
}

#[tokio::test(start_paused = true)]
async fn duplicate_revisions_are_merged_and_pods_relabelled() {
    let cluster = begin(&["n1"], "{}").await;
    cluster.restart_with(Builder::server_only).await;
    let mut equal = cluster
        .objects(&CONTROLLER_REVISIONS, "default")
        .await
        .remove(0);
    equal.set("metadata", value!({
        "name": "d-other", "namespace": "default", "labels": {"app": "d", "controller-revision-hash": "other"},
    }));
    equal.set("revision", 7i64);
    cluster
        .dynamic_client()
        .create(&CONTROLLER_REVISIONS, &equal)
        .await
        .unwrap();
    cluster
        .restart_with(|builder| builder.controllers(["daemonset-controller"]))
        .await;
    settle(&cluster).await;
    let revisions = cluster.objects(&CONTROLLER_REVISIONS, "default").await;
    assert_eq!(
        revisions
            .iter()
            .map(|revision| revision.name())
            .collect::<Vec<_>>(),
        ["d-other"]
    );
    let pods = cluster.objects(&PODS, "default").await;
    assert_eq!(
        pods.iter()
            .map(|pod| pod.label("controller-revision-hash"))
            .collect::<Vec<_>>(),
        [Some("other")]
    );
}

#[tokio::test(start_paused = true)]
async fn an_orphan_is_adopted_and_a_pod_that_no_longer_matches_is_released() {
    let cluster = begin(&["n1"], "{}").await;
    let pod = cluster.objects(&PODS, "default").await.remove(0);
    let key = pod.key().to_string();
    cluster
        .change(&PODS, &key, |pod| {
            pod.entry("metadata").entry("labels").set("app", "x")
        })
        .await;
    settle(&cluster).await;
    let owned = async || -> Vec<bool> {
        let pods = cluster.objects(&PODS, "default").await;
        pods.iter().map(|pod| pod.controller().is_some()).collect()
    };
    assert!(cluster.object(&PODS, &key).await.controller().is_none());
    assert_eq!(owned().await.len(), 2);
    cluster
        .change(&PODS, &key, |pod| {
            pod.entry("metadata").entry("labels").set("app", "d")
        })
        .await;
    settle(&cluster).await;
    // Of two pods on a node the older one stays.
    assert_eq!(owned().await, [true]);
    assert_eq!(cluster.object(&PODS, &key).await.uid(), pod.uid());
}

#[tokio::test(start_paused = true)]
async fn a_rejected_daemon_pod_causes_an_event_and_a_retry() {
    let refused = "{template: {metadata: {labels: {app: d}},
        spec: {priorityClassName: nobody, containers: [{name: c, image: 'i:1'}]}}}";
    let cluster = begin(&["n1"], refused).await;
    let events = cluster.objects(&EVENTS, "default").await;
    let failed = events
        .iter()
        .find(|event| event["reason"].str() == "FailedCreate")
        .expect("an event");
    assert!(
        failed["message"].str().starts_with("Error creating: "),
        "{failed:?}"
    );
    assert_eq!(failed.at("source.component").str(), "daemonset-controller");
    assert_eq!(status(&cluster).await, "1 0 0 0 0 0 1");
    let class = "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: nobody}, value: 5}";
    cluster.create(class).await;
    cluster.advance(Duration::from_secs(60)).await;
    assert_eq!(pods(&cluster).await, "n1:1");
}

#[tokio::test(start_paused = true)]
async fn many_nodes_get_their_daemon_pods_in_bursts() {
    let cluster = start(&[]).await;
    for at in 0..260 {
        let node = "{apiVersion: v1, kind: Node, metadata: {name: NAME, labels: {daemon: 'yes'}}}";
        cluster
            .create(&node.replace("NAME", &format!("n{at}")))
            .await;
    }
    let cluster = cluster;
    let tolerant =
        "{template: {metadata: {labels: {app: d}}, spec: {tolerations: [{operator: Exists}],
        containers: [{name: c, image: 'i:1'}]}}}";
    cluster.create(&set(tolerant)).await;
    cluster
        .restart_with(|builder| builder.controllers(["daemonset-controller"]))
        .await;
    settle(&cluster).await;
    assert_eq!(cluster.objects(&PODS, "default").await.len(), 260);
    assert_eq!(status(&cluster).await, "260 260 0 0 260 0 260");
}
