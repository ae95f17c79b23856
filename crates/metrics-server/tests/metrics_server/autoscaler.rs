//! A HorizontalPodAutoscaler goes by what pods use.

use mizzen_testing::Cluster;
use mizzen_value::Value;

use crate::fixtures::{pass, read, start};

const WEB: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata:
      labels: {app: web}
      annotations: {mizzen.dev/usage: 'cpu=100m for 2m then cpu=400m for 3m then cpu=20m'}
    spec:
      containers: [{name: web, image: web, resources: {requests: {cpu: 200m}}}]
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web, namespace: default}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  minReplicas: 1
  maxReplicas: 4
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}]
";

const AUTOSCALER: &str = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/web";

async fn replicas(cluster: &Cluster) -> i64 {
    let path = "/apis/apps/v1/namespaces/default/deployments/web";
    read(cluster, path).await["spec"]["replicas"].int()
}

/// Conditions, as `Type Status Reason`.
async fn conditions(cluster: &Cluster) -> Vec<String> {
    let autoscaler = read(cluster, AUTOSCALER).await;
    let row = |condition: &Value| {
        let part = |field: &str| condition[field].str();
        format!("{} {} {}", part("type"), part("status"), part("reason"))
    };
    let conditions = autoscaler["status"]["conditions"].list();
    conditions.iter().map(row).collect()
}

#[tokio::test(start_paused = true)]
async fn a_deployment_is_scaled_out_and_in_as_its_usage_rises_and_falls() {
    let cluster = start().await;
    cluster.apply(WEB).await;
    pass(&cluster, 100).await;
    assert_eq!(replicas(&cluster).await, 1, "as much is used as is meant");
    let autoscaler = read(&cluster, AUTOSCALER).await;
    let current = &autoscaler["status"]["currentMetrics"][0]["resource"]["current"];
    assert_eq!(current["averageUtilization"].int(), 50, "{autoscaler:?}");
    assert_eq!(current["averageValue"].str(), "100m");
    assert_eq!(
        conditions(&cluster).await,
        [
            "AbleToScale True ReadyForNewScale",
            "ScalingActive True ValidMetricFound",
            "ScalingLimited False DesiredWithinRange"
        ]
    );
    // The pod uses four times as much from the second minute on.
    pass(&cluster, 80).await;
    assert_eq!(replicas(&cluster).await, 4);
    assert!(
        conditions(&cluster)
            .await
            .contains(&"ScalingActive True ValidMetricFound".into())
    );
    // All pods are idle after eight minutes, which counts five minutes later.
    pass(&cluster, 7 * 60).await;
    assert_eq!(
        replicas(&cluster).await,
        4,
        "fewer are wanted, but not for long"
    );
    pass(&cluster, 5 * 60).await;
    assert_eq!(replicas(&cluster).await, 1);
    let events = read(
        &cluster,
        "/api/v1/namespaces/default/events?fieldSelector=reason%3DSuccessfulRescale",
    )
    .await;
    let messages: Vec<&str> = events["items"]
        .list()
        .iter()
        .map(|event| event["message"].str())
        .collect();
    // A window that begins before the rise and ends after it may ask for fewer at first.
    let above = "cpu resource utilization (percentage of request) above target";
    let (last, rises) = messages.split_last().unwrap();
    assert!(
        rises.iter().all(|rise| rise.ends_with(above)),
        "{messages:?}"
    );
    assert_eq!(
        rises.last(),
        Some(&&*format!("New size: 4; reason: {above}"))
    );
    assert_eq!(*last, "New size: 1; reason: All metrics below target");
}
