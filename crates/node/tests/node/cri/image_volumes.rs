//! Volumes that are images: what containers see in them, and what is left of them.

use std::fs;
use std::io::Cursor;

use mizzen_cri::CriClient;
use mizzen_cri::containerd::Containerd;
use mizzen_sdk::Object;
use mizzen_sdk::resource::PODS;

use super::{RealNode, container, control_plane};
use crate::containerd::{PrivateContainerd, docker_archive};
use crate::fixtures::{delete_pod, events_of, get_pod, show};

/// An image of two layers.
const DATA: &str = "mizzen.test/data:1";
const LAYERS: [&[(&str, &str)]; 2] = [
    &[
        ("a", "lower"),
        ("dir/b", "b"),
        ("run", "#!/bin/sh\necho ran\n"),
    ],
    &[("a", "upper"), ("c", "c")],
];

/// Imports an image, as `mizzen image load` does.
pub(super) async fn import(containerd: &PrivateContainerd, name: &str) {
    let client = CriClient::connect(&containerd.endpoint()).await.unwrap();
    let archive = Cursor::new(docker_archive(name, &LAYERS));
    let containerd = Containerd::of(&client).await.unwrap();
    containerd.import(archive).await.unwrap();
}

impl RealNode {
    /// The mounts of image volumes on the machine, and the snapshots of them.
    fn image_volumes(&self) -> (usize, usize) {
        let dir = self.volumes_dir().display().to_string();
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let n_mounts = mounts.lines().filter(|line| line.contains(&dir)).count();
        let listed = self
            .containerd
            .ctr(&["snapshots", "list"])
            .output()
            .unwrap();
        let listed = String::from_utf8(listed.stdout).unwrap();
        let n_snapshots = listed.lines().filter(|line| line.starts_with("mizzen/"));
        (n_mounts, n_snapshots.count())
    }

    /// Runs a pod with an image as a volume.
    pub(super) async fn run_with_image(&self, name: &str, image: &str, mount: &str) {
        let mounts = format!("volumeMounts: [{{name: data, mountPath: /data{mount}}}]");
        let spec = container(&format!("command: [sleep, '1000'], {mounts}"));
        let volume = format!("volumes: [{{name: data, image: {{{image}}}}}]");
        self.run(name, &format!("{spec}, {volume}")).await;
    }
}

fn waiting(pod: &Object) -> String {
    let state = &pod["status"]["containerStatuses"][0]["state"];
    state["waiting"]["message"].str().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_is_a_volume_that_cannot_be_changed() {
    let Some(mut node) = RealNode::start("real-image-a", 74).await else {
        return;
    };
    import(&node.containerd, DATA).await;
    let one = "image: 'mizzen.test/busybox:1', imagePullPolicy: Never, command: [sleep, '1000']";
    let mounts = "volumeMounts: [{name: data, mountPath: /data}, \
                  {name: data, mountPath: /part, subPathExpr: $(DIR)}]";
    let env = "env: [{name: DIR, value: dir}]";
    let spec = format!(
        "containers: [{{name: c, {one}, {env}, {mounts}}}, {{name: d, {one}, {env}, {mounts}}}], \
         volumes: [{{name: data, image: {{reference: '{DATA}', pullPolicy: Never}}}}], \
         terminationGracePeriodSeconds: 1"
    );
    node.run("web", &spec).await;
    let pod = node
        .until_pod("web", "ready=True c=running d=running")
        .await;
    let id = |pod: &Object| {
        let status = &pod["status"]["containerStatuses"][0];
        status["containerID"].str().to_owned()
    };
    let seen = "cat /data/a /data/dir/b /data/c /part/b";
    assert_eq!(node.exec("web", seen, "").await.0, "upperbcb");
    for command in ["echo x > /data/new", "rm /data/a", "echo x > /part/b"] {
        let (_, error, code) = node.exec("web", command, "").await;
        assert!(
            error.contains("Read-only file system"),
            "{command}: {error}"
        );
        assert_ne!(code, 0, "{command}");
    }
    let (_, error, _) = node.exec("web", "/data/run", "").await;
    assert!(error.contains("Permission denied"), "{error}");
    let events = events_of(&node.cluster, "web").await;
    let pulled = format!("Normal Pulled  Container image {DATA:?} already present on machine");
    assert!(
        events.iter().any(|event| event.starts_with(&pulled)),
        "{events:#?}"
    );
    // The containers share one mount.
    assert_eq!(node.image_volumes(), (1, 1));

    node.run_agent().await;
    let after = node
        .until_pod("web", "ready=True c=running d=running")
        .await;
    assert_eq!(id(&after), id(&pod));
    assert_eq!(node.exec("web", "cat /data/c", "").await.0, "c");
    assert_eq!(node.image_volumes(), (1, 1));

    delete_pod(&node.cluster, "web", None).await;
    node.until("nothing is left of the volume", async |node| {
        node.image_volumes() == (0, 0) && !node.volumes_dir().join(pod.uid()).exists()
    })
    .await;

    // A pod that is deleted while no agent runs is cleaned up by the next one.
    node.run_with_image(
        "orphan",
        &format!("reference: '{DATA}', pullPolicy: Never"),
        "",
    )
    .await;
    node.until_pod("orphan", "ready=True c=running").await;
    assert_eq!(node.image_volumes(), (1, 1));
    node.cluster.restart_with(|builder| builder.nodes(0)).await;
    delete_pod(&node.cluster, "orphan", Some(0)).await;
    node.run_agent().await;
    node.until("nothing is left of the orphan", async |node| {
        node.image_volumes() == (0, 0)
    })
    .await;
    assert!(node.cluster.objects(&PODS, "").await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_image_of_a_volume_comes_by_its_pull_policy() {
    let Some(node) = RealNode::start_in(control_plane(), "real-image-b", 75).await else {
        return;
    };
    let none = "127.0.0.1:1/none:1";
    node.run_with_image(
        "never",
        &format!("reference: '{none}', pullPolicy: Never"),
        "",
    )
    .await;
    let pod = node.until_pod("never", "c=ErrImageNeverPull").await;
    let message = format!("Container image {none:?} is not present with pull policy of Never");
    assert_eq!(waiting(&pod), message);
    // Nothing listens at that port of this machine.
    node.run_with_image("pull", &format!("reference: '{none}'"), "")
        .await;
    node.until_pod("pull", "c=ErrImagePull").await;
    let pod = node.until_pod("pull", "c=ImagePullBackOff").await;
    let back_off = format!("Back-off pulling image {none:?}: ErrImagePull: ");
    assert!(waiting(&pod).starts_with(&back_off), "{}", waiting(&pod));
    let events = events_of(&node.cluster, "pull").await;
    for expected in [
        format!("Normal Pulling  Pulling image {none:?} x1"),
        format!("Normal BackOff  Back-off pulling image {none:?} x1"),
        "Warning Failed spec.containers{c} Error: ErrImagePull x1".into(),
        "Warning Failed spec.containers{c} Error: ImagePullBackOff x1".into(),
    ] {
        assert!(events.contains(&expected), "{expected}: {events:#?}");
    }
    import(&node.containerd, none).await;
    node.until_pod("never", "ready=True c=running").await;
    node.until_pod("pull", "ready=True c=running").await;

    // Nothing is made in an image.
    let missing = ", subPath: none";
    node.run_with_image("missing", &format!("reference: '{none}'"), missing)
        .await;
    let pod = node.until_pod("missing", "c=CreateContainerError").await;
    let why = waiting(&pod);
    assert!(
        why.contains("failed to ensure image subpath \"none\""),
        "{why}"
    );
    let pod = get_pod(&node.cluster, "missing").await;
    assert!(show(&pod).contains("ready=False"), "{}", show(&pod));
}
