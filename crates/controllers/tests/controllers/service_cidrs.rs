//! The ServiceCIDR controller.

use std::time::Duration;

use mizzen_sdk::resource::SERVICE_CIDRS;
use mizzen_testing::Cluster;

use crate::{settle, start};

async fn ready_condition(cluster: &Cluster, name: &str) -> (String, String) {
    let range = cluster.object(&SERVICE_CIDRS, name).await;
    let condition = &range["status"]["conditions"][0];
    (
        condition["status"].str().into(),
        condition["message"].str().into(),
    )
}

async fn make(cluster: &Cluster, name: &str, cidr: &str) {
    cluster.create(&format!(
            "{{apiVersion: networking.k8s.io/v1, kind: ServiceCIDR, metadata: {{name: {name}}}, spec: {{cidrs: ['{cidr}']}}}}"
        ))
        .await;
    settle(cluster).await;
}

#[tokio::test(start_paused = true)]
async fn a_service_cidr_is_ready_and_deleted_when_no_address_depends_on_it() {
    let cluster = start(&["service-cidr-controller"]).await;
    make(&cluster, "more", "10.99.0.0/24").await;
    assert_eq!(
        ready_condition(&cluster, "more").await,
        ("True".into(), "Kubernetes Service CIDR is ready".into())
    );
    cluster.create("{apiVersion: networking.k8s.io/v1, kind: IPAddress, metadata: {name: 10.99.0.7, labels: {ipaddress.kubernetes.io/managed-by: ipallocator.k8s.io, ipaddress.kubernetes.io/ip-family: IPv4}}, spec: {parentRef: {resource: services, namespace: default, name: s}}}")
        .await;
    cluster.delete(&SERVICE_CIDRS, "more").await;
    cluster.advance(Duration::from_secs(20)).await;
    assert_eq!(ready_condition(&cluster, "more").await.0, "False");
    make(&cluster, "whole", "10.99.0.0/16").await;
    settle(&cluster).await;
    assert!(cluster.find_object(&SERVICE_CIDRS, "more").await.is_none());
}
