//! Several profiles in one scheduler.

use std::sync::Arc;

use mizzen_scheduler::Configuration;

use crate::cluster::Cluster;

#[tokio::test(start_paused = true)]
async fn profiles_have_their_own_plugins_and_names() {
    let text = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n- schedulerName: careful\n\
                - schedulerName: careless\n  plugins: {multiPoint: {disabled: [{name: TaintToleration}]}}\n\
                - schedulerName: packing\n  pluginConfig:\n  - name: NodeResourcesFit\n    args: {scoringStrategy: {type: MostAllocated}}\n  \
                plugins: {score: {disabled: [{name: NodeResourcesBalancedAllocation}]}}\n";
    let configuration = Arc::new(Configuration::parse(text.as_bytes()).unwrap());
    let cluster = Cluster::with(|options| options.configuration = configuration).await;
    cluster
        .node(
            "tainted",
            "{spec: {taints: [{key: a, effect: NoSchedule}]}}",
        )
        .await;
    for name in ["careful", "careless"] {
        cluster
            .pod(name, &format!("{{spec: {{schedulerName: {name}}}}}"))
            .await;
    }
    assert_eq!(cluster.place("careful").await, "");
    assert_eq!(cluster.place("careless").await, "tainted");
    let event = cluster.events("careless", "Scheduled").await.remove(0);
    assert_eq!(event["reportingComponent"].str(), "careless");
    assert_eq!(event["reportingInstance"].str(), "careless-h");
    cluster.node("n1", "{}").await;
    cluster.node("n2", "{}").await;
    cluster.pod("seed", "{spec: {schedulerName: careful, nodeSelector: {kubernetes.io/hostname: n2}, containers: [{name: c, image: i, resources: {requests: {cpu: '1', memory: 1Gi}}}]}}").await;
    assert_eq!(cluster.place("seed").await, "n2");
    cluster.pod("packed", "{spec: {schedulerName: packing, containers: [{name: c, image: i, resources: {requests: {cpu: '1', memory: 1Gi}}}]}}").await;
    assert_eq!(cluster.place("packed").await, "n2");
    cluster.pod("nobody", "{}").await;
    assert_eq!(cluster.place("nobody").await, "");
}
