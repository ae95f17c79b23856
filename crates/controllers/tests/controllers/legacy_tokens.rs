//! The legacy service account token cleaner.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use mizzen_sdk::resource::{PODS, SECRETS};
use mizzen_testing::{Builder, Cluster};

use crate::{settle, start};

const CONTROLLERS: [&str; 1] = ["legacy-serviceaccount-token-cleaner-controller"];
const DAY: i64 = 24 * 3600;

/// A cluster with the account `robot`, for which all but the last of these tokens were
/// auto-generated, and with a pod that mounts `mounted`.
async fn cluster(since: &str) -> Cluster {
    let cluster = start(&[]).await;
    let name = "kube-apiserver-legacy-service-account-token-tracking";
    cluster.create(&format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}, namespace: kube-system}}, data: {{since: '{since}'}}}}")).await;
    cluster.create("{apiVersion: v1, kind: ServiceAccount, metadata: {name: robot, namespace: default}, secrets: [{name: old}, {name: used}, {name: mounted}]}")
        .await;
    for (secret, label) in [
        ("old", "kubernetes.io/legacy-token-last-used: '2023-11-15'"),
        ("used", "kubernetes.io/legacy-token-last-used: '2026-11-15'"),
        ("mounted", "a: b"),
        ("wanted", "a: b"),
    ] {
        cluster.create(&format!("{{apiVersion: v1, kind: Secret, type: kubernetes.io/service-account-token, metadata: {{name: {secret}, namespace: default, labels: {{{label}}}, annotations: {{kubernetes.io/service-account.name: robot}}}}}}")).await;
    }
    cluster.create("{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: default}, spec: {containers: [{name: c, image: i}], volumes: [{name: v, secret: {secretName: mounted}}]}}").await;
    assert_eq!(cluster.objects(&PODS, "default").await.len(), 1);
    cluster
}

/// The remaining secrets some days later, with the day since when each is invalid.
async fn after(cluster: &Cluster, days: i64) -> Vec<String> {
    let then = Timestamp::from_second(cluster.now() + days * DAY).unwrap();
    let later = |builder: Builder| {
        let builder = builder.controllers(CONTROLLERS);
        builder.tune_controllers(move |options| options.clock = Arc::new(move || then))
    };
    cluster.restart_with(later).await;
    settle(cluster).await;
    let secrets = cluster.objects(&SECRETS, "default").await;
    let show = |secret: &mizzen_sdk::Object| {
        let since = secret["metadata"]["labels"]["kubernetes.io/legacy-token-invalid-since"].str();
        format!("{} {since}", secret.name()).trim_end().to_owned()
    };
    secrets.iter().map(show).collect()
}

#[tokio::test(start_paused = true)]
async fn unused_tokens_become_invalid_and_are_deleted_a_year_later() {
    let cluster = cluster("2020-01-01").await;
    assert_eq!(
        after(&cluster, 360).await,
        ["mounted", "old", "used", "wanted"]
    );
    assert_eq!(
        after(&cluster, 400).await,
        ["mounted", "old 2024-12-18", "used", "wanted"]
    );
    assert_eq!(
        after(&cluster, 700).await,
        ["mounted", "old 2024-12-18", "used", "wanted"]
    );
    assert_eq!(after(&cluster, 800).await, ["mounted", "used", "wanted"]);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_deleted_before_use_was_tracked_for_a_year() {
    let cluster = cluster("2024-06-01").await;
    assert_eq!(
        after(&cluster, 400).await,
        ["mounted", "old", "used", "wanted"]
    );
}
