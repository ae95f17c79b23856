//! Preemption by pods of a higher priority.

use mizzen_sdk::resource::{POD_DISRUPTION_BUDGETS, PODS};

use crate::cluster::Cluster;

#[tokio::test(start_paused = true)]
async fn lowest_priority_pods_are_preempted() {
    let cluster = Cluster::start().await;
    cluster.node("n1", "{}").await;
    for (name, priority) in [("low", 1), ("middle", 2)] {
        cluster.pod_of(name, "2", priority).await;
        assert_eq!(cluster.place(name).await, "n1");
    }
    cluster.pod_of("vip", "2", 1000).await;
    cluster.settle().await;
    let low = cluster.get(&PODS, "default/low").await;
    assert!(low.is_terminating(), "it has time to go");
    let types: Vec<&str> = low["status"]["conditions"]
        .list()
        .iter()
        .map(|c| c["type"].str())
        .collect();
    assert_eq!(
        types,
        ["PodScheduled", "DisruptionTarget"],
        "what is new comes last"
    );
    let condition = &low["status"]["conditions"][1];
    assert_eq!(condition["reason"].str(), "PreemptionByScheduler");
    assert_eq!(
        condition["message"].str(),
        "default-scheduler: preempting to accommodate a higher priority pod"
    );
    let vip = cluster.get(&PODS, "default/vip").await;
    assert_eq!(vip["status"]["nominatedNodeName"].str(), "n1");
    let (_, message) = cluster.refusal("vip").await;
    assert_eq!(message, "0/1 nodes are available: 1 Insufficient cpu.");
    let events = cluster.events("low", "Preempted").await;
    assert_eq!(
        events[0]["message"].str(),
        format!("Preempted by pod {} on node n1", vip.uid())
    );
    assert!(
        events[0]["related"].is_null(),
        "the message alone names the other pod"
    );
    cluster.delete(&PODS, "default/low").await;
    assert_eq!(cluster.place("vip").await, "n1");
    assert!(cluster.get(&PODS, "default/vip").await["status"]["nominatedNodeName"].is_null());
    assert_eq!(cluster.place("middle").await, "n1");
    assert!(!cluster.get(&PODS, "default/middle").await.is_terminating());
}

#[tokio::test(start_paused = true)]
async fn nomination_survives_a_higher_priority_preemptor() {
    let cluster = Cluster::start().await;
    cluster.node("n1", "{}").await;
    cluster.pod_of("low", "3", 1).await;
    assert_eq!(cluster.place("low").await, "n1");
    for (name, priority) in [("vip", 1000), ("king", 2000)] {
        cluster.pod_of(name, "3", priority).await;
        cluster.settle().await;
    }
    for name in ["vip", "king"] {
        let pod = cluster.get(&PODS, &format!("default/{name}")).await;
        assert_eq!(pod["status"]["nominatedNodeName"].str(), "n1", "{name}");
    }
    cluster.delete(&PODS, "default/low").await;
    assert_eq!(cluster.place("king").await, "n1");
}

#[tokio::test(start_paused = true)]
async fn equal_priority_and_never_policy_preempt_nothing() {
    let cluster = Cluster::start().await;
    cluster.node("n1", "{}").await;
    cluster.pod_of("a", "3", 0).await;
    assert_eq!(cluster.place("a").await, "n1");
    cluster.pod_of("b", "3", 0).await;
    let (_, message) = cluster.refusal("b").await;
    assert_eq!(
        message,
        "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: 0/1 nodes are \
         available: 1 No preemption victims found for incoming pod."
    );
    cluster.priority("polite", 7, "Never").await;
    let polite = "{spec: {priorityClassName: polite, containers: [{name: c, image: i, resources: {requests: {cpu: '3'}}}]}}";
    cluster.pod("polite", polite).await;
    let (_, message) = cluster.refusal("polite").await;
    assert_eq!(
        message,
        "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: not eligible due to \
         preemptionPolicy=Never."
    );
}

#[tokio::test(start_paused = true)]
async fn disruption_budgets_are_respected_if_possible() {
    let cluster = Cluster::start().await;
    for name in ["n1", "n2"] {
        cluster.node(name, "{}").await;
    }
    let pod = |node: &str, app: &str| {
        format!(
            "{{metadata: {{labels: {{app: {app}}}}}, spec: {{nodeSelector: {{kubernetes.io/hostname: {node}}},
               containers: [{{name: c, image: i, resources: {{requests: {{cpu: '3'}}}}}}]}}}}"
        )
    };
    cluster.pod("guarded", &pod("n1", "guarded")).await;
    cluster.pod("free", &pod("n2", "free")).await;
    assert_eq!(cluster.place("guarded").await, "n1");
    assert_eq!(cluster.place("free").await, "n2");
    cluster
        .create("{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: b, namespace: default}, spec: {minAvailable: 1, selector: {matchLabels: {app: guarded}}}}")
        .await;
    cluster
        .patch(
            &POD_DISRUPTION_BUDGETS,
            "default/b",
            "status",
            "{status: {disruptionsAllowed: 0, currentHealthy: 1, desiredHealthy: 1, expectedPods: 1}}",
        )
        .await;
    cluster.pod_of("vip", "3", 10).await;
    cluster.settle().await;
    assert!(cluster.get(&PODS, "default/free").await.is_terminating());
    assert!(!cluster.get(&PODS, "default/guarded").await.is_terminating());
}
