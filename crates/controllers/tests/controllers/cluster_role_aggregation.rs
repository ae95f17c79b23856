//! The cluster role aggregation controller.

use mizzen_sdk::resource::CLUSTER_ROLES;
use mizzen_testing::Cluster;
use mizzen_value::json;

use crate::{settle, start};

const ALL: &str = "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: all}, aggregationRule: {clusterRoleSelectors: [{matchLabels: {x: one}}]}, rules: [{apiGroups: [''], resources: [secrets], verbs: [get]}]}";
const PART: &str = "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: part, labels: {x: one}}, rules: [{apiGroups: [''], resources: [pods], verbs: [list]}]}";

/// The rules of the aggregated role, once controllers are idle.
async fn rules(cluster: &Cluster) -> String {
    settle(cluster).await;
    let rules = cluster.object(&CLUSTER_ROLES, "all").await["rules"].clone();
    let resources: Vec<String> = rules
        .list()
        .iter()
        .map(|rule| json::to_string(&rule["resources"]))
        .collect();
    resources.join(" ")
}

#[tokio::test(start_paused = true)]
async fn an_aggregated_role_follows_the_selected_roles() {
    let cluster = start(&["clusterrole-aggregation-controller"]).await;
    cluster.create(ALL).await;
    assert_eq!(rules(&cluster).await, r#"["secrets"]"#);
    cluster.create(PART).await;
    assert_eq!(rules(&cluster).await, r#"["pods"]"#);
    cluster
        .change(&CLUSTER_ROLES, "all", |role| drop(role.remove("rules")))
        .await;
    assert_eq!(rules(&cluster).await, r#"["pods"]"#);
    cluster.delete(&CLUSTER_ROLES, "part").await;
    assert_eq!(rules(&cluster).await, "");
}
