//! The device taint eviction controller.

use std::time::Duration;

use mizzen_sdk::Object;
use mizzen_sdk::resource::{PODS, RESOURCE_CLAIMS, RESOURCE_SLICES};
use mizzen_testing::Cluster;
use mizzen_value::{Value, time};

use crate::{read, settle, start};

/// A cluster with a device, and with a pod on a node that has it; `tolerations` are those of its
/// claim.
async fn cluster(tolerations: &str) -> Cluster {
    let cluster = start(&["device-taint-eviction-controller"]).await;
    cluster.create("{apiVersion: resource.k8s.io/v1, kind: ResourceSlice, metadata: {name: s}, spec: {driver: gpu.example.com, nodeName: n1, pool: {name: n1, generation: 1, resourceSliceCount: 1}, devices: [{name: d0}, {name: d1}]}}")
        .await;
    cluster.create("{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: c, namespace: default}, spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu}}]}}}")
        .await;
    let pod = cluster.create("{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: default}, spec: {nodeName: n1, terminationGracePeriodSeconds: 0, resourceClaims: [{name: gpu, resourceClaimName: c}], containers: [{name: c, image: i}]}}")
        .await;
    let result = read(&format!(
        "{{request: r, driver: gpu.example.com, pool: n1, device: d0, tolerations: {tolerations}}}"
    ));
    cluster
        .change_status(&RESOURCE_CLAIMS, "default/c", |status| {
            status
                .entry("allocation")
                .entry("devices")
                .set("results", vec![Value::clone(&result)]);
            let mut user = Value::object();
            user.set("resource", "pods");
            user.set("name", "p");
            user.set("uid", pod.uid());
            status.set("reservedFor", vec![user]);
        })
        .await;
    settle(&cluster).await;
    cluster
}

/// Adds a taint to a device, or removes it.
async fn taint(cluster: &Cluster, device: usize, effect: Option<&str>) {
    let since = time::from_unix(cluster.now());
    cluster
        .change(&RESOURCE_SLICES, "s", |slice| {
            let device = &mut slice.entry("spec").entry("devices").list_mut()[device];
            device.remove("taints");
            if let Some(effect) = effect {
                let mut taint = Value::object();
                taint.set("key", "broken");
                taint.set("effect", effect);
                taint.set("timeAdded", since.as_str());
                device.set("taints", vec![taint]);
            }
        })
        .await;
    settle(cluster).await;
}

async fn find(cluster: &Cluster) -> Option<Object> {
    cluster.find_object(&PODS, "default/p").await
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_evicted_when_its_device_is_tainted() {
    let cluster = cluster("[]").await;
    taint(&cluster, 1, Some("NoExecute")).await;
    taint(&cluster, 0, Some("NoSchedule")).await;
    assert!(find(&cluster).await.is_some());
    taint(&cluster, 0, Some("NoExecute")).await;
    let pod = find(&cluster).await;
    // Without a kubelet it stays, but has the condition.
    let is_told = pod.is_none_or(|pod| {
        let conditions = pod["status"]["conditions"].list();
        pod.is_terminating()
            && conditions
                .iter()
                .any(|one| one["reason"].str() == "DeletionByDeviceTaintManager")
    });
    assert!(is_told);
}

#[tokio::test(start_paused = true)]
async fn a_pod_with_toleration_seconds_is_evicted_then_unless_the_taint_is_removed() {
    let toleration = "[{key: broken, operator: Exists, effect: NoExecute, tolerationSeconds: 60}]";
    let is_there =
        async |cluster: &Cluster| find(cluster).await.is_some_and(|pod| !pod.is_terminating());
    let leaving = cluster(toleration).await;
    taint(&leaving, 0, Some("NoExecute")).await;
    leaving.advance(Duration::from_secs(50)).await;
    assert!(is_there(&leaving).await);
    leaving.advance(Duration::from_secs(15)).await;
    assert!(!is_there(&leaving).await);

    let staying = cluster(toleration).await;
    taint(&staying, 0, Some("NoExecute")).await;
    staying.advance(Duration::from_secs(30)).await;
    taint(&staying, 0, None).await;
    staying.advance(Duration::from_secs(100)).await;
    assert!(is_there(&staying).await);
}
