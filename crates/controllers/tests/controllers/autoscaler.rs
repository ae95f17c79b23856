//! The horizontal pod autoscaler controller.

use std::time::Duration;

use mizzen_sdk::resource::{
    CUSTOM_RESOURCE_DEFINITIONS, DEPLOYMENTS, EVENTS, HORIZONTAL_POD_AUTOSCALERS,
};
use mizzen_sdk::{Key, Object, ResourceType};
use mizzen_testing::Cluster;
use mizzen_value::{Value, value};

use crate::pods::{LONG_AGO, pod, run};
use crate::{read, start};

pub(crate) const CONTROLLERS: &[&str] = &["horizontal-pod-autoscaler-controller"];
/// The resource of pod metrics.
const POD_METRICS: ResourceType =
    ResourceType::namespaced("metrics.k8s.io", "v1beta1", "pods", "PodMetrics");
/// An external metric.
const QUEUE_LENGTH: ResourceType =
    ResourceType::namespaced("external.metrics.k8s.io", "v1beta1", "queuelength", "Value");

/// Serves a metrics API by a CustomResourceDefinition whose objects are the metrics.
async fn serve(cluster: &Cluster, metrics: &ResourceType) {
    let ResourceType {
        group,
        version,
        plural,
        kind,
        ..
    } = metrics;
    let definition = read(&format!(
        "{{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {{name: {plural}.{group}, \
         annotations: {{api-approved.kubernetes.io: 'unapproved, a test'}}}}, spec: {{group: {group}, scope: Namespaced, \
         names: {{plural: {plural}, kind: {kind}}}, versions: [{{name: {version}, served: true, storage: true, schema: \
         {{openAPIV3Schema: {{type: object, x-kubernetes-preserve-unknown-fields: true}}}}}}]}}}}"
    ));
    cluster
        .dynamic_client()
        .create(&CUSTOM_RESOURCE_DEFINITIONS, &definition)
        .await
        .unwrap();
}

/// Sets the CPU usage of a pod.
async fn measure(cluster: &Cluster, pod: &str, cpu: &str) {
    let sample = value!({
        "apiVersion": "metrics.k8s.io/v1beta1", "kind": "PodMetrics",
        "metadata": {"name": (pod), "namespace": "default", "labels": {"app": "web"}},
        "timestamp": (LONG_AGO), "window": "30s", "containers": [{"name": "c", "usage": {"cpu": (cpu)}}]
    });
    let key = Key::new("default", pod);
    if let Some(mut old) = cluster
        .dynamic_client()
        .find(&POD_METRICS, &key)
        .await
        .unwrap()
    {
        old.set("containers", sample["containers"].clone());
        cluster
            .dynamic_client()
            .update(&POD_METRICS, &old)
            .await
            .unwrap();
    } else {
        cluster
            .dynamic_client()
            .create(&POD_METRICS, &sample)
            .await
            .unwrap();
    }
}

/// Creates a deployment.
pub(crate) async fn target(cluster: &Cluster, replicas: usize) {
    cluster.create(&format!(
            "{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: web, namespace: default}}, spec: {{\
             replicas: {replicas}, selector: {{matchLabels: {{app: web}}}}, template: {{metadata: {{labels: {{app: web}}}}, \
             spec: {{containers: [{{name: c, image: i}}]}}}}}}}}"
        ))
        .await;
}

/// Creates running pods.
pub(crate) async fn pods(cluster: &Cluster, names: impl Iterator<Item = usize>) {
    for at in names {
        pod(cluster, &format!("p{at}"), "").await;
        run(cluster, &format!("p{at}"), "10.1.0.1", true).await;
    }
}

const CPU: &str = "metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}]";

/// Creates an autoscaler of the deployment.
pub(crate) async fn autoscaler(cluster: &Cluster, spec: &str) {
    cluster.create(&format!(
            "{{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {{name: h, namespace: default}}, \
             spec: {{scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: web}}, minReplicas: 1, \
             maxReplicas: 10, {spec}}}}}"
        ))
        .await;
}

/// `spec.replicas` of the deployment.
pub(crate) async fn replicas(cluster: &Cluster) -> i64 {
    cluster.object(&DEPLOYMENTS, "default/web").await["spec"]["replicas"].int()
}

/// Conditions, as `Type Status Reason`.
pub(crate) async fn conditions(cluster: &Cluster) -> Vec<String> {
    let autoscaler = cluster
        .object(&HORIZONTAL_POD_AUTOSCALERS, "default/h")
        .await;
    let say = |condition: &Value| {
        let part = |name: &str| condition[name].str().to_string();
        format!("{} {} {}", part("type"), part("status"), part("reason"))
    };
    autoscaler["status"]["conditions"]
        .list()
        .iter()
        .map(say)
        .collect()
}

/// The messages of events with a reason.
pub(crate) async fn events(cluster: &Cluster, reason: &str) -> Vec<String> {
    let events = cluster.objects(&EVENTS, "default").await;
    let meant = events
        .iter()
        .filter(|event| event["reason"].str() == reason);
    meant
        .map(|event: &Object| event["message"].str().to_string())
        .collect()
}

pub(crate) const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_target_grows_at_once_and_shrinks_after_five_minutes() {
    let cluster = start(CONTROLLERS).await;
    serve(&cluster, &POD_METRICS).await;
    target(&cluster, 2).await;
    pods(&cluster, 0..2).await;
    for name in ["p0", "p1"] {
        measure(&cluster, name, "900m").await;
    }
    autoscaler(&cluster, CPU).await;
    cluster.advance(10 * SECOND).await;
    assert_eq!(
        replicas(&cluster).await,
        2,
        "it is looked at every fifteen seconds"
    );
    cluster.advance(6 * SECOND).await;
    assert_eq!(replicas(&cluster).await, 4);
    assert_eq!(
        conditions(&cluster).await,
        [
            "AbleToScale True SucceededRescale",
            "ScalingActive True ValidMetricFound",
            "ScalingLimited False DesiredWithinRange"
        ]
    );
    let rescaled =
        "New size: 4; reason: cpu resource utilization (percentage of request) above target";
    assert_eq!(events(&cluster, "SuccessfulRescale").await, [rescaled]);
    let status = cluster
        .object(&HORIZONTAL_POD_AUTOSCALERS, "default/h")
        .await["status"]
        .clone();
    let current = value!({"averageUtilization": 90, "averageValue": "900m"});
    assert_eq!(
        status["currentMetrics"],
        value!([{"type": "Resource", "resource": {"name": "cpu", "current": (current)}}])
    );
    assert_eq!(
        (
            status["currentReplicas"].int(),
            status["desiredReplicas"].int()
        ),
        (2, 4)
    );

    pods(&cluster, 2..4).await;
    for name in ["p0", "p1", "p2", "p3"] {
        measure(&cluster, name, "100m").await;
    }
    cluster.advance(270 * SECOND).await;
    assert_eq!(
        replicas(&cluster).await,
        4,
        "it was busy within the last five minutes"
    );
    assert_eq!(
        conditions(&cluster).await[0],
        "AbleToScale True ScaleDownStabilized"
    );
    cluster.advance(60 * SECOND).await;
    assert_eq!(replicas(&cluster).await, 1);
    assert!(
        events(&cluster, "SuccessfulRescale")
            .await
            .contains(&"New size: 1; reason: All metrics below target".into())
    );
}

#[tokio::test(start_paused = true)]
async fn behavior_limits_scaling_down() {
    let cluster = start(CONTROLLERS).await;
    serve(&cluster, &POD_METRICS).await;
    target(&cluster, 6).await;
    pods(&cluster, 0..6).await;
    for at in 0..6 {
        measure(&cluster, &format!("p{at}"), "10m").await;
    }
    let behaviour = "behavior: {scaleDown: {stabilizationWindowSeconds: 0, policies: [{type: Pods, value: 1, periodSeconds: 60}]}}";
    autoscaler(&cluster, &format!("{CPU}, {behaviour}")).await;
    cluster.advance(16 * SECOND).await;
    assert_eq!(replicas(&cluster).await, 5);
    assert_eq!(
        conditions(&cluster).await[2],
        "ScalingLimited True ScaleDownLimit"
    );
    cluster.advance(45 * SECOND).await;
    assert_eq!(replicas(&cluster).await, 5, "one a minute");
    cluster.advance(20 * SECOND).await;
    assert_eq!(replicas(&cluster).await, 4);
}

#[tokio::test(start_paused = true)]
async fn a_metric_may_belong_to_no_object() {
    let cluster = start(CONTROLLERS).await;
    serve(&cluster, &QUEUE_LENGTH).await;
    let value = value!({
        "apiVersion": "external.metrics.k8s.io/v1beta1", "kind": "Value",
        "metadata": {"name": "q", "namespace": "default"},
        "metricName": "queuelength", "timestamp": (LONG_AGO), "value": "30"
    });
    cluster
        .dynamic_client()
        .create(&QUEUE_LENGTH, &value)
        .await
        .unwrap();
    target(&cluster, 2).await;
    pods(&cluster, 0..2).await;
    autoscaler(
        &cluster,
        "metrics: [{type: External, external: {metric: {name: queuelength}, target: {type: Value, value: '20'}}}]",
    )
    .await;
    cluster.advance(16 * SECOND).await;
    assert_eq!(replicas(&cluster).await, 3);
    let status = cluster
        .object(&HORIZONTAL_POD_AUTOSCALERS, "default/h")
        .await["status"]
        .clone();
    let external = value!({"metric": {"name": "queuelength"}, "current": {"value": "30"}});
    assert_eq!(
        status["currentMetrics"],
        value!([{"type": "External", "external": (external)}])
    );
    let message = "New size: 3; reason: external metric queuelength(nil) above target";
    assert_eq!(events(&cluster, "SuccessfulRescale").await, [message]);
}

#[tokio::test(start_paused = true)]
async fn without_metrics_nothing_is_scaled() {
    let cluster = start(CONTROLLERS).await;
    target(&cluster, 2).await;
    pods(&cluster, 0..2).await;
    autoscaler(&cluster, CPU).await;
    cluster.advance(16 * SECOND).await;
    assert_eq!(replicas(&cluster).await, 2);
    assert_eq!(
        conditions(&cluster).await,
        [
            "AbleToScale True SucceededGetScale",
            "ScalingActive False FailedGetResourceMetric"
        ]
    );
    let why = "failed to get cpu utilization: unable to get metrics for resource cpu: unable to fetch metrics from \
               resource metrics API: the server could not find the requested resource (get pods.metrics.k8s.io)";
    assert_eq!(events(&cluster, "FailedGetResourceMetric").await, [why]);
    let all = format!(
        "invalid metrics (1 invalid out of 1), first error is: failed to get cpu resource metric value: {why}"
    );
    assert_eq!(
        events(&cluster, "FailedComputeMetricsReplicas").await,
        [all]
    );
}

#[tokio::test(start_paused = true)]
async fn pods_have_one_autoscaler() {
    let cluster = start(CONTROLLERS).await;
    serve(&cluster, &POD_METRICS).await;
    target(&cluster, 1).await;
    pods(&cluster, 0..1).await;
    measure(&cluster, "p0", "500m").await;
    autoscaler(&cluster, CPU).await;
    let mut other = cluster
        .object(&HORIZONTAL_POD_AUTOSCALERS, "default/h")
        .await;
    other.set("metadata", value!({"name": "i", "namespace": "default"}));
    cluster
        .dynamic_client()
        .create(&HORIZONTAL_POD_AUTOSCALERS, &other)
        .await
        .unwrap();
    cluster.advance(31 * SECOND).await;
    assert_eq!(
        conditions(&cluster).await[1],
        "ScalingActive False AmbiguousSelector"
    );
    let message = "pods by selector app=web are controlled by multiple HPAs: [default/h default/i]";
    assert!(
        events(&cluster, "AmbiguousSelector")
            .await
            .contains(&message.into())
    );
}

#[tokio::test(start_paused = true)]
async fn a_target_that_is_out_of_bounds_needs_no_metrics() {
    let cluster = start(CONTROLLERS).await;
    target(&cluster, 12).await;
    autoscaler(&cluster, CPU).await;
    cluster.advance(16 * SECOND).await;
    assert_eq!(replicas(&cluster).await, 10);
    let message = "New size: 10; reason: Current number of replicas above Spec.MaxReplicas";
    assert_eq!(events(&cluster, "SuccessfulRescale").await, [message]);
}

#[tokio::test(start_paused = true)]
async fn a_missing_target_is_in_the_condition() {
    let cluster = start(CONTROLLERS).await;
    autoscaler(&cluster, CPU).await;
    cluster.advance(16 * SECOND).await;
    assert_eq!(
        conditions(&cluster).await,
        ["AbleToScale False FailedGetScale"]
    );
    assert_eq!(
        events(&cluster, "FailedGetScale").await,
        ["deployments.apps \"web\" not found"]
    );
    target(&cluster, 0).await;
    cluster.advance(16 * SECOND).await;
    assert_eq!(
        conditions(&cluster).await,
        [
            "AbleToScale True SucceededGetScale",
            "ScalingActive False ScalingDisabled"
        ]
    );
}
