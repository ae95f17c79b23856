//! Pods that reference ConfigMaps and Secrets.

use mizzen_sdk::Object;

use crate::cluster::{Cluster, show};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";

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
    let cluster = Cluster::with(1).await;
    let env = "env: [{name: A, valueFrom: {configMapKeyRef: {name: x, key: k}}}]";
    cluster
        .run_pod(
            "web",
            "",
            &format!("containers: [{{name: web, image: web, {env}}}]"),
        )
        .await;
    cluster.pass(1).await;
    let pod = cluster.pod("web").await;
    assert_eq!(pod["status"]["phase"].str(), "Pending");
    assert_eq!(
        waiting(&pod),
        "CreateContainerConfigError configmap \"x\" not found"
    );
    assert!(has_sandbox(&pod) && !pod["status"]["podIP"].is_empty());
    assert_eq!(
        cluster.told("web").await,
        [
            "Normal Pulled spec.containers{web} Container image \"web\" already present on machine x1",
            "Warning Failed spec.containers{web} Error: configmap \"x\" not found x1",
        ]
    );
    cluster
        .create(CONFIG_MAPS, "{metadata: {name: x}, data: {other: v}}")
        .await;
    cluster.pass(10).await;
    let pod = cluster.pod("web").await;
    assert_eq!(
        waiting(&pod),
        "CreateContainerConfigError couldn't find key k in ConfigMap default/x"
    );
    cluster
        .api
        .delete(
            &mizzen_sdk::resource::CONFIG_MAPS,
            &"default/x".parse().unwrap(),
            &Default::default(),
        )
        .await
        .unwrap();
    cluster
        .create(CONFIG_MAPS, "{metadata: {name: x}, data: {k: v}}")
        .await;
    cluster.pass(10).await;
    assert_eq!(
        show(&cluster.pod("web").await),
        "Running ready=True web=running"
    );
}

#[tokio::test(start_paused = true)]
async fn missing_volume_blocks_all_containers() {
    let cluster = Cluster::with(1).await;
    let spec = "containers: [{name: web, image: web, volumeMounts: [{name: v, mountPath: /v}]}], \
                volumes: [{name: v, secret: {secretName: x, items: [{key: k, path: k}]}}, {name: unused, secret: {secretName: z}}]";
    cluster.run_pod("web", "", spec).await;
    cluster.pass_millis(300).await;
    let pod = cluster.pod("web").await;
    assert_eq!(waiting(&pod), "ContainerCreating ");
    assert!(!has_sandbox(&pod));
    let failed = "Warning FailedMount  MountVolume.SetUp failed for volume \"v\" : ";
    assert_eq!(
        cluster.told("web").await,
        [format!("{failed}secret \"x\" not found x1")]
    );
    cluster
        .create(SECRETS, "{metadata: {name: x}, data: {other: dg==}}")
        .await;
    cluster.pass(1).await;
    let told = cluster.told("web").await;
    assert!(
        told.contains(&format!("{failed}references non-existent secret key: k x1")),
        "{told:?}"
    );
    cluster
        .api
        .delete(
            &mizzen_sdk::resource::SECRETS,
            &"default/x".parse().unwrap(),
            &Default::default(),
        )
        .await
        .unwrap();
    cluster
        .create(SECRETS, "{metadata: {name: x}, data: {k: dg==}}")
        .await;
    cluster.pass(4).await;
    assert_eq!(
        show(&cluster.pod("web").await),
        "Running ready=True web=running"
    );
}

#[tokio::test(start_paused = true)]
async fn optional_references_do_not_block() {
    let cluster = Cluster::with(1).await;
    let spec = "containers: [{name: web, image: web, envFrom: [{secretRef: {name: x, optional: true}}], \
                env: [{name: A, valueFrom: {secretKeyRef: {name: x, key: k, optional: true}}}], \
                volumeMounts: [{name: v, mountPath: /v}]}], \
                volumes: [{name: v, projected: {sources: [{configMap: {name: z, optional: true}}, {configMap: {name: kube-root-ca.crt}}]}}]";
    cluster.run_pod("web", "", spec).await;
    cluster.pass(1).await;
    assert_eq!(
        show(&cluster.pod("web").await),
        "Running ready=True web=running"
    );
}

#[tokio::test(start_paused = true)]
async fn waiting_pod_can_be_deleted() {
    let cluster = Cluster::with(1).await;
    cluster
        .run_pod(
            "web",
            "",
            "containers: [{name: web, image: web, envFrom: [{secretRef: {name: x}}]}]",
        )
        .await;
    cluster.pass(1).await;
    assert_eq!(
        waiting(&cluster.pod("web").await),
        "CreateContainerConfigError secret \"x\" not found"
    );
    cluster.delete_pod("web", None).await;
    cluster.pass(1).await;
    assert!(
        cluster
            .find(&mizzen_sdk::resource::PODS, &"default/web".parse().unwrap())
            .await
            .is_none()
    );
}

#[tokio::test(start_paused = true)]
async fn ephemeral_container_waits_for_its_environment() {
    let cluster = Cluster::with(1).await;
    cluster
        .create(SECRETS, "{metadata: {name: x}, data: {k: dg==}}")
        .await;
    cluster
        .run_pod(
            "web",
            "",
            "containers: [{name: web, image: web, envFrom: [{secretRef: {name: x}}]}]",
        )
        .await;
    cluster.pass(1).await;
    let ephemeral = "{spec: {ephemeralContainers: [{name: e, image: i, terminationMessagePolicy: File, \
                     imagePullPolicy: Always, envFrom: [{secretRef: {name: later}}]}]}}";
    let (key, change) = (
        "default/web".parse().unwrap(),
        crate::cluster::read(ephemeral),
    );
    let patch = mizzen_sdk::dynamic::PatchType::Strategic;
    cluster
        .api
        .patch(
            &mizzen_sdk::resource::PODS,
            &key,
            "ephemeralcontainers",
            patch,
            &change,
        )
        .await
        .unwrap();
    cluster.pass(1).await;
    let state = async || {
        cluster.pod("web").await["status"]["ephemeralContainerStatuses"].list()[0]["state"].clone()
    };
    let waits = state().await["waiting"].clone();
    assert_eq!(waits["reason"].str(), "CreateContainerConfigError");
    assert_eq!(waits["message"].str(), "secret \"later\" not found");
    cluster
        .create(SECRETS, "{metadata: {name: later}, data: {k: dg==}}")
        .await;
    cluster.pass(10).await;
    assert!(!state().await["running"].is_null());
}
