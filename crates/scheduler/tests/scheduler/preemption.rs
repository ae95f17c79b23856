//! Preemption by pods of a higher priority.

use mizzen_sdk::resource::{POD_DISRUPTION_BUDGETS, PODS};

use crate::fixtures::{
    create_node, create_pod, delete_now, events, place, pod_of, priority, refusal, settle, start,
};

#[tokio::test(start_paused = true)]
async fn lowest_priority_pods_are_preempted() {
    let cluster = start().await;
    create_node(&cluster, "n1", "{}").await;
    for (name, priority) in [("low", 1), ("middle", 2)] {
        pod_of(&cluster, name, "2", priority).await;
        assert_eq!(place(&cluster, name).await, "n1");
    }
    pod_of(&cluster, "vip", "2", 1000).await;
    settle(&cluster).await;
    let low = cluster.object(&PODS, "default/low").await;
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
    let vip = cluster.object(&PODS, "default/vip").await;
    assert_eq!(vip["status"]["nominatedNodeName"].str(), "n1");
    let (_, message) = refusal(&cluster, "vip").await;
    assert_eq!(message, "0/1 nodes are available: 1 Insufficient cpu.");
    let events = events(&cluster, "low", "Preempted").await;
    assert_eq!(
        events[0]["message"].str(),
        format!("Preempted by pod {} on node n1", vip.uid())
    );
    assert!(
        events[0]["related"].is_null(),
        "the message alone names the other pod"
    );
    delete_now(&cluster, &PODS, "default/low").await;
    assert_eq!(place(&cluster, "vip").await, "n1");
    assert!(cluster.object(&PODS, "default/vip").await["status"]["nominatedNodeName"].is_null());
    assert_eq!(place(&cluster, "middle").await, "n1");
    assert!(
        !cluster
            .object(&PODS, "default/middle")
            .await
            .is_terminating()
    );
}

#[tokio::test(start_paused = true)]
async fn nomination_survives_a_higher_priority_preemptor() {
    let cluster = start().await;
    create_node(&cluster, "n1", "{}").await;
    pod_of(&cluster, "low", "3", 1).await;
    assert_eq!(place(&cluster, "low").await, "n1");
    for (name, priority) in [("vip", 1000), ("king", 2000)] {
        pod_of(&cluster, name, "3", priority).await;
        settle(&cluster).await;
    }
    for name in ["vip", "king"] {
        let pod = cluster.object(&PODS, &format!("default/{name}")).await;
        assert_eq!(pod["status"]["nominatedNodeName"].str(), "n1", "{name}");
    }
    delete_now(&cluster, &PODS, "default/low").await;
    assert_eq!(place(&cluster, "king").await, "n1");
}

#[tokio::test(start_paused = true)]
async fn equal_priority_and_never_policy_preempt_nothing() {
    let cluster = start().await;
    create_node(&cluster, "n1", "{}").await;
    pod_of(&cluster, "a", "3", 0).await;
    assert_eq!(place(&cluster, "a").await, "n1");
    pod_of(&cluster, "b", "3", 0).await;
    let (_, message) = refusal(&cluster, "b").await;
    assert_eq!(
        message,
        "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: 0/1 nodes are \
         available: 1 No preemption victims found for incoming pod."
    );
    priority(&cluster, "polite", 7, "Never").await;
    let polite = "{spec: {priorityClassName: polite, containers: [{name: c, image: i, resources: {requests: {cpu: '3'}}}]}}";
    create_pod(&cluster, "polite", polite).await;
    let (_, message) = refusal(&cluster, "polite").await;
    assert_eq!(
        message,
        "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: not eligible due to \
         preemptionPolicy=Never."
    );
}

#[tokio::test(start_paused = true)]
async fn disruption_budgets_are_respected_if_possible() {
    let cluster = start().await;
    for name in ["n1", "n2"] {
        create_node(&cluster, name, "{}").await;
    }
    let pod = |node: &str, app: &str| {
        format!(
            "{{metadata: {{labels: {{app: {app}}}}}, spec: {{nodeSelector: {{kubernetes.io/hostname: {node}}},
               containers: [{{name: c, image: i, resources: {{requests: {{cpu: '3'}}}}}}]}}}}"
        )
    };
    create_pod(&cluster, "guarded", &pod("n1", "guarded")).await;
    create_pod(&cluster, "free", &pod("n2", "free")).await;
    assert_eq!(place(&cluster, "guarded").await, "n1");
    assert_eq!(place(&cluster, "free").await, "n2");
    cluster.create("{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: b, namespace: default}, spec: {minAvailable: 1, selector: {matchLabels: {app: guarded}}}}")
        .await;
    cluster.patch(
            &POD_DISRUPTION_BUDGETS,
            "default/b",
            "status",
            "{status: {disruptionsAllowed: 0, currentHealthy: 1, desiredHealthy: 1, expectedPods: 1}}",
        )
        .await;
    pod_of(&cluster, "vip", "3", 10).await;
    settle(&cluster).await;
    assert!(cluster.object(&PODS, "default/free").await.is_terminating());
    assert!(
        !cluster
            .object(&PODS, "default/guarded")
            .await
            .is_terminating()
    );
}
