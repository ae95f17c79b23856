//! Which pods may use an image that another pod has pulled.

use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mizzen_sdk::resource::{PODS, SECRETS};

use super::RealNode;
use super::events::{MadeUpRuntime, Node};
use crate::containerd::digest;
use crate::fixtures::{create, events_of};
use crate::registry::{Registry, USER};

/// Writes the record of an image that is not there.
pub(super) fn record_of_gone_image(root: &Path) -> PathBuf {
    let dir = root.join("image_manager/pulled");
    fs::create_dir_all(&dir).unwrap();
    let path = dir.join(digest(b"sha256:gone").replace(':', "-"));
    let text = r#"{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1",
        "lastUpdatedTime":"2024-01-01T00:00:00Z","imageRef":"sha256:gone","credentialMapping":{}}"#;
    fs::write(&path, text).unwrap();
    path
}

impl RealNode {
    /// Makes a Secret with the account of the registry.
    async fn create_pull_secret(&self, registry: &Registry, name: &str) {
        let auth = STANDARD.encode(format!("{}:{}", USER.0, USER.1));
        let text = format!(
            r#"{{"auths":{{"http://{}":{{"auth":"{auth}"}}}}}}"#,
            registry.host()
        );
        let data = STANDARD.encode(text);
        let secret = format!(
            "{{metadata: {{name: {name}}}, type: kubernetes.io/dockerconfigjson, data: {{.dockerconfigjson: {data}}}}}"
        );
        create(&self.cluster, &SECRETS, &secret).await;
    }

    /// Runs a pod with an image, a pull policy and pull secrets.
    async fn run_pulled(&self, name: &str, image: &str, policy: &str, secrets: &str) {
        let spec = format!(
            "imagePullSecrets: [{secrets}], terminationGracePeriodSeconds: 0, \
             containers: [{{name: c, image: '{image}', imagePullPolicy: {policy}, command: [sleep, '1000']}}]"
        );
        self.run(name, &spec).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_is_used_only_by_pods_that_could_pull_it() {
    let Some(mut node) = RealNode::start("real-access", 73).await else {
        return;
    };
    let Some(registry) = Registry::start(&node.containerd).await else {
        return;
    };
    registry.push("team/app", "1").await;
    let image = registry.name("team/app:1");
    for name in ["own", "copy"] {
        node.create_pull_secret(&registry, name).await;
    }
    node.run_pulled("first", &image, "IfNotPresent", "{name: own}")
        .await;
    node.until_pod("first", "ready=True c=running").await;

    // The next agent knows what the one before has pulled.
    node.run_agent().await;
    node.run_pulled("never", &image, "Never", "").await;
    let pod = node.until_pod("never", "c=ErrImageNeverPull").await;
    let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"];
    // It does not say that the image is there.
    assert_eq!(
        waiting["message"].str(),
        format!("Container image {image:?} is not present with pull policy of Never")
    );
    node.run_pulled("without", &image, "IfNotPresent", "").await;
    node.until_pod("without", "c=ErrImagePull").await;
    for (name, secret) in [("same", "own"), ("other", "copy")] {
        node.run_pulled(name, &image, "Never", &format!("{{name: {secret}}}"))
            .await;
        node.until_pod(name, "ready=True c=running").await;
        let events = events_of(&node.cluster, name).await;
        let used = format!(
            "Normal Pulled spec.containers{{c}} Container image {image:?} already present on machine and can be accessed by the pod"
        );
        assert!(
            events.iter().any(|event| event.starts_with(&used)),
            "{events:#?}"
        );
    }
    node.run_pulled("always", &image, "Always", "{name: own}")
        .await;
    node.until_pod("always", "ready=True c=running").await;
    let events = events_of(&node.cluster, "always").await;
    let pulled = format!("Normal Pulled spec.containers{{c}} Successfully pulled image {image:?}");
    assert!(
        events.iter().any(|event| event.starts_with(&pulled)),
        "{events:#?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_is_always_pulled_is_not_inspected() {
    let runtime = MadeUpRuntime::default();
    runtime.0.lock().hides_images = true;
    let node = Node::start("always-pulled", runtime).await;
    let pod = "{metadata: {name: web}, spec: {nodeName: always-pulled, \
               containers: [{name: c, image: a, imagePullPolicy: Always}]}}";
    create(&node.cluster, &PODS, pod).await;
    node.until("the image is pulled", async |node| {
        node.runtime.n_calls("PullImage") > 0
    })
    .await;
    // The user of the image is read later.
    node.runtime.0.lock().hides_images = false;
    node.until_pod("ready=True c=running").await;
}
