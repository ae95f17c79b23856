//! Pods with resource claims.

use std::time::Duration;

use mizzen_sdk::resource::{PODS, RESOURCE_CLAIMS};
use mizzen_testing::Cluster;

use crate::fixtures::{configured, create_node, create_pod, place, refusal, settle, start};

/// A pod spec that uses the claim `c`.
pub(crate) const POD: &str = "{spec: {resourceClaims: [{name: gpu, resourceClaimName: c}], containers: [{name: c, image: i, resources: {claims: [{name: gpu}]}}]}}";

pub(crate) async fn slice(cluster: &Cluster, node: &str) {
    cluster.create(&format!(
            "{{apiVersion: resource.k8s.io/v1, kind: ResourceSlice, metadata: {{name: s-{node}}}, spec: {{driver: gpu.example.com, nodeName: {node},
               pool: {{name: {node}, generation: 1, resourceSliceCount: 1}},
               devices: [{{name: d0, attributes: {{model: {{string: small}}}}, capacity: {{memory: {{value: 8Gi}}}}}},
                         {{name: d1, attributes: {{model: {{string: large}}}}, capacity: {{memory: {{value: 40Gi}}}}}}]}}}}"
        ))
        .await;
}

pub(crate) async fn class(cluster: &Cluster) {
    cluster.create("{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: gpu}, spec: {selectors: [{cel: {expression: 'device.driver == \"gpu.example.com\"'}}]}}")
        .await;
}

pub(crate) async fn claim(cluster: &Cluster, name: &str, expression: &str) {
    cluster.create(&format!(
            "{{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {{name: {name}, namespace: default}}, spec: {{devices: {{requests:
               [{{name: r, exactly: {{deviceClassName: gpu, selectors: [{{cel: {{expression: '{expression}'}}}}]}}}}]}}}}}}"
        ))
        .await;
}

#[tokio::test(start_paused = true)]
async fn claim_gets_a_matching_device() {
    let cluster = start().await;
    create_node(&cluster, "n1", "{}").await;
    create_node(&cluster, "n2", "{}").await;
    class(&cluster).await;
    slice(&cluster, "n2").await;
    claim(
        &cluster,
        "c",
        "device.capacity[\"gpu.example.com\"].memory.compareTo(quantity(\"16Gi\")) > 0",
    )
    .await;
    create_pod(&cluster, "p", POD).await;
    assert_eq!(place(&cluster, "p").await, "n2");
    let claim = cluster.object(&RESOURCE_CLAIMS, "default/c").await;
    let result = &claim["status"]["allocation"]["devices"]["results"][0];
    assert_eq!(
        (
            result["device"].str(),
            result["pool"].str(),
            result["request"].str()
        ),
        ("d1", "n2", "r")
    );
    assert!(!claim["status"]["allocation"]["allocationTimestamp"].is_null());
    assert_eq!(claim["status"]["reservedFor"][0]["name"].str(), "p");
    assert!(claim.has_finalizer("resource.kubernetes.io/delete-protection"));
}

#[tokio::test(start_paused = true)]
async fn failing_selector_rejects_all_nodes() {
    let cluster = start().await;
    create_node(&cluster, "n1", "{}").await;
    class(&cluster).await;
    slice(&cluster, "n1").await;
    claim(
        &cluster,
        "c",
        "device.attributes[\"gpu.example.com\"].colour == \"red\"",
    )
    .await;
    create_pod(&cluster, "p", POD).await;
    let (reason, message) = refusal(&cluster, "p").await;
    assert_eq!(reason, "SchedulerError");
    let expected = "running \"DynamicResources\" filter plugin: claim default/c: selector #0: CEL runtime error: no such \
                    key: colour";
    assert_eq!(message, expected);
}

#[tokio::test(start_paused = true)]
async fn missing_attribute_domain_is_empty_and_versions_compare() {
    let cluster = start().await;
    create_node(&cluster, "n1", "{}").await;
    class(&cluster).await;
    cluster.create("{apiVersion: resource.k8s.io/v1, kind: ResourceSlice, metadata: {name: s}, spec: {driver: gpu.example.com, nodeName: n1,
                   pool: {name: n1, generation: 1, resourceSliceCount: 1},
                   devices: [{name: d0}, {name: d1, attributes: {firmware: {version: 2.1.0}}}]}}")
        .await;
    let domain = "device.attributes[\"gpu.example.com\"]";
    let expression = format!(
        "!(\"x.example.com\" in device.attributes) && !has(device.attributes[\"x.example.com\"].a) && \
         has({domain}.firmware) && {domain}.firmware.isGreaterThan(semver(\"2.0.0\"))"
    );
    claim(&cluster, "c", &expression).await;
    create_pod(&cluster, "p", POD).await;
    assert_eq!(place(&cluster, "p").await, "n1");
    let claim = cluster.object(&RESOURCE_CLAIMS, "default/c").await;
    assert_eq!(
        claim["status"]["allocation"]["devices"]["results"][0]["device"].str(),
        "d1"
    );
}

#[tokio::test(start_paused = true)]
async fn device_is_allocated_once() {
    let cluster = start().await;
    create_node(&cluster, "n1", "{}").await;
    class(&cluster).await;
    slice(&cluster, "n1").await;
    for name in ["c", "d"] {
        claim(
            &cluster,
            name,
            "device.attributes[\"gpu.example.com\"].model == \"large\"",
        )
        .await;
    }
    create_pod(&cluster, "p", POD).await;
    assert_eq!(place(&cluster, "p").await, "n1");
    create_pod(
        &cluster,
        "q",
        &POD.replace("resourceClaimName: c", "resourceClaimName: d"),
    )
    .await;
    let (_, message) = refusal(&cluster, "q").await;
    let expected = "0/1 nodes are available: 1 cannot allocate all claims. still not schedulable, preemption: 0/1 nodes are \
                    available: 1 Preemption is not helpful for scheduling.";
    assert_eq!(message, expected);
    // Another pod may share the allocated claim.
    create_pod(&cluster, "r", POD).await;
    assert_eq!(place(&cluster, "r").await, "n1");
    assert_eq!(
        cluster.object(&RESOURCE_CLAIMS, "default/c").await["status"]["reservedFor"]
            .list()
            .len(),
        2
    );
}

#[tokio::test(start_paused = true)]
async fn pod_waits_for_its_claim() {
    let cluster = start().await;
    create_node(&cluster, "n1", "{}").await;
    class(&cluster).await;
    slice(&cluster, "n1").await;
    create_pod(&cluster, "p", POD).await;
    assert_eq!(place(&cluster, "p").await, "");
    // PreEnqueue rejects the pod.
    assert!(cluster.object(&PODS, "default/p").await["status"]["conditions"].is_null());
    claim(&cluster, "c", "true").await;
    assert_eq!(place(&cluster, "p").await, "n1");
}

#[tokio::test(start_paused = true)]
async fn unschedulable_pod_releases_its_claim() {
    let cluster = configured(
        "podInitialBackoffSeconds: 300\npodMaxBackoffSeconds: 300\nprofiles:\n- pluginConfig:\n  - {name: VolumeBinding, args: {bindTimeoutSeconds: 30}}\n",
    )
    .await;
    create_node(&cluster, "n1", "{}").await;
    class(&cluster).await;
    slice(&cluster, "n1").await;
    claim(&cluster, "c", "true").await;
    cluster.create("{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: slow}, provisioner: example.com/x, volumeBindingMode: WaitForFirstConsumer}")
        .await;
    cluster.create("{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: v, namespace: default}, spec: {accessModes: [ReadWriteOnce], storageClassName: slow, resources: {requests: {storage: 1Gi}}}}")
        .await;
    let with_volume = POD.replace(
        "{spec: {",
        "{spec: {volumes: [{name: v, persistentVolumeClaim: {claimName: v}}], ",
    );
    create_pod(&cluster, "p", &with_volume).await;
    settle(&cluster).await;
    create_pod(&cluster, "q", POD).await;
    assert_eq!(place(&cluster, "q").await, "n1");
    assert_eq!(users(&cluster).await, ["p", "q"]);
    cluster.advance(Duration::from_secs(31)).await;
    let (_, message) = refusal(&cluster, "p").await;
    assert!(message.ends_with("context deadline exceeded"), "{message}");
    assert_eq!(users(&cluster).await, ["q"]);
    // The allocation remains.
    let claim = cluster.object(&RESOURCE_CLAIMS, "default/c").await;
    assert_eq!(
        claim["status"]["allocation"]["devices"]["results"]
            .list()
            .len(),
        1
    );
}

/// The pods in `reservedFor` of the claim `c`.
async fn users(cluster: &Cluster) -> Vec<String> {
    let claim = cluster.object(&RESOURCE_CLAIMS, "default/c").await;
    claim["status"]["reservedFor"]
        .list()
        .iter()
        .map(|one| one["name"].str().to_string())
        .collect()
}
