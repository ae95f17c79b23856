//! A control plane whose wall clock steps, and one that was suspended.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use mizzen_testing::Cluster;
use mizzen_value::clock::Clock as _;

use super::{is_ready, pass};

const HOUR: i64 = 3600;

const JOB: &str = "
apiVersion: batch/v1
kind: Job
metadata: {name: flaky, namespace: default}
spec:
  backoffLimit: 3
  template:
    metadata: {annotations: {mizzen.dev/simulate: \"run 5s, exit 1\"}}
    spec: {restartPolicy: Never, containers: [{name: c, image: i}]}
";

/// A cluster with a deployment of three pods that are ready.
async fn cluster() -> Cluster {
    let cluster = super::cluster().await;
    cluster.apply(include_str!("web.yaml")).await;
    pass(&cluster, 60).await;
    cluster
}

/// The pods by name: uid, phase, and whether they are ready.
async fn pods(
    cluster: &Cluster,
) -> BTreeMap<Option<String>, (Option<String>, Option<String>, bool)> {
    let row = |pod: Pod| {
        let is_ready = is_ready(&pod);
        let phase = pod.status.and_then(|status| status.phase);
        (pod.metadata.name, (pod.metadata.uid, phase, is_ready))
    };
    cluster.list::<Pod>().await.into_iter().map(row).collect()
}

/// The conditions and taints of unhealthy nodes.
async fn ailments(cluster: &Cluster) -> Vec<String> {
    let mut found = Vec::new();
    for node in cluster.list::<Node>().await {
        let conditions = node.status.and_then(|status| status.conditions);
        let mut conditions = conditions.into_iter().flatten();
        let ready = conditions.find(|one| one.type_ == "Ready");
        let status = ready.map_or(String::new(), |ready| ready.status);
        let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
        if status != "True" || !taints.is_empty() {
            found.push(format!(
                "{:?} Ready={status} {taints:?}",
                node.metadata.name
            ));
        }
    }
    found
}

/// The time since the renewal of a lease, by the wall clock.
async fn lease_age(cluster: &Cluster, node: &str) -> i64 {
    let lease = cluster
        .get::<Lease>(&format!("kube-node-lease/{node}"))
        .await;
    let renewed = lease.spec.and_then(|spec| spec.renew_time).unwrap();
    cluster.clock().now().0 - renewed.0.as_second()
}

#[tokio::test]
async fn a_clock_step_evicts_no_pod_and_loses_no_node() {
    for step in [-HOUR, HOUR] {
        let cluster = cluster().await;
        let before = pods(&cluster).await;
        assert_eq!(before.len(), 3);
        assert!(before.values().all(|(_, _, ready)| *ready), "{before:?}");
        cluster.clock().step(step);
        for second in 0..150 {
            pass(&cluster, 1).await;
            assert_eq!(
                ailments(&cluster).await,
                [""; 0],
                "{step}, after {second} s"
            );
        }
        assert_eq!(pods(&cluster).await, before, "{step}");
        for node in ["node-0", "node-1"] {
            let age = lease_age(&cluster, node).await;
            assert!((0..=11).contains(&age), "{node}: {age}");
        }
    }
}

#[tokio::test]
async fn a_rollout_continues_through_a_clock_step() {
    for step in [-HOUR, HOUR] {
        let cluster = cluster().await;
        cluster.apply(include_str!("web-v2.yaml")).await;
        // In the middle of the rollout.
        cluster.advance(Duration::from_millis(20)).await;
        cluster.clock().step(step);
        pass(&cluster, 60).await;
        let n = cluster
            .get::<Deployment>("web")
            .await
            .spec
            .unwrap()
            .replicas;
        let status = cluster.get::<Deployment>("web").await.status.unwrap();
        let counts = [
            status.updated_replicas,
            status.ready_replicas,
            status.available_replicas,
            status.replicas,
        ];
        assert_eq!(counts, [n; 4], "after {step}");
    }
}

#[tokio::test]
async fn the_back_off_of_a_job_ends_despite_a_clock_step() {
    for step in [-HOUR, HOUR] {
        let cluster = cluster().await;
        cluster.apply(JOB).await;
        // The first pod has failed, the job waits.
        pass(&cluster, 8).await;
        cluster.clock().step(step);
        // Three more failures: at most 10 + 20 + 40 s of back-off, and what the pods take.
        pass(&cluster, 130).await;
        let status = cluster.get::<Job>("flaky").await.status.unwrap();
        let mut conditions = status.conditions.iter().flatten();
        let failed = conditions.any(|one| one.type_ == "Failed" && one.status == "True");
        assert!(failed, "{step}: {status:?}");
    }
}

#[tokio::test]
async fn a_restart_with_an_older_clock_keeps_pods_running() {
    for step in [-HOUR, HOUR] {
        let cluster = cluster().await;
        let before = pods(&cluster).await;
        cluster.clock().step(step);
        cluster.restart();
        for _ in 0..30 {
            pass(&cluster, 5).await;
            assert_eq!(pods(&cluster).await, before, "{step}");
        }
        assert_eq!(ailments(&cluster).await, [""; 0], "{step}");
    }
}

/// Every timer is an hour late at once, and the wall clock as well: a suspend that the monotonic clock counts.
#[tokio::test]
async fn after_a_suspend_pods_run_and_nodes_are_ready() {
    let cluster = cluster().await;
    let before = pods(&cluster).await;
    tokio::time::advance(Duration::from_secs(3600)).await;
    pass(&cluster, 120).await;
    assert_eq!(ailments(&cluster).await, [""; 0]);
    assert_eq!(pods(&cluster).await, before);
    cluster.apply(include_str!("web-v2.yaml")).await;
    pass(&cluster, 60).await;
    let web = cluster.get::<Deployment>("web").await;
    assert_eq!(
        web.status.unwrap().updated_replicas,
        web.spec.unwrap().replicas
    );
}
