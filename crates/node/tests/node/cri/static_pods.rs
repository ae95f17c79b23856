//! Static pods: from files, with mirror pods, and without an API server.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use kube::{Client, Config};
use mizzen_cri::CriClient;
use mizzen_cri::messages::{ContainerState, ListContainersRequest};
use mizzen_node::{Options, StaticPodSource};
use mizzen_sdk::Object;
use mizzen_sdk::resource::{NODES, PODS};
use tokio::time::{Instant, sleep};

use super::{PATIENCE, RealNode, connect};
use crate::containerd::{BUSYBOX, PrivateContainerd};
use crate::fixtures::{create, delete_pod, get_pod, show};

fn manifest(word: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: web}}, spec: {{hostNetwork: true, terminationGracePeriodSeconds: 2, \
         containers: [{{name: c, image: '{BUSYBOX}', imagePullPolicy: Never, command: [sh, -c, 'echo {word}; exec sleep 1000']}}]}}}}"
    )
}

/// Replaces a file, as editors and deployment tools do it.
fn put(dir: &Path, name: &str, text: &str) {
    let draft = dir.join(format!(".{name}"));
    fs::write(&draft, text).unwrap();
    fs::rename(draft, dir.join(name)).unwrap();
}

fn container_id(pod: &Object) -> String {
    let status = &pod["status"]["containerStatuses"][0];
    status["containerID"].str().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn static_pods_follow_their_files_and_have_mirror_pods() {
    let Some(mut node) = RealNode::start("real-static", 23).await else {
        return;
    };
    let dir = node.containerd.path("manifests");
    fs::create_dir(&dir).unwrap();
    // A mirror pod without a file is deleted; those of other nodes are left alone.
    for (name, place) in [("orphan", "real-static"), ("other", "elsewhere")] {
        let text = format!(
            "{{metadata: {{name: {name}, annotations: {{kubernetes.io/config.mirror: x}}}}, \
             spec: {{nodeName: {place}, containers: [{{name: c, image: none}}]}}}}"
        );
        create(&node.cluster, &PODS, &text).await;
    }
    put(&dir, "bad.yaml", "{");
    put(&dir, "web.yaml", &manifest("first"));
    let name = "web-real-static";
    node.until("the mirror pod exists", async |node| {
        let key = format!("default/{name}");
        node.cluster.find_object(&PODS, &key).await.is_some()
    })
    .await;
    let mirror = node.until_pod(name, "Running ready=True c=running").await;
    let annotations = &mirror["metadata"]["annotations"];
    let hash = annotations["kubernetes.io/config.hash"].str();
    assert_eq!(annotations["kubernetes.io/config.mirror"].str(), hash);
    let owner = &mirror["metadata"]["ownerReferences"][0];
    let own = node.cluster.object(&NODES, node.name).await;
    assert_eq!(
        (owner["kind"].str(), owner["uid"].str()),
        ("Node", own.uid())
    );
    assert_eq!(node.log(name, "").await, "first\n");
    let id = container_id(&mirror);

    // A mirror pod that is deleted is created again; the container runs on.
    delete_pod(&node.cluster, name, None).await;
    node.until("there is another mirror pod", async |node| {
        let found = node
            .cluster
            .find_object(&PODS, &format!("default/{name}"))
            .await;
        found.is_some_and(|found| found.uid() != mirror.uid() && show(&found).contains("c=running"))
    })
    .await;
    assert_eq!(container_id(&get_pod(&node.cluster, name).await), id);

    // So it does while the agent is restarted.
    node.run_agent().await;
    node.until_pod(name, "Running ready=True c=running").await;
    assert_eq!(container_id(&get_pod(&node.cluster, name).await), id);
    assert_eq!(node.count().await, (1, 1));

    // Another content is another pod, which starts after the old one has ended.
    put(&dir, "web.yaml", &manifest("second"));
    node.until("the pod is another one", async |node| {
        let found = node
            .cluster
            .find_object(&PODS, &format!("default/{name}"))
            .await;
        found.is_some_and(|found| {
            show(&found).contains("ready=True c=running") && container_id(&found) != id
        })
    })
    .await;
    assert_eq!(node.log(name, "").await, "second\n");
    node.until("the old pod is gone", async |node| {
        node.count().await == (1, 1)
    })
    .await;

    fs::remove_file(dir.join("web.yaml")).unwrap();
    node.until("nothing is left", async |node| {
        let left = node.cluster.objects(&PODS, "").await;
        let names: Vec<&str> = left.iter().map(|pod| pod.name()).collect();
        node.count().await == (0, 0) && names == ["other"]
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn static_pods_run_without_an_api_server() {
    let Some(containerd) = PrivateContainerd::start().await else {
        return;
    };
    let dir = containerd.path("manifests");
    fs::create_dir(&dir).unwrap();
    put(&dir, "web.yaml", &manifest("alone"));
    let runtime = connect(
        &containerd,
        "real-alone",
        &mizzen_node::cri::Housekeeping::default(),
    )
    .await;
    // Nothing listens at that port.
    let nowhere = Config::new("http://127.0.0.1:1".parse().unwrap());
    let client = Client::try_from(nowhere).unwrap();
    let mut options = Options::cri(client, "real-alone", runtime);
    options.static_pods = Some(StaticPodSource {
        path: dir,
        complete: Arc::new(|pod| mizzen_kinds::complete("", "Pod", &pod)),
    });
    let agent = tokio::spawn(mizzen_node::run(options));
    let client = CriClient::connect(&containerd.endpoint()).await.unwrap();
    let began = Instant::now();
    loop {
        let listed = client.call(ListContainersRequest::default()).await.unwrap();
        let mut containers = listed.containers.iter();
        if containers.any(|it| it.state() == ContainerState::Running) {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{listed:?}");
        sleep(std::time::Duration::from_millis(100)).await;
    }
    agent.abort();
}
