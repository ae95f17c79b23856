//! Pods that reference ConfigMaps and Secrets.

use std::time::Duration;

use mizzen_sdk::Object;
use mizzen_sdk::resource::{CONFIG_MAPS, SECRETS};

use crate::fixtures::{create, delete_pod, events_of, get_pod, pass, read, run_pod, show, start};

/// The waiting reason and message of a pod's only container.
fn waiting(pod: &Object) -> String {
    let waiting = &pod["status"]["containerStatuses"].list()[0]["state"]["waiting"];
    format!("{} {}", waiting["reason"].str(), waiting["message"].str())
}

fn has_sandbox(pod: &Object) -> bool {
    let mut conditions = pod["status"]["conditions"].list().iter();
    conditions.any(|one| {
        one["type"].str() == "PodReadyToStartContainers" && one["status"].str() == "True"
    })
}

#[tokio::test(start_paused = true)]
async fn container_waits_for_its_environment() {
    let cluster = start(1).await;
    let env = "env: [{name: A, valueFrom: {configMapKeyRef: {name: x, key: k}}}]";
    run_pod(
        &cluster,
        "web",
        "",
        &format!("containers: [{{name: web, image: web, {env}}}]"),
    )
    .await;
    pass(&cluster, 1).await;
    let pod = get_pod(&cluster, "web").await;
    assert_eq!(pod["status"]["phase"].str(), "Pending");
    assert_eq!(
        waiting(&pod),
        "CreateContainerConfigError configmap \"x\" not found"
    );
    assert!(has_sandbox(&pod) && !pod["status"]["podIP"].is_empty());
    assert_eq!(
        events_of(&cluster, "web").await,
        [
            "Normal Pulled spec.containers{web} Container image \"web\" already present on machine and can be accessed by the pod x1",
            "Warning Failed spec.containers{web} Error: configmap \"x\" not found x1",
        ]
    );
    create(
        &cluster,
        &CONFIG_MAPS,
        "{metadata: {name: x}, data: {other: v}}",
    )
    .await;
    pass(&cluster, 10).await;
    let pod = get_pod(&cluster, "web").await;
    assert_eq!(
        waiting(&pod),
        "CreateContainerConfigError couldn't find key k in ConfigMap default/x"
    );
    cluster.delete(&CONFIG_MAPS, "default/x").await;
    create(
        &cluster,
        &CONFIG_MAPS,
        "{metadata: {name: x}, data: {k: v}}",
    )
    .await;
    pass(&cluster, 10).await;
    assert_eq!(
        show(&get_pod(&cluster, "web").await),
        "Running ready=True web=running"
    );
}

#[tokio::test(start_paused = true)]
async fn missing_volume_blocks_all_containers() {
    let cluster = start(1).await;
    let spec = "containers: [{name: web, image: web, volumeMounts: [{name: v, mountPath: /v}]}], \
                volumes: [{name: v, secret: {secretName: x, items: [{key: k, path: k}]}}, {name: unused, secret: {secretName: z}}]";
    run_pod(&cluster, "web", "", spec).await;
    cluster.advance(Duration::from_millis(300)).await;
    let pod = get_pod(&cluster, "web").await;
    assert_eq!(waiting(&pod), "ContainerCreating ");
    assert!(!has_sandbox(&pod));
    let failed = "Warning FailedMount  MountVolume.SetUp failed for volume \"v\" : ";
    assert_eq!(
        events_of(&cluster, "web").await,
        [format!("{failed}secret \"x\" not found x1")]
    );
    create(
        &cluster,
        &SECRETS,
        "{metadata: {name: x}, data: {other: dg==}}",
    )
    .await;
    pass(&cluster, 1).await;
    let told = events_of(&cluster, "web").await;
    assert!(
        told.contains(&format!("{failed}references non-existent secret key: k x1")),
        "{told:?}"
    );
    cluster.delete(&SECRETS, "default/x").await;
    create(&cluster, &SECRETS, "{metadata: {name: x}, data: {k: dg==}}").await;
    pass(&cluster, 4).await;
    assert_eq!(
        show(&get_pod(&cluster, "web").await),
        "Running ready=True web=running"
    );
}

#[tokio::test(start_paused = true)]
async fn optional_references_do_not_block() {
    let cluster = start(1).await;
    let spec = "containers: [{name: web, image: web, envFrom: [{secretRef: {name: x, optional: true}}], \
                env: [{name: A, valueFrom: {secretKeyRef: {name: x, key: k, optional: true}}}], \
                volumeMounts: [{name: v, mountPath: /v}]}], \
                volumes: [{name: v, projected: {sources: [{configMap: {name: z, optional: true}}, {configMap: {name: kube-root-ca.crt}}]}}]";
    run_pod(&cluster, "web", "", spec).await;
    pass(&cluster, 1).await;
    assert_eq!(
        show(&get_pod(&cluster, "web").await),
        "Running ready=True web=running"
    );
}

#[tokio::test(start_paused = true)]
async fn waiting_pod_can_be_deleted() {
    let cluster = start(1).await;
    run_pod(
        &cluster,
        "web",
        "",
        "containers: [{name: web, image: web, envFrom: [{secretRef: {name: x}}]}]",
    )
    .await;
    pass(&cluster, 1).await;
    assert_eq!(
        waiting(&get_pod(&cluster, "web").await),
        "CreateContainerConfigError secret \"x\" not found"
    );
    delete_pod(&cluster, "web", None).await;
    pass(&cluster, 1).await;
    assert!(
        cluster
            .find_object(&mizzen_sdk::resource::PODS, "default/web")
            .await
            .is_none()
    );
}

#[tokio::test(start_paused = true)]
async fn ephemeral_container_waits_for_its_environment() {
    let cluster = start(1).await;
    create(&cluster, &SECRETS, "{metadata: {name: x}, data: {k: dg==}}").await;
    run_pod(
        &cluster,
        "web",
        "",
        "containers: [{name: web, image: web, envFrom: [{secretRef: {name: x}}]}]",
    )
    .await;
    pass(&cluster, 1).await;
    let ephemeral = "{spec: {ephemeralContainers: [{name: e, image: i, terminationMessagePolicy: File, \
                     imagePullPolicy: Always, envFrom: [{secretRef: {name: later}}]}]}}";
    let (key, change) = ("default/web".parse().unwrap(), read(ephemeral));
    let patch = mizzen_sdk::dynamic::PatchType::Strategic;
    cluster
        .dynamic_client()
        .patch(
            &mizzen_sdk::resource::PODS,
            &key,
            "ephemeralcontainers",
            patch,
            &change,
        )
        .await
        .unwrap();
    pass(&cluster, 1).await;
    let state = async || {
        get_pod(&cluster, "web").await["status"]["ephemeralContainerStatuses"].list()[0]["state"]
            .clone()
    };
    let waits = state().await["waiting"].clone();
    assert_eq!(waits["reason"].str(), "CreateContainerConfigError");
    assert_eq!(waits["message"].str(), "secret \"later\" not found");
    create(
        &cluster,
        &SECRETS,
        "{metadata: {name: later}, data: {k: dg==}}",
    )
    .await;
    pass(&cluster, 10).await;
    assert!(!state().await["running"].is_null());
}
