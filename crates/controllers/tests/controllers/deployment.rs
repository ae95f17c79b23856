//! The Deployment controller.

use std::time::Duration;

use mizzen_sdk::Object;
use mizzen_sdk::resource::{DEPLOYMENTS, PODS, REPLICA_SETS};
use mizzen_testing::Cluster;
use mizzen_value::{Value, value};

use crate::replicaset::{event_messages, make_ready, pods};
use crate::{settle, start};

const CONTROLLERS: &[&str] = &["deployment-controller", "replicaset-controller"];
const WEB: &str = "default/web";

fn web(replicas: usize, more: &str) -> String {
    format!(
        "{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: web, namespace: default}}, spec: {{\
         replicas: {replicas}, {more} selector: {{matchLabels: {{app: a}}}}, \
         template: {{metadata: {{labels: {{app: a}}}}, spec: {{containers: [{{name: c, image: v1}}]}}}}}}}}"
    )
}

/// A deployment with ready pods.
async fn ready(replicas: usize, more: &str) -> Cluster {
    let cluster = start(CONTROLLERS).await;
    cluster.create(&web(replicas, more)).await;
    all_ready(&cluster).await;
    cluster
}

/// Makes every pod ready.
async fn all_ready(cluster: &Cluster) {
    settle(cluster).await;
    for pod in pods(cluster).await {
        if pod["status"]["phase"].str() != "Running" {
            make_ready(cluster, &pod).await;
        }
    }
    settle(cluster).await;
}

async fn change(cluster: &Cluster, change: impl FnOnce(&mut Value)) {
    cluster
        .change(&DEPLOYMENTS, WEB, |web| change(web.entry("spec")))
        .await;
    settle(cluster).await;
}

fn image(version: &str) -> impl FnOnce(&mut Value) {
    let containers = value!([{"name": "c", "image": version}]);
    move |spec| {
        spec.entry("template")
            .entry("spec")
            .set("containers", containers)
    }
}

/// The sizes of all sets, by image.
async fn sizes(cluster: &Cluster) -> Vec<(String, i64)> {
    let sets = cluster.objects(&REPLICA_SETS, "default").await;
    let mut sizes: Vec<(String, i64)> = sets
        .iter()
        .map(|set| {
            (
                set["spec"]["template"]["spec"]["containers"][0]["image"]
                    .str()
                    .into(),
                set["spec"]["replicas"].int(),
            )
        })
        .collect();
    sizes.sort();
    sizes
}

#[track_caller]
fn check(sizes: Vec<(String, i64)>, expect: &[(&str, i64)]) {
    let sizes: Vec<(&str, i64)> = sizes
        .iter()
        .map(|(image, size)| (image.as_str(), *size))
        .collect();
    assert_eq!(sizes, expect);
}

async fn condition(cluster: &Cluster, type_: &str) -> (String, String) {
    let web = cluster.object(&DEPLOYMENTS, WEB).await;
    let conditions = web["status"]["conditions"].list();
    let found = conditions
        .iter()
        .find(|condition| condition["type"].str() == type_)
        .cloned()
        .unwrap_or_default();
    (found["status"].str().into(), found["reason"].str().into())
}

async fn set_of(cluster: &Cluster, image: &str) -> Object {
    let sets = cluster.objects(&REPLICA_SETS, "default").await.into_iter();
    let is_meant =
        |set: &Object| set["spec"]["template"]["spec"]["containers"][0]["image"].str() == image;
    sets.into_iter()
        .find(is_meant)
        .expect("a set of this image")
}

#[tokio::test(start_paused = true)]
async fn managed_fields_of_a_set_survive_scaling() {
    let cluster = ready(1, "").await;
    change(&cluster, |spec| spec.set("replicas", 3)).await;
    for set in cluster.objects(&REPLICA_SETS, "default").await {
        let managed = set["metadata"]["managedFields"].list();
        let owned: Vec<_> = managed
            .iter()
            .map(|entry| entry["subresource"].str())
            .collect();
        assert_eq!(owned, ["", "status"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_deployment_comes_up_and_says_so() {
    let cluster = start(CONTROLLERS).await;
    cluster.create(&web(2, "")).await;
    settle(&cluster).await;
    assert_eq!(
        condition(&cluster, "Available").await,
        ("False".into(), "MinimumReplicasUnavailable".into())
    );
    assert_eq!(
        condition(&cluster, "Progressing").await,
        ("True".into(), "ReplicaSetUpdated".into())
    );
    all_ready(&cluster).await;
    let web = cluster.object(&DEPLOYMENTS, WEB).await;
    let mut status = web["status"].clone();
    status.remove("conditions");
    let expect = value!({"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2, "availableReplicas": 2, "terminatingReplicas": 0});
    assert_eq!(status, expect);
    assert_eq!(
        web.annotation("deployment.kubernetes.io/revision"),
        Some("1")
    );
    assert_eq!(
        condition(&cluster, "Progressing").await,
        ("True".into(), "NewReplicaSetAvailable".into())
    );
    let set = set_of(&cluster, "v1").await;
    assert_eq!(
        event_messages(&cluster, "ScalingReplicaSet").await,
        [format!("Scaled up replica set {} from 0 to 2", set.name())]
    );
}

#[tokio::test(start_paused = true)]
async fn a_rollout_proceeds_within_surge_and_unavailability() {
    let cluster = ready(4, "").await;
    change(&cluster, image("v2")).await;
    check(sizes(&cluster).await, &[("v1", 3), ("v2", 2)]);
    all_ready(&cluster).await;
    check(sizes(&cluster).await, &[("v1", 1), ("v2", 4)]);
    all_ready(&cluster).await;
    check(sizes(&cluster).await, &[("v1", 0), ("v2", 4)]);
    assert_eq!(
        condition(&cluster, "Progressing").await,
        ("True".into(), "NewReplicaSetAvailable".into())
    );
    let web = cluster.object(&DEPLOYMENTS, WEB).await;
    assert_eq!(
        web.annotation("deployment.kubernetes.io/revision"),
        Some("2")
    );
}

#[tokio::test(start_paused = true)]
async fn a_rollback_reuses_the_old_set() {
    let cluster = ready(1, "").await;
    let first = set_of(&cluster, "v1").await;
    change(&cluster, image("v2")).await;
    all_ready(&cluster).await;
    change(&cluster, image("v1")).await;
    all_ready(&cluster).await;
    check(sizes(&cluster).await, &[("v1", 1), ("v2", 0)]);
    let again = cluster
        .object(&REPLICA_SETS, &first.key().to_string())
        .await;
    assert_eq!(
        again.annotation("deployment.kubernetes.io/revision"),
        Some("3")
    );
    assert_eq!(
        again.annotation("deployment.kubernetes.io/revision-history"),
        Some("1")
    );
}

#[tokio::test(start_paused = true)]
async fn an_annotation_rolls_back() {
    let cluster = ready(1, "").await;
    change(&cluster, image("v2")).await;
    all_ready(&cluster).await;
    let annotate = |web: &mut Object| {
        web.entry("metadata")
            .entry("annotations")
            .set("deprecated.deployment.rollback.to", "1");
    };
    cluster.change(&DEPLOYMENTS, WEB, annotate).await;
    all_ready(&cluster).await;
    check(sizes(&cluster).await, &[("v1", 1), ("v2", 0)]);
    assert_eq!(
        event_messages(&cluster, "DeploymentRollback").await,
        ["Rolled back deployment \"web\" to revision 1"]
    );
    assert_eq!(
        cluster
            .object(&DEPLOYMENTS, WEB)
            .await
            .annotation("deprecated.deployment.rollback.to"),
        None
    );
}

#[tokio::test(start_paused = true)]
async fn recreate_waits_until_the_old_pods_are_gone() {
    let cluster = start(CONTROLLERS).await;
    let text = web(2, "strategy: {type: Recreate},")
        .replace("spec: {containers", "spec: {nodeName: n1, containers");
    cluster.create(&text).await;
    all_ready(&cluster).await;
    change(&cluster, image("v2")).await;
    check(sizes(&cluster).await, &[("v1", 0)]);
    let web = cluster.object(&DEPLOYMENTS, WEB).await;
    assert_eq!(web["status"]["terminatingReplicas"].int(), 2);
    for pod in cluster.objects(&PODS, "default").await {
        let now = mizzen_sdk::dynamic::DeleteOptions {
            grace_seconds: Some(0),
            ..Default::default()
        };
        cluster
            .dynamic_client()
            .delete(&PODS, &pod.key(), &now)
            .await
            .unwrap();
    }
    all_ready(&cluster).await;
    check(sizes(&cluster).await, &[("v1", 0), ("v2", 2)]);
}

#[tokio::test(start_paused = true)]
async fn a_rollout_without_progress_exceeds_its_deadline() {
    let cluster = start(CONTROLLERS).await;
    cluster
        .create(&web(1, "progressDeadlineSeconds: 60,"))
        .await;
    cluster.advance(Duration::from_secs(58)).await;
    assert_eq!(
        condition(&cluster, "Progressing").await,
        ("True".into(), "ReplicaSetUpdated".into())
    );
    cluster.advance(Duration::from_secs(6)).await;
    assert_eq!(
        condition(&cluster, "Progressing").await,
        ("False".into(), "ProgressDeadlineExceeded".into())
    );
    all_ready(&cluster).await;
    assert_eq!(
        condition(&cluster, "Progressing").await,
        ("True".into(), "NewReplicaSetAvailable".into())
    );
}

#[tokio::test(start_paused = true)]
async fn a_rollout_can_be_paused_and_resumed() {
    let cluster = ready(2, "").await;
    change(&cluster, |spec| spec.set("paused", true)).await;
    assert_eq!(
        condition(&cluster, "Progressing").await,
        ("Unknown".into(), "DeploymentPaused".into())
    );
    change(&cluster, image("v2")).await;
    check(sizes(&cluster).await, &[("v1", 2)]);
    change(&cluster, |spec| spec.set("replicas", 3)).await;
    check(sizes(&cluster).await, &[("v1", 3)]);
    change(&cluster, |spec| spec.set("paused", false)).await;
    all_ready(&cluster).await;
    all_ready(&cluster).await;
    all_ready(&cluster).await;
    check(sizes(&cluster).await, &[("v1", 0), ("v2", 3)]);
}

#[tokio::test(start_paused = true)]
async fn scaling_during_a_rollout_keeps_proportions() {
    let cluster = ready(
        10,
        "strategy: {rollingUpdate: {maxSurge: 3, maxUnavailable: 2}},",
    )
    .await;
    change(&cluster, image("v2")).await;
    check(sizes(&cluster).await, &[("v1", 8), ("v2", 5)]);
    change(&cluster, |spec| spec.set("replicas", 30)).await;
    check(sizes(&cluster).await, &[("v1", 20), ("v2", 13)]);
}

#[tokio::test(start_paused = true)]
async fn old_sets_beyond_the_limit_are_deleted() {
    let cluster = ready(1, "revisionHistoryLimit: 1,").await;
    for version in ["v2", "v3", "v4"] {
        change(&cluster, image(version)).await;
        all_ready(&cluster).await;
    }
    check(sizes(&cluster).await, &[("v3", 0), ("v4", 1)]);
}

#[tokio::test(start_paused = true)]
async fn sets_are_adopted_and_released() {
    let cluster = ready(1, "").await;
    let set = set_of(&cluster, "v1").await;
    let key = set.key().to_string();
    cluster
        .change(&REPLICA_SETS, &key, |set| {
            drop(set.entry("metadata").remove("ownerReferences"))
        })
        .await;
    settle(&cluster).await;
    assert!(
        cluster
            .object(&REPLICA_SETS, &key)
            .await
            .controller()
            .is_some()
    );
    cluster
        .change(&REPLICA_SETS, &key, |set| {
            set.entry("metadata").entry("labels").set("app", "b")
        })
        .await;
    settle(&cluster).await;
    assert!(
        cluster
            .object(&REPLICA_SETS, &key)
            .await
            .controller()
            .is_none()
    );
}

#[tokio::test(start_paused = true)]
async fn a_name_collision_leads_to_another_hash() {
    let cluster = ready(0, "").await;
    let mut squatter = set_of(&cluster, "v1").await;
    let name = squatter.name().to_string();
    cluster.delete(&DEPLOYMENTS, WEB).await;
    settle(&cluster).await;
    cluster
        .delete(&REPLICA_SETS, &squatter.key().to_string())
        .await;
    squatter.remove("status");
    squatter.set(
        "metadata",
        value!({"name": (&name), "namespace": "default", "labels": {"app": "b"}}),
    );
    cluster
        .dynamic_client()
        .create(&REPLICA_SETS, &squatter)
        .await
        .unwrap();
    cluster.create(&web(1, "")).await;
    settle(&cluster).await;
    assert_eq!(
        cluster.object(&DEPLOYMENTS, WEB).await["status"]["collisionCount"].int(),
        1
    );
    let sets = cluster.objects(&REPLICA_SETS, "default").await;
    assert_eq!(
        sets.iter().filter(|set| set.controller().is_some()).count(),
        1
    );
}

#[tokio::test(start_paused = true)]
async fn changes_of_annotations_and_times_reach_the_set() {
    let cluster = ready(1, "").await;
    cluster
        .change(&DEPLOYMENTS, WEB, |web| {
            web.entry("metadata").entry("annotations").set("team", "a");
            web.entry("spec").set("minReadySeconds", 7);
        })
        .await;
    settle(&cluster).await;
    let set = set_of(&cluster, "v1").await;
    assert_eq!(
        (set.annotation("team"), set["spec"]["minReadySeconds"].int()),
        (Some("a"), 7)
    );
}

#[tokio::test(start_paused = true)]
async fn many_deployments_come_up_together() {
    let cluster = start(CONTROLLERS).await;
    for at in 0..20 {
        let text = web(20, "")
            .replace("name: web", &format!("name: web{at}"))
            .replace("app: a", &format!("app: a{at}"));
        cluster.create(&text).await;
    }
    cluster.advance(Duration::from_secs(10)).await;
    assert_eq!(cluster.objects(&PODS, "default").await.len(), 400);
    let done = cluster.objects(&DEPLOYMENTS, "default").await;
    assert!(
        done.iter()
            .all(|web| web["status"]["updatedReplicas"].int() == 20)
    );
}
