//! The persistent volume, expand, protection and ephemeral volume controllers.

use std::time::Duration;

use mizzen_sdk::dynamic::ListOptions;
use mizzen_sdk::resource::{
    EVENTS, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, STORAGE_CLASSES,
    VOLUME_ATTRIBUTES_CLASSES,
};
use mizzen_testing::{Builder, Cluster};
use mizzen_value::value;

use crate::{settle, start};

const CONTROLLERS: [&str; 3] = [
    "persistentvolume-binder-controller",
    "persistentvolume-protection-controller",
    "persistentvolumeclaim-protection-controller",
];

async fn volume(cluster: &Cluster, name: &str, size: &str, more: &str) {
    cluster.create(&format!(
            "{{apiVersion: v1, kind: PersistentVolume, metadata: {{name: {name}}}, spec: {{capacity: {{storage: {size}}}, \
             accessModes: [ReadWriteOnce], storageClassName: sc, {more}}}}}"
        ))
        .await;
}

const NFS: &str = "persistentVolumeReclaimPolicy: Retain, nfs: {server: s, path: /x}";

async fn claim(cluster: &Cluster, name: &str, more: &str) {
    cluster.create(&format!(
            "{{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {{name: {name}, namespace: default}}, spec: \
             {{accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 3Gi}}}}, {more}}}}}"
        ))
        .await;
    settle(cluster).await;
}

async fn phase(cluster: &Cluster, name: &str) -> String {
    let object = match name.split_once('/') {
        Some(_) => cluster.object(&PERSISTENT_VOLUME_CLAIMS, name).await,
        None => cluster.object(&PERSISTENT_VOLUMES, name).await,
    };
    object["status"]["phase"].str().to_string()
}

async fn reasons(cluster: &Cluster, name: &str) -> Vec<String> {
    let options = ListOptions {
        fields: format!("involvedObject.name={name}"),
        ..ListOptions::default()
    };
    let events = cluster
        .dynamic_client()
        .list(&EVENTS, "default", &options)
        .await
        .unwrap();
    events
        .iter()
        .map(|event| event["reason"].str().to_string())
        .collect()
}

async fn class(cluster: &Cluster, provisioner: &str, mode: &str) {
    cluster.create(&format!(
            "{{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {{name: sc}}, provisioner: {provisioner}, \
             volumeBindingMode: {mode}}}"
        ))
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_bound_to_the_smallest_volume_and_releases_it() {
    let cluster = start(&CONTROLLERS).await;
    volume(&cluster, "big", "10Gi", NFS).await;
    volume(&cluster, "fit", "4Gi", NFS).await;
    volume(&cluster, "small", "2Gi", NFS).await;
    settle(&cluster).await;
    assert_eq!(phase(&cluster, "fit").await, "Available");
    claim(&cluster, "c", "storageClassName: sc").await;
    let bound = cluster.object(&PERSISTENT_VOLUME_CLAIMS, "default/c").await;
    assert_eq!(
        (
            bound["spec"]["volumeName"].str(),
            bound["status"]["phase"].str()
        ),
        ("fit", "Bound")
    );
    assert_eq!(bound["status"]["capacity"], value!({"storage": "4Gi"}));
    assert_eq!(
        bound.annotation("pv.kubernetes.io/bind-completed"),
        Some("yes")
    );
    assert_eq!(phase(&cluster, "fit").await, "Bound");

    cluster.delete(&PERSISTENT_VOLUME_CLAIMS, "default/c").await;
    settle(&cluster).await;
    assert_eq!(phase(&cluster, "fit").await, "Released");
    // Another claim of the same name is another claim.
    claim(&cluster, "c", "storageClassName: sc, volumeName: fit").await;
    assert_eq!(phase(&cluster, "default/c").await, "Pending");
    cluster
        .change(&PERSISTENT_VOLUMES, "fit", |volume| {
            drop(volume.entry("spec").remove("claimRef"))
        })
        .await;
    settle(&cluster).await;
    assert_eq!(phase(&cluster, "default/c").await, "Bound");
}

#[tokio::test(start_paused = true)]
async fn a_claim_waits_for_a_later_volume() {
    let cluster = start(&CONTROLLERS).await;
    claim(&cluster, "c", "storageClassName: sc").await;
    assert_eq!(phase(&cluster, "default/c").await, "Pending");
    assert_eq!(reasons(&cluster, "c").await, ["ProvisioningFailed"]);
    volume(&cluster, "v", "5Gi", NFS).await;
    settle(&cluster).await;
    assert_eq!(phase(&cluster, "default/c").await, "Bound");
}

#[tokio::test(start_paused = true)]
async fn two_claims_never_share_a_volume() {
    let cluster = start(&CONTROLLERS).await;
    for name in ["a", "b", "c", "d"] {
        let text = format!(
            "{{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {{name: {name}, namespace: default}}, spec: {{accessModes: [ReadWriteOnce], storageClassName: sc, resources: {{requests: {{storage: 1Gi}}}}}}}}"
        );
        cluster.create(&text).await;
        volume(&cluster, &format!("v{name}"), "5Gi", NFS).await;
    }
    settle(&cluster).await;
    let claims = cluster.objects(&PERSISTENT_VOLUME_CLAIMS, "default").await;
    let mut volumes: Vec<_> = claims
        .iter()
        .map(|claim| claim["spec"]["volumeName"].str())
        .collect();
    volumes.sort();
    assert_eq!(volumes, ["va", "vb", "vc", "vd"]);
}

#[tokio::test(start_paused = true)]
async fn a_pre_bound_volume_is_bound_to_no_other_claim() {
    let cluster = start(&CONTROLLERS).await;
    volume(
        &cluster,
        "v",
        "5Gi",
        &format!("{NFS}, claimRef: {{namespace: default, name: c}}"),
    )
    .await;
    claim(&cluster, "other", "storageClassName: sc").await;
    claim(&cluster, "c", "storageClassName: sc").await;
    assert_eq!(phase(&cluster, "default/other").await, "Pending");
    assert_eq!(phase(&cluster, "default/c").await, "Bound");
    let volume = cluster.object(&PERSISTENT_VOLUMES, "v").await;
    assert!(volume["metadata"]["annotations"].is_null());
    assert!(!volume["spec"]["claimRef"]["uid"].str().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_volume_is_deleted_is_lost() {
    let cluster = start(&CONTROLLERS).await;
    volume(&cluster, "v", "5Gi", NFS).await;
    claim(&cluster, "c", "storageClassName: sc").await;
    cluster.delete(&PERSISTENT_VOLUMES, "v").await;
    settle(&cluster).await;
    assert!(
        cluster
            .object(&PERSISTENT_VOLUMES, "v")
            .await
            .is_terminating(),
        "a claim has it"
    );
    cluster
        .change(&PERSISTENT_VOLUMES, "v", |volume| {
            drop(volume.entry("metadata").remove("finalizers"))
        })
        .await;
    settle(&cluster).await;
    let claim = cluster.object(&PERSISTENT_VOLUME_CLAIMS, "default/c").await;
    assert_eq!(claim["status"], value!({"phase": "Lost"}));
    assert_eq!(reasons(&cluster, "c").await, ["ClaimLost"]);
}

#[tokio::test(start_paused = true)]
async fn a_claim_waits_for_its_first_consumer() {
    let cluster = start(&CONTROLLERS).await;
    class(&cluster, "example.com/p", "WaitForFirstConsumer").await;
    volume(&cluster, "v", "5Gi", NFS).await;
    claim(&cluster, "c", "storageClassName: sc").await;
    assert_eq!(
        (
            phase(&cluster, "default/c").await.as_str(),
            phase(&cluster, "v").await.as_str()
        ),
        ("Pending", "Available")
    );
    pod(&cluster, "p", "").await;
    cluster.advance(Duration::from_secs(16)).await;
    let mut event_messages = reasons(&cluster, "c").await;
    event_messages.sort();
    assert_eq!(
        event_messages,
        ["WaitForFirstConsumer", "WaitForPodScheduled"]
    );
    // The scheduler selects a volume, or a node for one to be provisioned.
    let name_it = |claim: &mut mizzen_sdk::Object| {
        claim
            .entry("metadata")
            .entry("annotations")
            .set("volume.kubernetes.io/selected-node", "n");
    };
    cluster
        .change(&PERSISTENT_VOLUME_CLAIMS, "default/c", name_it)
        .await;
    settle(&cluster).await;
    let claim = cluster.object(&PERSISTENT_VOLUME_CLAIMS, "default/c").await;
    assert_eq!(
        claim.annotation("volume.kubernetes.io/storage-provisioner"),
        Some("example.com/p")
    );
    let bind = |volume: &mut mizzen_sdk::Object| {
        volume.entry("spec").set(
            "claimRef",
            value!({"namespace": "default", "name": "c", "uid": (claim.uid())}),
        );
    };
    cluster.change(&PERSISTENT_VOLUMES, "v", bind).await;
    settle(&cluster).await;
    assert_eq!(phase(&cluster, "default/c").await, "Bound");
}

#[tokio::test(start_paused = true)]
async fn a_claim_without_a_class_gets_the_default_one_later() {
    let cluster = start(&CONTROLLERS).await;
    claim(&cluster, "c", "volumeMode: Filesystem").await;
    assert_eq!(reasons(&cluster, "c").await, ["FailedBinding"]);
    class(&cluster, "example.com/p", "Immediate").await;
    let say_so = |class: &mut mizzen_sdk::Object| {
        class
            .entry("metadata")
            .entry("annotations")
            .set("storageclass.kubernetes.io/is-default-class", "true");
    };
    cluster.change(&STORAGE_CLASSES, "sc", say_so).await;
    settle(&cluster).await;
    let claim = cluster.object(&PERSISTENT_VOLUME_CLAIMS, "default/c").await;
    assert_eq!(claim["spec"]["storageClassName"].str(), "sc");
    assert_eq!(
        claim.annotation("volume.kubernetes.io/storage-provisioner"),
        Some("example.com/p")
    );
}

#[tokio::test(start_paused = true)]
async fn a_volume_without_a_deleter_fails_and_a_deletable_one_is_deleted() {
    let cluster = start(&CONTROLLERS).await;
    volume(
        &cluster,
        "v",
        "5Gi",
        "persistentVolumeReclaimPolicy: Delete, nfs: {server: s, path: /x}",
    )
    .await;
    claim(&cluster, "c", "storageClassName: sc").await;
    cluster.delete(&PERSISTENT_VOLUME_CLAIMS, "default/c").await;
    settle(&cluster).await;
    let failed = cluster.object(&PERSISTENT_VOLUMES, "v").await;
    let message =
        "error getting deleter volume plugin for volume \"v\": no deletable volume plugin matched";
    assert_eq!(
        (
            failed["status"]["phase"].str(),
            failed["status"]["message"].str()
        ),
        ("Failed", message)
    );
    assert_eq!(reasons(&cluster, "v").await, ["VolumeFailedDelete"]);

    volume(
        &cluster,
        "w",
        "5Gi",
        "persistentVolumeReclaimPolicy: Delete, hostPath: {path: /tmp/x}",
    )
    .await;
    claim(&cluster, "d", "storageClassName: sc").await;
    cluster.delete(&PERSISTENT_VOLUME_CLAIMS, "default/d").await;
    settle(&cluster).await;
    assert!(
        cluster
            .find_object(&PERSISTENT_VOLUMES, "w")
            .await
            .is_none()
    );
}

#[tokio::test(start_paused = true)]
async fn a_volume_is_recycled_and_available_again() {
    let cluster = start(&CONTROLLERS).await;
    volume(
        &cluster,
        "v",
        "5Gi",
        "persistentVolumeReclaimPolicy: Recycle, nfs: {server: s, path: /x}",
    )
    .await;
    claim(&cluster, "c", "storageClassName: sc").await;
    cluster.delete(&PERSISTENT_VOLUME_CLAIMS, "default/c").await;
    settle(&cluster).await;
    let pod = cluster.object(&PODS, "default/recycler-for-v").await;
    assert_eq!(pod["spec"]["volumes"][0]["nfs"]["path"].str(), "/x");
    cluster
        .change_status(&PODS, "default/recycler-for-v", |status| {
            status.set("phase", "Succeeded")
        })
        .await;
    settle(&cluster).await;
    let free = cluster.object(&PERSISTENT_VOLUMES, "v").await;
    assert_eq!(
        (
            free["status"]["phase"].str(),
            free["spec"]["claimRef"].is_null()
        ),
        ("Available", true)
    );
    assert_eq!(reasons(&cluster, "v").await, ["VolumeRecycled"]);
    assert!(
        cluster
            .find_object(&PODS, "default/recycler-for-v")
            .await
            .is_none()
    );
}

#[tokio::test(start_paused = true)]
async fn the_external_resizer_is_reported_once() {
    let cluster = start(&[CONTROLLERS[0], "persistentvolume-expander-controller"]).await;
    cluster.create("{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: sc}, provisioner: p.example.com, allowVolumeExpansion: true}")
        .await;
    volume(&cluster, "new", "3Gi", NFS).await;
    claim(&cluster, "a", "storageClassName: sc").await;
    volume(
        &cluster,
        "old",
        "3Gi",
        "persistentVolumeReclaimPolicy: Retain, gcePersistentDisk: {pdName: d}",
    )
    .await;
    claim(&cluster, "b", "storageClassName: sc").await;
    for name in ["a", "b"] {
        assert!(
            !reasons(&cluster, name)
                .await
                .contains(&"ExternalExpanding".to_string())
        );
        let key = format!("default/{name}");
        let request = |claim: &mut mizzen_sdk::Object| {
            claim
                .entry("spec")
                .entry("resources")
                .entry("requests")
                .set("storage", "9Gi");
        };
        cluster
            .change(&PERSISTENT_VOLUME_CLAIMS, &key, request)
            .await;
        settle(&cluster).await;
        cluster
            .change(&PERSISTENT_VOLUME_CLAIMS, &key, |claim| {
                claim
                    .entry("metadata")
                    .entry("labels")
                    .set("changed", "again");
            })
            .await;
        settle(&cluster).await;
    }
    let options = ListOptions {
        fields: "reason=ExternalExpanding".into(),
        ..ListOptions::default()
    };
    let events = cluster
        .dynamic_client()
        .list(&EVENTS, "default", &options)
        .await
        .unwrap();
    let mut said: Vec<_> = events
        .iter()
        .map(|event| (event["message"].str(), event["count"].int()))
        .collect();
    said.sort_unstable();
    let expected = [
        (
            "CSI migration enabled for kubernetes.io/gce-pd; waiting for external resizer to expand the pvc",
            1,
        ),
        ("waiting for an external controller to expand this PVC", 1),
    ];
    assert_eq!(said, expected);
    let old = cluster.object(&PERSISTENT_VOLUME_CLAIMS, "default/b").await;
    assert_eq!(
        old.annotation("volume.kubernetes.io/storage-resizer"),
        Some("pd.csi.storage.gke.io")
    );
}

async fn pod(cluster: &Cluster, name: &str, node: &str) {
    cluster.create(&format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: default}}, spec: {{nodeName: \"{node}\", \
             containers: [{{name: c, image: i}}], volumes: [{{name: v, persistentVolumeClaim: {{claimName: c}}}}]}}}}"
        ))
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_stays_while_a_pod_on_a_node_uses_it() {
    let cluster = start(&CONTROLLERS).await;
    claim(&cluster, "c", "storageClassName: sc").await;
    pod(&cluster, "scheduled", "n").await;
    pod(&cluster, "waiting", "").await;
    settle(&cluster).await;
    cluster.delete(&PERSISTENT_VOLUME_CLAIMS, "default/c").await;
    cluster.advance(Duration::from_secs(60)).await;
    assert!(
        cluster
            .object(&PERSISTENT_VOLUME_CLAIMS, "default/c")
            .await
            .is_terminating()
    );
    let options = mizzen_sdk::dynamic::DeleteOptions {
        grace_seconds: Some(0),
        ..Default::default()
    };
    cluster
        .dynamic_client()
        .delete(&PODS, &"default/scheduled".parse().unwrap(), &options)
        .await
        .unwrap();
    settle(&cluster).await;
    assert!(
        cluster
            .find_object(&PERSISTENT_VOLUME_CLAIMS, "default/c")
            .await
            .is_none()
    );
}

#[tokio::test(start_paused = true)]
async fn a_volume_attributes_class_stays_while_it_is_used() {
    let cluster = start(&["volumeattributesclass-protection-controller"]).await;
    cluster.create("{apiVersion: storage.k8s.io/v1, kind: VolumeAttributesClass, metadata: {name: gold}, driverName: example.com, parameters: {a: b}}").await;
    claim(&cluster, "c", "volumeAttributesClassName: gold").await;
    cluster.delete(&VOLUME_ATTRIBUTES_CLASSES, "gold").await;
    settle(&cluster).await;
    assert!(
        cluster
            .object(&VOLUME_ATTRIBUTES_CLASSES, "gold")
            .await
            .is_terminating()
    );
    let strip = |claim: &mut mizzen_sdk::Object| drop(claim.entry("metadata").remove("finalizers"));
    cluster
        .change(&PERSISTENT_VOLUME_CLAIMS, "default/c", strip)
        .await;
    cluster.delete(&PERSISTENT_VOLUME_CLAIMS, "default/c").await;
    settle(&cluster).await;
    assert!(
        cluster
            .find_object(&VOLUME_ATTRIBUTES_CLASSES, "gold")
            .await
            .is_none()
    );
}

#[tokio::test(start_paused = true)]
async fn a_pod_gets_the_claim_of_its_ephemeral_volume() {
    let cluster = start(&["ephemeral-volume-controller"]).await;
    let template = "{metadata: {labels: {l: x}}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}";
    let with_volume = |name: &str| {
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: default}}, spec: {{containers: [{{name: c, image: i}}], \
             volumes: [{{name: v, ephemeral: {{volumeClaimTemplate: {template}}}}}]}}}}"
        )
    };
    let pod = cluster.create(&with_volume("p")).await;
    settle(&cluster).await;
    let claim = cluster
        .object(&PERSISTENT_VOLUME_CLAIMS, "default/p-v")
        .await;
    assert!(claim.is_controlled_by(pod.uid()));
    assert_eq!(claim.label("l"), Some("x"));
    // A claim of that name with another owner is left alone.
    claim_without_owner(&cluster, "q-v").await;
    cluster.create(&with_volume("q")).await;
    settle(&cluster).await;
    assert_eq!(reasons(&cluster, "q").await, ["FailedBinding"]);
}

async fn claim_without_owner(cluster: &Cluster, name: &str) {
    claim(cluster, name, "storageClassName: sc").await;
}

#[tokio::test(start_paused = true)]
async fn changes_while_the_controller_was_down_are_handled() {
    let cluster = start(&[]).await;
    volume(&cluster, "v", "5Gi", NFS).await;
    claim(&cluster, "c", "storageClassName: sc").await;
    cluster
        .restart_with(|builder| builder.controllers(CONTROLLERS))
        .await;
    settle(&cluster).await;
    assert_eq!(phase(&cluster, "default/c").await, "Bound");
    cluster.restart_with(Builder::server_only).await;
    cluster.delete(&PERSISTENT_VOLUME_CLAIMS, "default/c").await;
    cluster
        .restart_with(|builder| builder.controllers(CONTROLLERS))
        .await;
    settle(&cluster).await;
    assert!(
        cluster
            .find_object(&PERSISTENT_VOLUME_CLAIMS, "default/c")
            .await
            .is_none()
    );
    assert_eq!(phase(&cluster, "v").await, "Released");
}
