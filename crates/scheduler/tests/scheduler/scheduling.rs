//! Filtering and scoring of nodes.

use mizzen_sdk::resource::PODS;

use crate::fixtures::{
    create_node, create_pod, delete_now, events, place, pod_of, refusal, settle, start,
};

#[tokio::test(start_paused = true)]
async fn bound_pod_gets_a_scheduled_event() {
    let cluster = start().await;
    create_node(&cluster, "n1", "{}").await;
    create_pod(&cluster, "p", "{}").await;
    assert_eq!(place(&cluster, "p").await, "n1");
    let events = events(&cluster, "p", "Scheduled").await;
    assert_eq!(events.len(), 1);
    let event = &events[0];
    assert_eq!(
        event["message"].str(),
        "Successfully assigned default/p to n1"
    );
    assert_eq!(
        (event["action"].str(), event["type"].str()),
        ("Binding", "Normal")
    );
    assert_eq!(event["reportingComponent"].str(), "default-scheduler");
    assert!(
        event["count"].is_null() && event["firstTimestamp"].is_null() && event["source"].is_empty()
    );
}

#[tokio::test(start_paused = true)]
async fn least_allocated_node_is_preferred() {
    let cluster = start().await;
    create_node(&cluster, "n1", "{}").await;
    create_node(&cluster, "n2", "{}").await;
    create_pod(&cluster, "first", "{spec: {nodeSelector: {kubernetes.io/hostname: n1}, containers: [{name: c, image: i, resources: {requests: {cpu: '2', memory: 4Gi}}}]}}").await;
    assert_eq!(place(&cluster, "first").await, "n1");
    pod_of(&cluster, "second", "1", 0).await;
    assert_eq!(place(&cluster, "second").await, "n2");
}

#[tokio::test(start_paused = true)]
async fn surplus_pods_stay_unschedulable() {
    let cluster = start().await;
    for name in ["n1", "n2", "n3"] {
        create_node(&cluster, name, "{}").await;
    }
    for at in 0..10 {
        pod_of(&cluster, &format!("p{at}"), "1500m", 0).await;
    }
    settle(&cluster).await;
    let mut placed = [0; 3];
    for at in 0..10 {
        let node = place(&cluster, &format!("p{at}")).await;
        if let Some(number) = node.strip_prefix('n') {
            placed[number.parse::<usize>().unwrap() - 1] += 1;
        }
    }
    assert_eq!(placed, [2, 2, 2]);
}

#[tokio::test(start_paused = true)]
async fn pods_of_other_schedulers_are_ignored() {
    let cluster = start().await;
    create_node(&cluster, "n1", "{}").await;
    create_pod(&cluster, "p", "{spec: {schedulerName: someone-else}}").await;
    assert_eq!(place(&cluster, "p").await, "");
    assert!(cluster.object(&PODS, "default/p").await["status"]["conditions"].is_null());
}

#[tokio::test(start_paused = true)]
async fn host_ports_are_exclusive() {
    let cluster = start().await;
    create_node(&cluster, "n1", "{}").await;
    let ports =
        "{spec: {containers: [{name: c, image: i, ports: [{containerPort: 80, hostPort: 8080}]}]}}";
    create_pod(&cluster, "a", ports).await;
    assert_eq!(place(&cluster, "a").await, "n1");
    create_pod(&cluster, "b", ports).await;
    assert_eq!(place(&cluster, "b").await, "");
    let (_, message) = refusal(&cluster, "b").await;
    assert!(
        message.starts_with(
            "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports. "
        ),
        "{message}"
    );
    delete_now(&cluster, &PODS, "default/a").await;
    assert_eq!(place(&cluster, "b").await, "n1");
}
