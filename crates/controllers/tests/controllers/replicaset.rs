//! The ReplicaSet and ReplicationController controllers.

use std::time::Duration;

use mizzen_sdk::Object;
use mizzen_sdk::resource::{EVENTS, PODS, REPLICA_SETS, REPLICATION_CONTROLLERS, RESOURCE_QUOTAS};
use mizzen_testing::Cluster;
use mizzen_value::value;

use crate::{settle, start};

const CONTROLLER: &str = "replicaset-controller";

fn set(replicas: usize) -> String {
    format!(
        "{{apiVersion: apps/v1, kind: ReplicaSet, metadata: {{name: web, namespace: default}}, spec: {{\
         replicas: {replicas}, selector: {{matchLabels: {{app: a}}}}, \
         template: {{metadata: {{labels: {{app: a}}}}, spec: {{containers: [{{name: c, image: i}}]}}}}}}}}"
    )
}

fn pod(name: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: default, labels: {{app: a}}}}, \
         spec: {{containers: [{{name: c, image: i}}]}}}}"
    )
}

/// The pods that are not being deleted.
pub(crate) async fn pods(cluster: &Cluster) -> Vec<Object> {
    cluster
        .objects(&PODS, "default")
        .await
        .into_iter()
        .filter(|pod| !pod.is_terminating())
        .collect()
}

/// Makes a pod run and be ready from now on.
pub(crate) async fn make_ready(cluster: &Cluster, pod: &Object) {
    let now = mizzen_value::time::from_unix(cluster.now());
    let ready = value!({"type": "Ready", "status": "True", "lastTransitionTime": now});
    cluster
        .change_status(&PODS, &pod.key().to_string(), |status| {
            status.set("phase", "Running");
            status.set("conditions", vec![ready]);
        })
        .await;
}

/// The messages of events with a reason.
pub(crate) async fn event_messages(cluster: &Cluster, reason: &str) -> Vec<String> {
    let events = cluster.objects(&EVENTS, "default").await.into_iter();
    events
        .filter(|event| event["reason"].str() == reason)
        .map(|event| event["message"].str().into())
        .collect()
}

async fn scale(cluster: &Cluster, replicas: i64) {
    cluster
        .change(&REPLICA_SETS, "default/web", |set| {
            set.entry("spec").set("replicas", replicas)
        })
        .await;
    settle(cluster).await;
}

#[tokio::test(start_paused = true)]
async fn a_set_makes_its_pods_and_counts_them() {
    let cluster = start(&[CONTROLLER]).await;
    let set = cluster.create(&set(3)).await;
    settle(&cluster).await;
    let pods = pods(&cluster).await;
    assert_eq!(pods.len(), 3);
    assert!(
        pods.iter()
            .all(|pod| pod.is_controlled_by(set.uid()) && pod.name().starts_with("web-"))
    );
    let status = value!({"replicas": 3, "fullyLabeledReplicas": 3, "terminatingReplicas": 0, "observedGeneration": 1});
    assert_eq!(
        cluster.object(&REPLICA_SETS, "default/web").await["status"],
        status
    );
    let mut messages = event_messages(&cluster, "SuccessfulCreate").await;
    messages.sort();
    assert_eq!(
        messages,
        pods.iter()
            .map(|pod| format!("Created pod: {}", pod.name()))
            .collect::<Vec<_>>()
    );
}

#[tokio::test(start_paused = true)]
async fn a_deleted_or_failed_pod_is_replaced() {
    let cluster = start(&[CONTROLLER]).await;
    cluster.create(&set(2)).await;
    settle(&cluster).await;
    let first = pods(&cluster).await;
    cluster.delete(&PODS, &first[0].key().to_string()).await;
    cluster
        .change_status(&PODS, &first[1].key().to_string(), |status| {
            status.set("phase", "Failed")
        })
        .await;
    settle(&cluster).await;
    let now = pods(&cluster).await;
    assert_eq!(now.len(), 3); // The failed pod is kept, but does not count.
    assert_eq!(
        cluster.object(&REPLICA_SETS, "default/web").await["status"]["replicas"].int(),
        2
    );
}

#[tokio::test(start_paused = true)]
async fn orphans_that_match_are_adopted_and_pods_that_do_not_are_released() {
    let cluster = start(&[CONTROLLER]).await;
    cluster.create(&pod("orphan")).await;
    let set = cluster.create(&set(2)).await;
    settle(&cluster).await;
    assert_eq!(pods(&cluster).await.len(), 2);
    assert!(
        cluster
            .object(&PODS, "default/orphan")
            .await
            .is_controlled_by(set.uid())
    );
    let other = |pod: &mut Object| pod.entry("metadata").entry("labels").set("app", "b");
    cluster.change(&PODS, "default/orphan", other).await;
    settle(&cluster).await;
    assert!(
        cluster
            .object(&PODS, "default/orphan")
            .await
            .owners()
            .is_empty()
    );
    assert_eq!(pods(&cluster).await.len(), 3);
    cluster
        .change(&PODS, "default/orphan", |pod| {
            pod.entry("metadata").entry("labels").set("app", "a")
        })
        .await;
    settle(&cluster).await;
    assert_eq!(pods(&cluster).await.len(), 2); // It was adopted again, and one was surplus.
}

#[tokio::test(start_paused = true)]
async fn unready_pods_are_deleted_first_and_then_the_cheapest() {
    let cluster = start(&[CONTROLLER]).await;
    cluster.create(&set(4)).await;
    settle(&cluster).await;
    let all = pods(&cluster).await;
    for (pod, cost) in all[1..].iter().zip(["5", "-5", "7"]) {
        make_ready(&cluster, pod).await;
        let annotate = |pod: &mut Object| {
            pod.entry("metadata")
                .entry("annotations")
                .set("controller.kubernetes.io/pod-deletion-cost", cost);
        };
        cluster
            .change(&PODS, &pod.key().to_string(), annotate)
            .await;
    }
    settle(&cluster).await;
    for (replicas, victim) in [(3, 0), (2, 2), (1, 1)] {
        scale(&cluster, replicas).await;
        assert!(
            cluster
                .find_object(&PODS, &all[victim].key().to_string())
                .await
                .is_none(),
            "{victim} at {replicas}"
        );
    }
    assert_eq!(event_messages(&cluster, "SuccessfulDelete").await.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn terminating_pods_are_counted_apart_and_replaced_at_once() {
    let cluster = start(&[CONTROLLER]).await;
    cluster
        .create(&set(1).replace("spec: {containers", "spec: {nodeName: n1, containers"))
        .await;
    settle(&cluster).await;
    let first = pods(&cluster).await;
    cluster.delete(&PODS, &first[0].key().to_string()).await;
    settle(&cluster).await;
    let status = &cluster.object(&REPLICA_SETS, "default/web").await["status"];
    assert_eq!(
        (
            status["replicas"].int(),
            status["terminatingReplicas"].int()
        ),
        (1, 1)
    );
    assert_eq!(cluster.objects(&PODS, "default").await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_pod_becomes_available_by_the_passing_of_time() {
    let cluster = start(&[CONTROLLER]).await;
    cluster
        .create(&set(1).replace("replicas: 1", "replicas: 1, minReadySeconds: 20"))
        .await;
    settle(&cluster).await;
    make_ready(&cluster, &pods(&cluster).await[0]).await;
    let available = async || {
        cluster.object(&REPLICA_SETS, "default/web").await["status"]["availableReplicas"].int()
    };
    cluster.advance(Duration::from_secs(19)).await;
    assert_eq!(available().await, 0);
    cluster.advance(Duration::from_secs(2)).await;
    assert_eq!(available().await, 1);
}

#[tokio::test(start_paused = true)]
async fn an_exhausted_quota_causes_one_event_and_a_retry() {
    let cluster = start(&[CONTROLLER]).await;
    cluster.create("{apiVersion: v1, kind: ResourceQuota, metadata: {name: q, namespace: default}, spec: {hard: {pods: 2}}}").await;
    let room = async |n: i64| {
        let hard = value!({"pods": (n.to_string())});
        let used = value!({"pods": (pods(&cluster).await.len().to_string())});
        cluster
            .change_status(&RESOURCE_QUOTAS, "default/q", |status| {
                *status = value!({"hard": hard, "used": used})
            })
            .await;
    };
    room(2).await;
    cluster.create(&set(9)).await;
    settle(&cluster).await;
    assert_eq!(pods(&cluster).await.len(), 2);
    let status = &cluster.object(&REPLICA_SETS, "default/web").await["status"];
    let failure = &status["conditions"][0];
    assert_eq!(
        (failure["type"].str(), failure["reason"].str()),
        ("ReplicaFailure", "FailedCreate")
    );
    assert!(
        failure["message"].str().contains("exceeded quota: q"),
        "{failure:?}"
    );
    assert!(
        event_messages(&cluster, "FailedCreate").await[0]
            .starts_with("Error creating: pods \"web-")
    );
    room(20).await;
    cluster.advance(Duration::from_secs(600)).await;
    assert_eq!(pods(&cluster).await.len(), 9);
    assert_eq!(
        cluster.object(&REPLICA_SETS, "default/web").await["status"]["conditions"]
            .list()
            .len(),
        0
    );
}

#[tokio::test(start_paused = true)]
async fn more_pods_than_a_burst_come_in_bursts() {
    let cluster = start(&[CONTROLLER]).await;
    cluster.create(&set(600)).await;
    cluster.advance(Duration::from_secs(5)).await;
    assert_eq!(pods(&cluster).await.len(), 600);
    scale(&cluster, 1).await;
    cluster.advance(Duration::from_secs(5)).await;
    assert_eq!(pods(&cluster).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_set_in_deletion_creates_and_adopts_nothing() {
    let cluster = start(&[CONTROLLER]).await;
    cluster
        .create(&set(1).replace("name: web,", "name: web, finalizers: [example.com/wait],"))
        .await;
    settle(&cluster).await;
    cluster.delete(&REPLICA_SETS, "default/web").await;
    cluster
        .delete(&PODS, &pods(&cluster).await[0].key().to_string())
        .await;
    cluster.create(&pod("orphan")).await;
    settle(&cluster).await;
    let left = pods(&cluster).await;
    assert!(left.len() == 1 && left[0].owners().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_restarted_controller_continues() {
    let cluster = start(&[]).await;
    cluster.create(&set(2)).await;
    cluster.create(&pod("orphan")).await;
    cluster
        .restart_with(|builder| builder.controllers([CONTROLLER]))
        .await;
    settle(&cluster).await;
    assert_eq!(pods(&cluster).await.len(), 2);
    cluster
        .restart_with(|builder| builder.controllers([CONTROLLER]))
        .await;
    settle(&cluster).await;
    assert_eq!(pods(&cluster).await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn replication_controllers_behave_like_replica_sets() {
    let cluster = start(&["replicationcontroller-controller"]).await;
    let text = set(2)
        .replace("apps/v1", "v1")
        .replace("ReplicaSet", "ReplicationController");
    cluster
        .create(&text.replace("{matchLabels: {app: a}}", "{app: a}"))
        .await;
    settle(&cluster).await;
    let pods = pods(&cluster).await;
    assert_eq!(pods.len(), 2);
    let owner = pods[0].controller().expect("an owner");
    assert_eq!(
        (owner["kind"].str(), owner["apiVersion"].str()),
        ("ReplicationController", "v1")
    );
    let status = value!({"replicas": 2, "fullyLabeledReplicas": 2, "observedGeneration": 1});
    assert_eq!(
        cluster
            .object(&REPLICATION_CONTROLLERS, "default/web")
            .await["status"],
        status
    );
}
