//! Several profiles in one scheduler.

use crate::fixtures::{configured, create_node, create_pod, events, place};

#[tokio::test(start_paused = true)]
async fn profiles_have_their_own_plugins_and_names() {
    let text = "profiles:\n- schedulerName: careful\n\
                - schedulerName: careless\n  plugins: {multiPoint: {disabled: [{name: TaintToleration}]}}\n\
                - schedulerName: packing\n  pluginConfig:\n  - name: NodeResourcesFit\n    args: {scoringStrategy: {type: MostAllocated}}\n  \
                plugins: {score: {disabled: [{name: NodeResourcesBalancedAllocation}]}}\n";
    let cluster = configured(text).await;
    create_node(
        &cluster,
        "tainted",
        "{spec: {taints: [{key: a, effect: NoSchedule}]}}",
    )
    .await;
    for name in ["careful", "careless"] {
        create_pod(
            &cluster,
            name,
            &format!("{{spec: {{schedulerName: {name}}}}}"),
        )
        .await;
    }
    assert_eq!(place(&cluster, "careful").await, "");
    assert_eq!(place(&cluster, "careless").await, "tainted");
    let event = events(&cluster, "careless", "Scheduled").await.remove(0);
    assert_eq!(event["reportingComponent"].str(), "careless");
    assert_eq!(event["reportingInstance"].str(), "careless-mizzen-testing");
    create_node(&cluster, "n1", "{}").await;
    create_node(&cluster, "n2", "{}").await;
    create_pod(&cluster, "seed", "{spec: {schedulerName: careful, nodeSelector: {kubernetes.io/hostname: n2}, containers: [{name: c, image: i, resources: {requests: {cpu: '1', memory: 1Gi}}}]}}").await;
    assert_eq!(place(&cluster, "seed").await, "n2");
    create_pod(&cluster, "packed", "{spec: {schedulerName: packing, containers: [{name: c, image: i, resources: {requests: {cpu: '1', memory: 1Gi}}}]}}").await;
    assert_eq!(place(&cluster, "packed").await, "n2");
    create_pod(&cluster, "nobody", "{}").await;
    assert_eq!(place(&cluster, "nobody").await, "");
}
