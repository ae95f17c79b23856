//! Pods with persistent volume claims.

use std::time::Duration;

use mizzen_sdk::resource::{PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS};
use mizzen_testing::Cluster;

use crate::fixtures::{configured, create_node, create_pod, delete_now, place, refusal, start};

const POD: &str = "{spec: {volumes: [{name: v, persistentVolumeClaim: {claimName: c}}]}}";

async fn class(cluster: &Cluster, mode: &str, provisioner: &str) {
    cluster.create(&format!(
            "{{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {{name: fast}}, provisioner: {provisioner}, volumeBindingMode: {mode}}}"
        ))
        .await;
}

async fn claim(cluster: &Cluster) {
    cluster.create("{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: c, namespace: default}, spec: {accessModes: [ReadWriteOnce], storageClassName: fast, resources: {requests: {storage: 1Gi}}}}")
        .await;
}

async fn volume(cluster: &Cluster, name: &str, node: &str, size: &str) {
    cluster.create(&format!(
            "{{apiVersion: v1, kind: PersistentVolume, metadata: {{name: {name}}}, spec: {{capacity: {{storage: {size}}}, accessModes: [ReadWriteOnce],
               storageClassName: fast, local: {{path: /x}}, nodeAffinity: {{required: {{nodeSelectorTerms: [{{matchExpressions:
               [{{key: kubernetes.io/hostname, operator: In, values: [{node}]}}]}}]}}}}}}}}"
        ))
        .await;
    cluster
        .patch(
            &PERSISTENT_VOLUMES,
            name,
            "status",
            "{status: {phase: Available}}",
        )
        .await;
}

/// Marks a claim as bound, as the volume controller does.
async fn complete(cluster: &Cluster, volume: &str) {
    let change = format!(
        "{{metadata: {{annotations: {{pv.kubernetes.io/bind-completed: 'yes'}}}}, spec: {{volumeName: {volume}}}}}"
    );
    cluster
        .patch(&PERSISTENT_VOLUME_CLAIMS, "default/c", "", &change)
        .await;
}

#[tokio::test(start_paused = true)]
async fn missing_or_unbound_claim_is_unschedulable() {
    let cluster = start().await;
    create_node(&cluster, "n1", "{}").await;
    create_pod(&cluster, "p", POD).await;
    let (_, message) = refusal(&cluster, "p").await;
    assert_eq!(
        message,
        "0/1 nodes are available: persistentvolumeclaim \"c\" not found. not found"
    );
    class(&cluster, "Immediate", "example.com/x").await;
    claim(&cluster).await;
    let (_, message) = refusal(&cluster, "p").await;
    assert_eq!(
        message,
        "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found"
    );
    volume(&cluster, "v1", "n1", "2Gi").await;
    complete(&cluster, "v1").await;
    cluster.advance(Duration::from_secs(5)).await;
    assert_eq!(place(&cluster, "p").await, "n1");
}

#[tokio::test(start_paused = true)]
async fn volume_is_provisioned_for_the_selected_node() {
    let cluster = start().await;
    create_node(&cluster, "n1", "{}").await;
    class(&cluster, "WaitForFirstConsumer", "example.com/x").await;
    claim(&cluster).await;
    create_pod(&cluster, "p", POD).await;
    assert_eq!(place(&cluster, "p").await, "");
    let claim = cluster.object(&PERSISTENT_VOLUME_CLAIMS, "default/c").await;
    assert_eq!(
        claim.annotation("volume.kubernetes.io/selected-node"),
        Some("n1")
    );
    assert_eq!(
        cluster.object(&PODS, "default/p").await["status"]["nominatedNodeName"].str(),
        "n1"
    );
    volume(&cluster, "made", "n1", "1Gi").await;
    complete(&cluster, "made").await;
    cluster.advance(Duration::from_secs(2)).await;
    assert_eq!(place(&cluster, "p").await, "n1");
}

#[tokio::test(start_paused = true)]
async fn smallest_matching_volume_is_bound() {
    let cluster = start().await;
    for name in ["n1", "n2"] {
        create_node(&cluster, name, "{}").await;
    }
    class(
        &cluster,
        "WaitForFirstConsumer",
        "kubernetes.io/no-provisioner",
    )
    .await;
    claim(&cluster).await;
    create_pod(&cluster, "p", POD).await;
    let (_, message) = refusal(&cluster, "p").await;
    assert!(
        message.starts_with(
            "0/2 nodes are available: 2 node(s) didn't find available persistent volumes to bind. "
        ),
        "{message}"
    );
    volume(&cluster, "large", "n2", "5Gi").await;
    volume(&cluster, "small", "n2", "2Gi").await;
    volume(&cluster, "tiny", "n1", "1Mi").await;
    cluster.advance(Duration::from_secs(3)).await;
    let small = cluster.object(&PERSISTENT_VOLUMES, "small").await;
    let large = cluster.object(&PERSISTENT_VOLUMES, "large").await;
    let bound = if small["spec"]["claimRef"].is_null() {
        large
    } else {
        small
    };
    assert_eq!(bound["spec"]["claimRef"]["name"].str(), "c");
    assert_eq!(
        bound.annotation("pv.kubernetes.io/bound-by-controller"),
        Some("yes")
    );
    complete(&cluster, bound.name()).await;
    cluster.advance(Duration::from_secs(2)).await;
    assert_eq!(place(&cluster, "p").await, "n2");
}

#[tokio::test(start_paused = true)]
async fn bind_timeout_requeues_the_pod() {
    let cluster = start().await;
    create_node(&cluster, "n1", "{}").await;
    class(&cluster, "WaitForFirstConsumer", "example.com/x").await;
    claim(&cluster).await;
    create_pod(&cluster, "p", POD).await;
    cluster.advance(Duration::from_secs(602)).await;
    let (reason, message) = refusal(&cluster, "p").await;
    assert_eq!(reason, "SchedulerError");
    assert_eq!(
        message,
        "running PreBind plugin \"VolumeBinding\": binding volumes: context deadline exceeded"
    );
}

#[tokio::test(start_paused = true)]
async fn bind_timeout_is_configurable() {
    for (patience, before) in [(30, Some(28)), (0, None)] {
        let text = format!(
            "podInitialBackoffSeconds: 300\npodMaxBackoffSeconds: 300\nprofiles:\n- pluginConfig:\n  \
             - {{name: VolumeBinding, args: {{bindTimeoutSeconds: {patience}}}}}\n"
        );
        let cluster = configured(&text).await;
        create_node(&cluster, "n1", "{}").await;
        class(&cluster, "WaitForFirstConsumer", "example.com/x").await;
        claim(&cluster).await;
        create_pod(&cluster, "p", POD).await;
        if let Some(before) = before {
            cluster.advance(Duration::from_secs(before)).await;
            assert_eq!(refusal(&cluster, "p").await, Default::default());
            cluster.advance(Duration::from_secs(2)).await;
        }
        let (_, message) = refusal(&cluster, "p").await;
        assert!(
            message.ends_with("binding volumes: context deadline exceeded"),
            "{patience}: {message}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn read_write_once_pod_claim_is_exclusive() {
    let cluster = start().await;
    create_node(&cluster, "n1", "{}").await;
    class(&cluster, "Immediate", "example.com/x").await;
    cluster.create("{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: c, namespace: default, annotations: {pv.kubernetes.io/bind-completed: 'yes'}}, spec: {accessModes: [ReadWriteOncePod], storageClassName: fast, volumeName: v1, resources: {requests: {storage: 1Gi}}}}")
        .await;
    volume(&cluster, "v1", "n1", "1Gi").await;
    create_pod(&cluster, "a", POD).await;
    assert_eq!(place(&cluster, "a").await, "n1");
    create_pod(&cluster, "b", POD).await;
    let (_, message) = refusal(&cluster, "b").await;
    assert!(message.starts_with("0/1 nodes are available: 1 node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod. "), "{message}");
    delete_now(&cluster, &PODS, "default/a").await;
    assert_eq!(place(&cluster, "b").await, "n1");
}
