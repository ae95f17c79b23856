//! The StatefulSet controller.

use std::time::Duration;

use mizzen_sdk::Object;
use mizzen_sdk::resource::{
    CONTROLLER_REVISIONS, EVENTS, PERSISTENT_VOLUME_CLAIMS, PODS, STATEFUL_SETS,
};
use mizzen_testing::{Builder, Cluster};
use mizzen_value::{Value, json, time, value};

use crate::{read, settle, start};

/// A set `web` with more members of its spec.
fn set(more: &str) -> String {
    let mut set = read(
        "{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: web, namespace: default},
          spec: {serviceName: svc, selector: {matchLabels: {app: web}},
            template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: i:1}]}}}}",
    );
    for (key, member) in read(more).entries() {
        set.entry("spec").set(key, member.clone());
    }
    json::to_string(&set)
}

async fn begin(more: &str) -> Cluster {
    let cluster = start(&["statefulset-controller"]).await;
    cluster.create(&set(more)).await;
    settle(&cluster).await;
    cluster
}

/// The pods with their images, terminating ones in brackets.
async fn pods(cluster: &Cluster) -> String {
    let word = |pod: &Object| {
        let image = pod["spec"]["containers"][0]["image"]
            .str()
            .trim_start_matches("i:")
            .to_string();
        let name = pod.name().trim_start_matches("web-");
        if pod.is_terminating() {
            format!("({name}:{image})")
        } else {
            format!("{name}:{image}")
        }
    };
    let pods = cluster.objects(&PODS, "default").await;
    pods.iter().map(word).collect::<Vec<_>>().join(" ")
}

/// Makes a pod ready.
async fn ready(cluster: &Cluster, ordinal: i64) {
    let since = time::from_unix(cluster.now());
    let condition = value!({"type": "Ready", "status": "True", "lastTransitionTime": since});
    let status = value!({"phase": "Running", "conditions": [condition]});
    mark(cluster, ordinal, status).await;
}

async fn mark(cluster: &Cluster, ordinal: i64, new: Value) {
    cluster
        .change_status(&PODS, &format!("default/web-{ordinal}"), |status| {
            *status = new
        })
        .await;
    settle(cluster).await;
}

async fn scale(cluster: &Cluster, replicas: i64) {
    change(cluster, |spec| spec.set("replicas", replicas)).await;
}

async fn change(cluster: &Cluster, change: impl FnOnce(&mut Value)) {
    cluster
        .change(&STATEFUL_SETS, "default/web", |set| {
            change(set.entry("spec"))
        })
        .await;
    settle(cluster).await;
}

fn new_image(spec: &mut Value, image: &str) {
    let template = spec.entry("template").entry("spec");
    template.entry("containers").list_mut()[0].set("image", image);
}

async fn status(cluster: &Cluster) -> String {
    let status = cluster.object(&STATEFUL_SETS, "default/web").await["status"].clone();
    let fields = [
        "replicas",
        "readyReplicas",
        "availableReplicas",
        "currentReplicas",
        "updatedReplicas",
    ];
    fields
        .map(|field| status[field].int().to_string())
        .join(" ")
}

#[tokio::test(start_paused = true)]
async fn ordered_pods_are_created_in_order_and_deleted_in_reverse() {
    let cluster = begin("{replicas: 3}").await;
    assert_eq!(pods(&cluster).await, "0:1");
    ready(&cluster, 0).await;
    assert_eq!(pods(&cluster).await, "0:1 1:1");
    ready(&cluster, 1).await;
    ready(&cluster, 2).await;
    assert_eq!(status(&cluster).await, "3 3 3 3 3");

    scale(&cluster, 0).await;
    // Without a kubelet each pod is deleted at once.
    assert_eq!(pods(&cluster).await, "");
    let event_messages = messages(&cluster, "SuccessfulDelete").await;
    let order = ["2", "1", "0"]
        .map(|ordinal| format!("Delete Pod web-{ordinal} in StatefulSet web successful"));
    assert_eq!(event_messages, order);
}

/// The messages of events with this reason, in order.
async fn messages(cluster: &Cluster, reason: &str) -> Vec<String> {
    let mut events = cluster.objects(&EVENTS, "default").await;
    events.retain(|event| event["reason"].str() == reason);
    events.sort_by_key(|event| event.version().parse::<u64>().unwrap_or_default());
    events
        .iter()
        .map(|event| event["message"].str().to_string())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_pod_on_a_node_is_waited_for_until_it_is_gone() {
    let bound = "{replicas: 2, template: {metadata: {labels: {app: web}},
        spec: {nodeName: n1, containers: [{name: c, image: 'i:1'}]}}}";
    let cluster = begin(bound).await;
    ready(&cluster, 0).await;
    ready(&cluster, 1).await;
    scale(&cluster, 0).await;
    assert_eq!(pods(&cluster).await, "0:1 (1:1)");
    assert_eq!(status(&cluster).await, "2 2 2 1 1");
}

#[tokio::test(start_paused = true)]
async fn parallel_pods_are_created_and_deleted_at_once() {
    let cluster = begin("{replicas: 4, podManagementPolicy: Parallel}").await;
    assert_eq!(pods(&cluster).await, "0:1 1:1 2:1 3:1");
    scale(&cluster, 1).await;
    assert_eq!(pods(&cluster).await, "0:1");
    assert_eq!(status(&cluster).await, "1 0 0 1 1");
}

#[tokio::test(start_paused = true)]
async fn an_update_goes_from_the_highest_pod_down_and_waits_for_each() {
    let cluster = begin("{replicas: 2, podManagementPolicy: Parallel}").await;
    ready(&cluster, 0).await;
    ready(&cluster, 1).await;
    let before = cluster
        .object(&STATEFUL_SETS, "default/web")
        .await
        .at("status.currentRevision")
        .str()
        .to_string();
    change(&cluster, |spec| new_image(spec, "i:2")).await;
    assert_eq!(
        (pods(&cluster).await, status(&cluster).await),
        ("0:1 1:2".into(), "2 1 1 1 1".into())
    );
    ready(&cluster, 1).await;
    assert_eq!(pods(&cluster).await, "0:2 1:2");
    ready(&cluster, 0).await;
    assert_eq!(status(&cluster).await, "2 2 2 2 2");
    let after = cluster.object(&STATEFUL_SETS, "default/web").await["status"].clone();
    assert_eq!(after["currentRevision"], after["updateRevision"]);
    assert_ne!(after["currentRevision"].str(), before);
}

#[tokio::test(start_paused = true)]
async fn below_the_partition_pods_stay_and_come_back_as_they_were() {
    let strategy = "updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 1}}";
    let cluster = begin(&format!(
        "{{replicas: 2, podManagementPolicy: Parallel, {strategy}}}"
    ))
    .await;
    ready(&cluster, 0).await;
    ready(&cluster, 1).await;
    change(&cluster, |spec| new_image(spec, "i:2")).await;
    ready(&cluster, 1).await;
    assert_eq!(pods(&cluster).await, "0:1 1:2");
    cluster.delete(&PODS, "default/web-0").await;
    settle(&cluster).await;
    assert_eq!(pods(&cluster).await, "0:1 1:2");
}

#[tokio::test(start_paused = true)]
async fn on_delete_updates_a_pod_only_after_its_deletion() {
    let cluster = begin("{replicas: 1, updateStrategy: {type: OnDelete}}").await;
    ready(&cluster, 0).await;
    change(&cluster, |spec| new_image(spec, "i:2")).await;
    assert_eq!(
        (pods(&cluster).await, status(&cluster).await),
        ("0:1".into(), "1 1 1 1 0".into())
    );
    cluster.delete(&PODS, "default/web-0").await;
    settle(&cluster).await;
    assert_eq!(
        (pods(&cluster).await, status(&cluster).await),
        ("0:2".into(), "1 0 0 0 1".into())
    );
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_failed_comes_back() {
    let cluster = begin("{replicas: 1}").await;
    let before = cluster.object(&PODS, "default/web-0").await;
    mark(&cluster, 0, value!({"phase": "Failed"})).await;
    let after = cluster.object(&PODS, "default/web-0").await;
    assert_eq!(after.at("status.phase").str(), "Pending");
    assert_ne!(before.uid(), after.uid());
}

#[tokio::test(start_paused = true)]
async fn the_next_pod_comes_once_the_last_was_ready_for_long_enough() {
    let cluster = begin("{replicas: 2, minReadySeconds: 60}").await;
    ready(&cluster, 0).await;
    cluster.advance(Duration::from_secs(50)).await;
    assert_eq!(
        (pods(&cluster).await, status(&cluster).await),
        ("0:1".into(), "1 1 0 1 1".into())
    );
    cluster.advance(Duration::from_secs(15)).await;
    assert_eq!(
        (pods(&cluster).await, status(&cluster).await),
        ("0:1 1:1".into(), "2 1 1 2 2".into())
    );
}

const CLAIMS: &str =
    "volumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce],
    resources: {requests: {storage: 1Gi}}}}]";

/// The claims and the kinds of their owners.
async fn claims(cluster: &Cluster) -> String {
    let word = |claim: &Object| {
        let owners: Vec<&str> = claim
            .owners()
            .iter()
            .map(|owner| owner["kind"].str())
            .collect();
        format!("{}:{}", claim.name(), owners.join("+"))
    };
    cluster
        .objects(&PERSISTENT_VOLUME_CLAIMS, "default")
        .await
        .iter()
        .map(word)
        .collect::<Vec<_>>()
        .join(" ")
}

#[tokio::test(start_paused = true)]
async fn each_pod_gets_its_claim_and_leaves_it_behind() {
    let cluster = begin(&format!(
        "{{replicas: 2, podManagementPolicy: Parallel, {CLAIMS}}}"
    ))
    .await;
    assert_eq!(claims(&cluster).await, "data-web-0: data-web-1:");
    let volume = cluster.object(&PODS, "default/web-1").await["spec"]["volumes"][0].clone();
    assert_eq!(
        volume.at("persistentVolumeClaim.claimName").str(),
        "data-web-1"
    );
    scale(&cluster, 1).await;
    assert_eq!(claims(&cluster).await, "data-web-0: data-web-1:");
    let event_messages = messages(&cluster, "SuccessfulCreate").await;
    assert!(
        event_messages
            .contains(&"Create Claim data-web-1 Pod web-1 in StatefulSet web success".into()),
        "{event_messages:?}"
    );
    assert!(
        event_messages.contains(&"Create Pod web-1 in StatefulSet web successful".into()),
        "{event_messages:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_retention_policy_deletes_claims_with_the_set_or_the_pod() {
    let policy = "persistentVolumeClaimRetentionPolicy: {whenDeleted: Delete, whenScaled: Delete}";
    let template = "template: {metadata: {labels: {app: web}}, spec: {nodeName: n1, containers: [{name: c, image: 'i:1'}]}}";
    let cluster = begin(&format!(
        "{{replicas: 2, podManagementPolicy: Parallel, {CLAIMS}, {policy}, {template}}}"
    ))
    .await;
    assert_eq!(
        claims(&cluster).await,
        "data-web-0:StatefulSet data-web-1:StatefulSet"
    );
    scale(&cluster, 1).await;
    assert_eq!(
        claims(&cluster).await,
        "data-web-0:StatefulSet data-web-1:Pod"
    );
    // The pod is created again only when its claim is gone.
    let now = mizzen_sdk::dynamic::DeleteOptions {
        grace_seconds: Some(0),
        ..Default::default()
    };
    cluster
        .dynamic_client()
        .delete(&PODS, &"default/web-1".parse().unwrap(), &now)
        .await
        .unwrap();
    scale(&cluster, 2).await;
    assert_eq!(pods(&cluster).await, "0:1");
    change(&cluster, |spec| {
        spec.set(
            "persistentVolumeClaimRetentionPolicy",
            value!({"whenDeleted": "Retain", "whenScaled": "Retain"}),
        );
    })
    .await;
    assert_eq!(
        (claims(&cluster).await, pods(&cluster).await),
        ("data-web-0: data-web-1:Pod".into(), "0:1 1:1".into())
    );
}

#[tokio::test(start_paused = true)]
async fn an_orphan_of_the_right_name_and_labels_is_adopted() {
    let cluster = start(&["statefulset-controller"]).await;
    for (name, app) in [("web-0", "web"), ("web-1", "other"), ("db-0", "web")] {
        let pod =
            "{apiVersion: v1, kind: Pod, metadata: {name: NAME, namespace: default, labels: {app: APP}},
            spec: {containers: [{name: c, image: 'i:0'}]}}";
        cluster
            .create(&pod.replace("NAME", name).replace("APP", app))
            .await;
    }
    cluster
        .create(&set("{replicas: 1, updateStrategy: {type: OnDelete}}"))
        .await;
    settle(&cluster).await;
    let owned = |pod: &Object| {
        pod.controller()
            .map_or("", |owner| owner["kind"].str())
            .to_string()
    };
    let pods: Vec<String> = cluster
        .objects(&PODS, "default")
        .await
        .iter()
        .map(owned)
        .collect();
    assert_eq!(pods, ["", "StatefulSet", ""]);
    ready(&cluster, 0).await;
    let pod = cluster.object(&PODS, "default/web-0").await;
    assert_eq!(
        pod.label("statefulset.kubernetes.io/pod-name"),
        Some("web-0")
    );
    assert_eq!(
        messages(&cluster, "SuccessfulUpdate").await,
        ["Update Pod web-0 in StatefulSet web successful"]
    );
}

/// The revision numbers, by creation time.
async fn revisions(cluster: &Cluster) -> Vec<i64> {
    let mut revisions = cluster.objects(&CONTROLLER_REVISIONS, "default").await;
    revisions.sort_by_key(|revision| revision["revision"].int());
    revisions
        .iter()
        .map(|revision| revision["revision"].int())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn revisions_are_kept_renumbered_and_truncated() {
    let cluster = begin("{replicas: 0, revisionHistoryLimit: 1}").await;
    assert_eq!(revisions(&cluster).await, [1]);
    change(&cluster, |spec| new_image(spec, "i:2")).await;
    assert_eq!(revisions(&cluster).await, [1, 2]);
    change(&cluster, |spec| new_image(spec, "i:1")).await;
    assert_eq!(revisions(&cluster).await, [2, 3]);
    change(&cluster, |spec| new_image(spec, "i:3")).await;
    settle(&cluster).await;
    assert_eq!(revisions(&cluster).await, [3, 4]);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_revision_is_created_again_at_the_next_sync() {
    let cluster = begin("{replicas: 0}").await;
    let name = cluster.objects(&CONTROLLER_REVISIONS, "default").await[0]
        .name()
        .to_string();
    cluster
        .delete(&CONTROLLER_REVISIONS, &format!("default/{name}"))
        .await;
    settle(&cluster).await;
    assert_eq!(revisions(&cluster).await, [0; 0]);
    change(&cluster, |spec| spec.set("minReadySeconds", 1)).await;
    assert_eq!(revisions(&cluster).await, [1]);
}

#[tokio::test(start_paused = true)]
async fn a_set_in_deletion_still_counts_its_pods() {
    let cluster = begin("{replicas: 1}").await;
    ready(&cluster, 0).await;
    assert_eq!(status(&cluster).await, "1 1 1 1 1");
    let keep = |object: &mut Object| {
        object
            .entry("metadata")
            .set("finalizers", vec![Value::from("a.b/c")])
    };
    cluster.change(&STATEFUL_SETS, "default/web", keep).await;
    cluster.change(&PODS, "default/web-0", keep).await;
    let name = cluster.objects(&CONTROLLER_REVISIONS, "default").await[0]
        .name()
        .to_string();
    // The set and its revision are deleted as by the garbage collector; finalizers keep them.
    cluster.delete(&STATEFUL_SETS, "default/web").await;
    cluster
        .delete(&CONTROLLER_REVISIONS, &format!("default/{name}"))
        .await;
    cluster.delete(&PODS, "default/web-0").await;
    settle(&cluster).await;
    assert_eq!(status(&cluster).await, "1 1 1 0 0");
}

#[tokio::test(start_paused = true)]
async fn a_name_collision_changes_the_revisions_hash() {
    let first = begin("{replicas: 0}").await;
    let name = first.objects(&CONTROLLER_REVISIONS, "default").await[0]
        .name()
        .to_string();
    let cluster = start(&["statefulset-controller"]).await;
    let taken = "{apiVersion: apps/v1, kind: ControllerRevision, metadata: {name: NAME, namespace: default}, revision: 1, data: {}}";
    cluster.create(&taken.replace("NAME", &name)).await;
    cluster.create(&set("{replicas: 0}")).await;
    settle(&cluster).await;
    let status = cluster.object(&STATEFUL_SETS, "default/web").await["status"].clone();
    assert_eq!(status["collisionCount"].int(), 1);
    assert_ne!(status["updateRevision"].str(), name);
}

#[tokio::test(start_paused = true)]
async fn a_restarted_controller_resumes() {
    let cluster = begin("{replicas: 3}").await;
    ready(&cluster, 0).await;
    cluster.restart_with(Builder::server_only).await;
    cluster.delete(&PODS, "default/web-0").await;
    cluster
        .restart_with(|builder| builder.controllers(["statefulset-controller"]))
        .await;
    settle(&cluster).await;
    assert_eq!(pods(&cluster).await, "0:1 1:1");
    ready(&cluster, 0).await;
    ready(&cluster, 1).await;
    ready(&cluster, 2).await;
    assert_eq!(status(&cluster).await, "3 3 3 3 3");
    assert_eq!(revisions(&cluster).await, [1]);
}

#[tokio::test(start_paused = true)]
async fn a_rejected_pod_causes_an_event_and_a_retry() {
    let refused = "{replicas: 2, template: {metadata: {labels: {app: web}},
        spec: {priorityClassName: nobody, containers: [{name: c, image: 'i:1'}]}}}";
    let cluster = begin(refused).await;
    let event_messages = messages(&cluster, "FailedCreate").await;
    assert!(
        event_messages[0].starts_with("Create Pod web-0 in StatefulSet web failed error: "),
        "{event_messages:?}"
    );
    assert!(
        event_messages[0].contains("no PriorityClass with name nobody was found"),
        "{event_messages:?}"
    );
    let class = "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: nobody}, value: 5}";
    cluster.create(class).await;
    cluster.advance(Duration::from_secs(60)).await;
    assert_eq!(pods(&cluster).await, "0:1");
}

#[tokio::test(start_paused = true)]
async fn a_claim_with_another_controller_is_left_alone_with_an_event() {
    let cluster = start(&["statefulset-controller"]).await;
    let claim =
        "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data-web-0, namespace: default,
        ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: x, uid: some-uid, controller: true}]},
        spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}";
    cluster.create(claim).await;
    let policy = "persistentVolumeClaimRetentionPolicy: {whenDeleted: Delete, whenScaled: Retain}";
    cluster
        .create(&set(&format!("{{replicas: 1, {CLAIMS}, {policy}}}")))
        .await;
    settle(&cluster).await;
    assert_eq!(
        (pods(&cluster).await, claims(&cluster).await),
        ("0:1".into(), "data-web-0:ConfigMap".into())
    );
    let event_messages = messages(&cluster, "ConflictingController").await;
    assert!(
        event_messages[0]
            .starts_with("PersistentVolumeClaim data-web-0 has a conflicting OwnerReference"),
        "{event_messages:?}"
    );
}
