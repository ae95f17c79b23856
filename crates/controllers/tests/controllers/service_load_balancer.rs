//! The service controller with its simulated cloud.

use std::time::Duration;

use mizzen_sdk::resource::{EVENTS, SERVICES};
use mizzen_testing::{Builder, Cluster};
use mizzen_value::address::Cidr;

use crate::{cluster_of, settle};

const CONTROLLER: [&str; 1] = ["service-lb-controller"];
const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";

fn ranges(texts: &[&str]) -> Vec<Cidr> {
    texts
        .iter()
        .map(|text| Cidr::parse_sloppy(text).unwrap())
        .collect()
}

async fn start(range: &'static str) -> Cluster {
    cluster_of(&CONTROLLER)
        .tune_controllers(move |options| options.load_balancer_ranges = ranges(&[range]))
        .start()
        .await
}

async fn create(cluster: &Cluster, name: &str, spec: &str) {
    cluster.create(&format!(
            "{{apiVersion: v1, kind: Service, metadata: {{namespace: default, name: {name}}}, spec: {{ports: [{{port: 80}}], type: LoadBalancer{spec}}}}}"
        ))
        .await;
    settle(cluster).await;
}

async fn ingress(cluster: &Cluster, name: &str) -> String {
    let service = cluster.object(&SERVICES, &format!("default/{name}")).await;
    let ingress = service["status"]["loadBalancer"]["ingress"].list().iter();
    ingress
        .map(|one| format!("{}/{}", one["ip"].str(), one["ipMode"].str()))
        .collect::<Vec<_>>()
        .join(",")
}

/// The reasons and messages of events about a Service, in order.
async fn events(cluster: &Cluster, name: &str) -> Vec<String> {
    let mut events = cluster.objects(&EVENTS, "default").await;
    events.retain(|event| event["involvedObject"]["name"].str() == name);
    let text = |event: &mizzen_sdk::Object| {
        assert_eq!(event["source"]["component"].str(), "service-controller");
        format!(
            "{} {}: {}",
            event["type"].str(),
            event["reason"].str(),
            event["message"].str()
        )
    };
    events.iter().map(text).collect()
}

async fn has_finalizer(cluster: &Cluster, name: &str) -> bool {
    cluster
        .object(&SERVICES, &format!("default/{name}"))
        .await
        .has_finalizer(FINALIZER)
}

#[tokio::test(start_paused = true)]
async fn a_service_has_an_address_until_it_is_deleted() {
    let cluster = start("192.0.2.0/24").await;
    create(&cluster, "a", "").await;
    create(&cluster, "b", "").await;
    assert_eq!(ingress(&cluster, "a").await, "192.0.2.1/VIP");
    assert_eq!(ingress(&cluster, "b").await, "192.0.2.2/VIP");
    assert!(has_finalizer(&cluster, "a").await);
    cluster.delete(&SERVICES, "default/a").await;
    settle(&cluster).await;
    assert!(cluster.find_object(&SERVICES, "default/a").await.is_none());
    let mut event_messages = events(&cluster, "a").await;
    event_messages.sort();
    assert_eq!(
        event_messages,
        [
            "Normal DeletedLoadBalancer: Deleted load balancer",
            "Normal DeletingLoadBalancer: Deleting load balancer",
            "Normal EnsuredLoadBalancer: Ensured load balancer",
            "Normal EnsuringLoadBalancer: Ensuring load balancer",
        ]
    );
    create(&cluster, "c", "").await;
    assert_eq!(ingress(&cluster, "c").await, "192.0.2.1/VIP");
}

#[tokio::test(start_paused = true)]
async fn a_service_that_becomes_another_type_loses_its_address() {
    let cluster = start("192.0.2.0/24").await;
    create(&cluster, "a", "").await;
    cluster
        .change(&SERVICES, "default/a", |service| {
            service.entry("spec").set("type", "ClusterIP")
        })
        .await;
    settle(&cluster).await;
    assert_eq!(ingress(&cluster, "a").await, "");
    assert!(!has_finalizer(&cluster, "a").await);
    create(&cluster, "b", "").await;
    assert_eq!(ingress(&cluster, "b").await, "192.0.2.1/VIP");
    cluster
        .change(&SERVICES, "default/a", |service| {
            service.entry("spec").set("type", "LoadBalancer")
        })
        .await;
    settle(&cluster).await;
    assert_eq!(ingress(&cluster, "a").await, "192.0.2.2/VIP");
}

#[tokio::test(start_paused = true)]
async fn addresses_survive_a_restart_of_the_controller() {
    let cluster = start("192.0.2.0/24").await;
    create(&cluster, "a", "").await;
    create(&cluster, "b", "").await;
    cluster.restart_with(Builder::server_only).await;
    cluster.delete(&SERVICES, "default/a").await;
    create(&cluster, "c", "").await;
    assert!(
        cluster.find_object(&SERVICES, "default/a").await.is_some(),
        "the finalizer keeps it"
    );
    cluster
        .restart_with(|builder| builder.controllers(CONTROLLER))
        .await;
    settle(&cluster).await;
    assert!(cluster.find_object(&SERVICES, "default/a").await.is_none());
    assert_eq!(ingress(&cluster, "b").await, "192.0.2.2/VIP");
    assert!(["192.0.2.1/VIP", "192.0.2.3/VIP"].contains(&ingress(&cluster, "c").await.as_str()));
}

#[tokio::test(start_paused = true)]
async fn a_service_waits_for_an_address_while_all_are_taken() {
    let cluster = start("192.0.2.0/30").await;
    for name in ["a", "b", "c"] {
        create(&cluster, name, "").await;
    }
    assert_eq!(ingress(&cluster, "c").await, "");
    let failed = "Warning SyncLoadBalancerFailed: Error syncing load balancer: failed to ensure load balancer: every address of 192.0.2.0/30 is in use";
    assert!(
        events(&cluster, "c").await.contains(&failed.to_string()),
        "{:?}",
        events(&cluster, "c").await
    );
    cluster.delete(&SERVICES, "default/b").await;
    cluster.advance(Duration::from_secs(10)).await;
    assert_eq!(ingress(&cluster, "c").await, "192.0.2.2/VIP");
}

#[tokio::test(start_paused = true)]
async fn a_class_names_another_implementation() {
    let cluster = start("192.0.2.0/24").await;
    create(&cluster, "other", ", loadBalancerClass: example.com/lb").await;
    assert_eq!(ingress(&cluster, "other").await, "");
    assert!(!has_finalizer(&cluster, "other").await);
    assert!(events(&cluster, "other").await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_requested_address_is_given_and_changed() {
    let cluster = start("192.0.2.0/24").await;
    create(&cluster, "a", ", loadBalancerIP: 192.0.2.77").await;
    assert_eq!(ingress(&cluster, "a").await, "192.0.2.77/VIP");
    cluster
        .change(&SERVICES, "default/a", |service| {
            service.entry("spec").set("loadBalancerIP", "192.0.2.78")
        })
        .await;
    settle(&cluster).await;
    assert_eq!(ingress(&cluster, "a").await, "192.0.2.78/VIP");
}

#[tokio::test(start_paused = true)]
async fn without_ranges_there_is_no_cloud() {
    let cluster = cluster_of(&CONTROLLER).start().await;
    create(&cluster, "a", "").await;
    assert_eq!(ingress(&cluster, "a").await, "");
    assert!(!has_finalizer(&cluster, "a").await);
}
