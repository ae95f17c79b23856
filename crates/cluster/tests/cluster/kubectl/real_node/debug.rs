//! `kubectl debug`: of a node, of a pod by an ephemeral container, and of its copy.

use std::fs;
use std::process::Stdio;

use tokio::io::AsyncWriteExt as _;
use tokio::time::timeout;

use super::super::text;
use super::start;
use crate::containerd::{BUSYBOX, PrivateContainerd};
use crate::process::STEP_TIMEOUT;

const NODE: &str = "real-debug";

#[tokio::test]
async fn a_node_a_pod_and_its_copy_are_debugged() {
    let Some(containerd) = PrivateContainerd::start().await else {
        return;
    };
    let Some(kubectl) = start(&containerd, NODE, 221).await else {
        return;
    };
    let image = format!("--image={BUSYBOX}");
    if kubectl.lacks("debug") {
        return;
    }
    kubectl.run_pods("real-pod.yaml", &["real"]).await;

    // The pod of a node has its namespaces, and its files at /host.
    let file = containerd.path("of-the-node");
    fs::write(&file, "of the node\n").unwrap();
    let node = format!("node/{NODE}");
    let script = format!(
        "busybox chroot /host cat {}; cd /proc/self/ns; for i in pid ipc net; do busybox readlink $i; done",
        file.display()
    );
    let debug = ["debug", &node, &image, "--", "sh", "-c", &script];
    let (code, stdout, stderr) = kubectl.talk(true, &debug, "").await;
    assert_eq!(code, 0, "{stdout}{stderr}");
    let said = format!("{stdout}{stderr}");
    let pod = said.split_once("debugging pod ").unwrap().1;
    let pod = pod.split(' ').next().unwrap().to_owned();
    let ended = "--for=jsonpath={.status.phase}=Succeeded --timeout=60s";
    kubectl.run(&format!("wait pod {pod} {ended}")).await;
    let namespaces = ["pid", "ipc", "net"].map(|name| {
        let link = fs::read_link(format!("/proc/self/ns/{name}")).unwrap();
        format!("{}\n", link.display())
    });
    let expected = format!("of the node\n{}", namespaces.concat());
    assert_eq!(kubectl.run(&format!("logs {pod}")).await, expected);

    // An ephemeral container sees the processes of its target, and is attached.
    for websocket in kubectl.transports() {
        let name = format!("by-{websocket}");
        let container = format!("--container={name}");
        let debug = [
            "debug",
            "-i",
            "real",
            &image,
            "--target=c",
            &container,
            "--",
            "sh",
        ];
        let mut command = kubectl.over(websocket, &debug);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(b"ps; exit 3\n").await.unwrap();
        // It ends with the container.
        let output = timeout(STEP_TIMEOUT, child.wait_with_output()).await;
        let stdout = text(&output.expect("kubectl ends in time").unwrap().stdout);
        assert!(stdout.contains("echo started; while read line"), "{stdout}");
        let code = format!(
            "get pod real -o jsonpath={{.status.ephemeralContainerStatuses[?(@.name==\"{name}\")].state.terminated.exitCode}}"
        );
        kubectl.until(&code, |code| code == "3").await;
    }

    // A copy runs beside the pod, with one more container that sees all processes.
    let debug = [
        "debug",
        "real",
        &image,
        "--copy-to=copy",
        "--share-processes",
        "--container=extra",
        "--",
        "sleep",
        "1000",
    ];
    let (code, stdout, stderr) = kubectl.talk(true, &debug, "").await;
    assert_eq!(code, 0, "{stdout}{stderr}");
    let ready = "wait pod copy --for=condition=Ready --timeout=60s";
    kubectl.run(ready).await;
    let exec = ["exec", "copy", "--container=extra", "--", "ps"];
    let (_, stdout, stderr) = kubectl.talk(true, &exec, "").await;
    assert!(
        stdout.contains("echo started; while read line") && stdout.contains("sleep 1000"),
        "{stdout}{stderr}"
    );
    // A copy may have another command in a container of the pod.
    let debug = [
        "debug",
        "real",
        "--copy-to=changed",
        "--container=c",
        "--",
        "sh",
        "-c",
        "echo changed; sleep 1000",
    ];
    let (code, stdout, stderr) = kubectl.talk(true, &debug, "").await;
    assert_eq!(code, 0, "{stdout}{stderr}");
    kubectl
        .run("wait pod changed --for=condition=Ready --timeout=60s")
        .await;
    kubectl
        .until("logs changed -c c", |log| log == "changed\n")
        .await;
}
