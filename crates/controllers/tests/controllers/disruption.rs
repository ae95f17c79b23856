//! The disruption controller.

use std::time::Duration;

use mizzen_sdk::resource::{CUSTOM_RESOURCE_DEFINITIONS, EVENTS, POD_DISRUPTION_BUDGETS, PODS};
use mizzen_sdk::{Key, Object, ResourceType};
use mizzen_testing::Cluster;
use mizzen_value::{Value, time, value};

use crate::pods::{pod, run};
use crate::{read, settle, start};

const CONTROLLERS: &[&str] = &["disruption-controller"];

async fn budget(cluster: &Cluster, spec: &str) {
    cluster.create(&format!(
            "{{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {{name: b, namespace: default}}, \
             spec: {{selector: {{matchLabels: {{app: web}}}}, {spec}}}}}"
        ))
        .await;
}

/// Allowed, healthy, needed and expected, and the reason.
async fn status(cluster: &Cluster) -> (i64, i64, i64, i64, String) {
    let status = cluster.object(&POD_DISRUPTION_BUDGETS, "default/b").await["status"].clone();
    let n = |name: &str| status[name].int();
    let reason = status["conditions"][0]["reason"].str().to_string();
    (
        n("disruptionsAllowed"),
        n("currentHealthy"),
        n("desiredHealthy"),
        n("expectedPods"),
        reason,
    )
}

async fn reasons(cluster: &Cluster) -> Vec<String> {
    let events = cluster.objects(&EVENTS, "default").await;
    let mut reasons: Vec<String> = events
        .iter()
        .map(|event| event["reason"].str().to_string())
        .collect();
    reasons.sort();
    reasons.dedup();
    reasons
}

/// Running pods with a controller.
async fn controlled_pods(cluster: &Cluster, owner: &Object, n: usize) {
    let (version, kind) = (owner["apiVersion"].str(), owner["kind"].str());
    let (name, uid) = (owner.name(), owner.uid());
    let owner = format!(
        ", ownerReferences: [{{apiVersion: {version}, kind: {kind}, name: {name}, uid: {uid}, controller: true}}]"
    );
    for at in 0..n {
        pod(cluster, &format!("p{at}"), &owner).await;
        run(cluster, &format!("p{at}"), "10.1.0.1", true).await;
    }
}

async fn replica_set(cluster: &Cluster, replicas: usize) -> Object {
    cluster.create(&format!(
            "{{apiVersion: apps/v1, kind: ReplicaSet, metadata: {{name: r, namespace: default}}, spec: {{\
             replicas: {replicas}, selector: {{matchLabels: {{app: web}}}}, template: {{metadata: {{labels: {{app: web}}}}, \
             spec: {{containers: [{{name: c, image: i}}]}}}}}}}}"
        ))
        .await
}

fn said(reason: &str) -> String {
    reason.to_string()
}

#[tokio::test(start_paused = true)]
async fn a_budget_follows_its_pods() {
    let cluster = start(CONTROLLERS).await;
    budget(&cluster, "minAvailable: 1").await;
    settle(&cluster).await;
    assert_eq!(
        status(&cluster).await,
        (0, 0, 1, 0, said("InsufficientPods"))
    );
    assert_eq!(reasons(&cluster).await, ["NoPods"]);

    for name in ["p1", "p2"] {
        pod(&cluster, name, "").await;
        run(&cluster, name, "10.1.0.1", true).await;
    }
    settle(&cluster).await;
    assert_eq!(status(&cluster).await, (1, 2, 1, 2, said("SufficientPods")));

    let eviction =
        read("{apiVersion: policy/v1, kind: Eviction, metadata: {name: p1, namespace: default}}");
    cluster
        .dynamic_client()
        .create_at(&PODS, &Key::new("default", "p1"), "eviction", &eviction)
        .await
        .unwrap();
    settle(&cluster).await;
    assert_eq!(
        status(&cluster).await,
        (0, 1, 1, 2, said("InsufficientPods"))
    );
    let disrupted =
        cluster.object(&POD_DISRUPTION_BUDGETS, "default/b").await["status"]["disruptedPods"]
            .clone();
    assert_eq!(disrupted, Value::Null, "the pod is seen to go");
    let eviction =
        read("{apiVersion: policy/v1, kind: Eviction, metadata: {name: p2, namespace: default}}");
    let refused = cluster
        .dynamic_client()
        .create_at(&PODS, &Key::new("default", "p2"), "eviction", &eviction)
        .await;
    assert!(matches!(refused, Err(kube::Error::Api(status)) if status.code == 429));
}

#[tokio::test(start_paused = true)]
async fn percentages_are_of_the_controllers_scale() {
    let cluster = start(CONTROLLERS).await;
    let set = replica_set(&cluster, 5).await;
    controlled_pods(&cluster, &set, 4).await;
    budget(&cluster, "maxUnavailable: 30%").await;
    settle(&cluster).await;
    assert_eq!(status(&cluster).await, (1, 4, 3, 5, said("SufficientPods")));
}

#[tokio::test(start_paused = true)]
async fn a_custom_kind_with_a_scale_can_control_pods() {
    let cluster = start(CONTROLLERS).await;
    let definition = read(
        "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: sets.example.com}, spec: {\
         group: example.com, scope: Namespaced, names: {plural: sets, kind: Set}, versions: [{name: v1, served: true, \
         storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}, \
         subresources: {status: {}, scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}}}]}}",
    );
    cluster
        .dynamic_client()
        .create(&CUSTOM_RESOURCE_DEFINITIONS, &definition)
        .await
        .unwrap();
    let sets = ResourceType::namespaced("example.com", "v1", "sets", "Set");
    let set = value!({
        "apiVersion": "example.com/v1", "kind": "Set", "metadata": {"name": "s", "namespace": "default"},
        "spec": {"replicas": 6}
    });
    let set = cluster.dynamic_client().create(&sets, &set).await.unwrap();
    controlled_pods(&cluster, &set, 3).await;
    budget(&cluster, "minAvailable: 50%").await;
    settle(&cluster).await;
    assert_eq!(
        status(&cluster).await,
        (0, 3, 3, 6, said("InsufficientPods"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_cannot_be_counted_allows_nothing() {
    let cluster = start(CONTROLLERS).await;
    let owner = Object(value!({
        "apiVersion": "example.com/v1", "kind": "Unknown", "metadata": {"name": "u", "uid": "u1"}
    }));
    controlled_pods(&cluster, &owner, 1).await;
    budget(&cluster, "maxUnavailable: 1").await;
    settle(&cluster).await;
    let condition =
        cluster.object(&POD_DISRUPTION_BUDGETS, "default/b").await["status"]["conditions"][0]
            .clone();
    assert_eq!(condition["reason"].str(), "SyncFailed");
    assert_eq!(
        condition["message"].str(),
        "no matches for kind \"Unknown\" in version \"example.com/v1\""
    );
    assert_eq!(reasons(&cluster).await, ["CalculateExpectedPodCountFailed"]);
}

#[tokio::test(start_paused = true)]
async fn a_disrupted_pod_that_stays_counts_again_after_two_minutes() {
    let cluster = start(CONTROLLERS).await;
    pod(&cluster, "p1", "").await;
    run(&cluster, "p1", "10.1.0.1", true).await;
    budget(&cluster, "minAvailable: 0").await;
    settle(&cluster).await;
    assert_eq!(status(&cluster).await, (1, 1, 0, 1, said("SufficientPods")));

    let now = time::from_unix(cluster.now());
    cluster
        .change_status(&POD_DISRUPTION_BUDGETS, "default/b", |status| {
            status.set(
                "disruptedPods",
                value!({"p1": (now.as_str()), "gone": (now.as_str())}),
            );
        })
        .await;
    settle(&cluster).await;
    assert_eq!(
        status(&cluster).await,
        (0, 0, 0, 1, said("InsufficientPods"))
    );
    let disrupted =
        cluster.object(&POD_DISRUPTION_BUDGETS, "default/b").await["status"]["disruptedPods"]
            .clone();
    assert_eq!(
        disrupted
            .entries()
            .map(|(name, _)| name.to_string())
            .collect::<Vec<_>>(),
        ["p1"]
    );

    cluster.advance(Duration::from_secs(118)).await;
    assert_eq!(status(&cluster).await.1, 0);
    cluster.advance(Duration::from_secs(5)).await;
    assert_eq!(status(&cluster).await, (1, 1, 0, 1, said("SufficientPods")));
    assert!(reasons(&cluster).await.contains(&said("NotDeleted")));
}

#[tokio::test(start_paused = true)]
async fn a_stale_disruption_target_becomes_false_after_two_minutes() {
    let cluster = start(CONTROLLERS).await;
    pod(&cluster, "p1", "").await;
    let now = time::from_unix(cluster.now());
    let condition = value!({
        "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "lastTransitionTime": (now)
    });
    cluster
        .change_status(&PODS, "default/p1", |status| {
            status.set("conditions", value!([(condition)]));
        })
        .await;
    cluster.advance(Duration::from_secs(118)).await;
    let is = |pod: Object| pod["status"]["conditions"][0]["status"].str().to_string();
    assert_eq!(is(cluster.object(&PODS, "default/p1").await), "True");
    cluster.advance(Duration::from_secs(3)).await;
    let pod = cluster.object(&PODS, "default/p1").await;
    assert_eq!(pod["status"]["conditions"][0]["reason"], Value::Null);
    assert_eq!(is(pod), "False");
}

#[tokio::test(start_paused = true)]
async fn a_pod_may_match_two_budgets_and_leave_both() {
    let cluster = start(CONTROLLERS).await;
    budget(&cluster, "minAvailable: 0").await;
    let mut other = cluster.object(&POD_DISRUPTION_BUDGETS, "default/b").await;
    other.set("metadata", value!({"name": "c", "namespace": "default"}));
    cluster
        .dynamic_client()
        .create(&POD_DISRUPTION_BUDGETS, &other)
        .await
        .unwrap();
    settle(&cluster).await;
    pod(&cluster, "p1", "").await;
    run(&cluster, "p1", "10.1.0.1", true).await;
    settle(&cluster).await;
    let healthy = async |name: &str| {
        cluster.object(&POD_DISRUPTION_BUDGETS, name).await["status"]["currentHealthy"].int()
    };
    assert_eq!(
        (healthy("default/b").await, healthy("default/c").await),
        (1, 1)
    );
    let events = cluster.objects(&EVENTS, "default").await;
    let event = events
        .iter()
        .find(|event| event["reason"].str() == "MultiplePodDisruptionBudgets");
    let message =
        "Pod \"default\"/\"p1\" matches multiple PodDisruptionBudgets.  Chose \"b\" arbitrarily.";
    assert_eq!(event.map(|event| event["message"].str()), Some(message));

    let elsewhere = value!({"app": "other"});
    cluster
        .change(&PODS, "default/p1", |pod| {
            pod.entry("metadata").set("labels", elsewhere)
        })
        .await;
    settle(&cluster).await;
    assert_eq!(
        (healthy("default/b").await, healthy("default/c").await),
        (0, 0)
    );
}
