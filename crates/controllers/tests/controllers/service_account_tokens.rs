//! The tokens controller.

use std::sync::Arc;

use mizzen_sdk::Object;
use mizzen_sdk::resource::{SECRETS, SERVICE_ACCOUNTS};
use mizzen_testing::Cluster;
use mizzen_value::json;

use crate::{cluster_of, settle};

/// A cluster with the account `robot`, in which tokens are their claims.
async fn cluster() -> Cluster {
    let cluster = cluster_of(&["serviceaccount-token-controller"])
        .tune_controllers(|options| {
            options.root_ca = Some("CA".into());
            options.sign_token = Some(Arc::new(|claims| Some(json::to_string(claims))));
        })
        .start()
        .await;
    cluster.create("{apiVersion: v1, kind: ServiceAccount, metadata: {name: robot, namespace: default}, secrets: [{name: t}, {name: u}]}")
        .await;
    cluster
}

async fn create_secret(cluster: &Cluster, account: &str) -> Object {
    let text = format!(
        "{{apiVersion: v1, kind: Secret, type: kubernetes.io/service-account-token, metadata: {{name: t, namespace: default, annotations: {{kubernetes.io/service-account.name: {account}}}}}}}"
    );
    let made = cluster.create(&text).await;
    settle(cluster).await;
    made
}

#[tokio::test(start_paused = true)]
async fn a_secret_is_filled_and_filled_again() {
    let cluster = cluster().await;
    create_secret(&cluster, "robot").await;
    let filled = cluster.object(&SECRETS, "default/t").await;
    let account = cluster.object(&SERVICE_ACCOUNTS, "default/robot").await;
    assert_eq!(
        filled.annotation("kubernetes.io/service-account.uid"),
        Some(account.uid())
    );
    assert_eq!(filled["data"]["namespace"].str(), "ZGVmYXVsdA==");
    let change = |secret: &mut Object| {
        secret.entry("data").remove("token");
        secret.entry("data").set("ca.crt", "eA==");
    };
    cluster.change(&SECRETS, "default/t", change).await;
    settle(&cluster).await;
    assert_eq!(
        cluster.object(&SECRETS, "default/t").await["data"],
        filled["data"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_secret_is_deleted_with_its_account() {
    let cluster = cluster().await;
    create_secret(&cluster, "robot").await;
    cluster.delete(&SERVICE_ACCOUNTS, "default/robot").await;
    settle(&cluster).await;
    assert_eq!(cluster.find_object(&SECRETS, "default/t").await, None);
}

#[tokio::test(start_paused = true)]
async fn a_secret_without_an_account_is_deleted_at_once() {
    let cluster = cluster().await;
    create_secret(&cluster, "nobody").await;
    assert_eq!(cluster.find_object(&SECRETS, "default/t").await, None);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_secret_is_removed_from_its_account() {
    let cluster = cluster().await;
    create_secret(&cluster, "robot").await;
    cluster.delete(&SECRETS, "default/t").await;
    settle(&cluster).await;
    let account = cluster.object(&SERVICE_ACCOUNTS, "default/robot").await;
    assert_eq!(json::to_string(&account["secrets"]), r#"[{"name":"u"}]"#);
}
