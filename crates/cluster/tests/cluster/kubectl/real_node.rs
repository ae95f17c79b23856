//! `mizzen up --node-runtime cri`: pods with real containers, as kubectl sees them.

mod client_libraries;
mod debug;
mod joined;
mod logs;
mod proxies;
mod streams;
mod terminal;

use tokio::process::Command;

use super::{Kubectl, text};
use crate::containerd::{PrivateContainerd, image};
use crate::process::Home;

/// What a program has that needs a dynamic linker.
const LINKER: &[u8] = b"/lib64/ld-linux";

/// A control plane with one real node, whose pods have addresses of `10.N.0.0/16`. The name of the node is also that of
/// its bridge: each test has its own name and addresses.
async fn start(containerd: &PrivateContainerd, node: &str, n: u8) -> Option<Kubectl> {
    start_with(containerd, node, n, &[]).await
}

/// The same with more arguments.
async fn start_with(
    containerd: &PrivateContainerd,
    node: &str,
    n: u8,
    more: &[&str],
) -> Option<Kubectl> {
    let path = |name: &str| containerd.path(name).display().to_string();
    let arguments = [
        "--node-runtime=cri".to_owned(),
        format!("--node-name={node}"),
        format!("--cri-endpoint={}", containerd.endpoint()),
        format!("--node-root-dir={}", path("node")),
        format!("--pod-logs-dir={}", path("pod-logs")),
        format!("--cni-conf-dir={}", containerd.network_dir().display()),
        format!("--cluster-cidr=10.{n}.0.0/16"),
        // Whatever is left of the disk of this machine.
        "--eviction-hard=".to_owned(),
    ];
    let more = more.iter().map(|argument| (*argument).to_owned());
    let home = arguments
        .into_iter()
        .chain(more)
        .fold(Home::in_memory().whole(), Home::with);
    Kubectl::start_in(home).await
}

impl Kubectl {
    /// Creates the pods of a manifest and waits until they are ready.
    async fn run_pods(&self, manifest: &str, pods: &[&str]) {
        self.run(&format!("create -f {manifest}")).await;
        for pod in pods {
            let wait = format!("wait pod {pod} --for=condition=Ready --timeout=60s");
            self.run(&wait).await;
        }
    }

    /// The output of a shell command in a pod, which must succeed.
    async fn sh(&self, pod: &str, command: &str) -> String {
        let exec = ["exec", pod, "--", "sh", "-c", command];
        let (code, stdout, stderr) = self.talk(true, &exec, "").await;
        assert_eq!(code, 0, "{command}: {stdout}{stderr}");
        stdout
    }

    /// Waits until a command prints what is accepted.
    async fn until(&self, arguments: &str, accepts: impl Fn(&str) -> bool) -> String {
        let mut last = String::new();
        for _ in 0..300 {
            last = text(&self.output(self.command(arguments)).await.stdout);
            if accepts(&last) {
                return last;
            }
        }
        panic!("not in time: kubectl {arguments}: {last}");
    }
}

#[tokio::test]
async fn a_real_container_runs_and_kubectl_reaches_it() {
    let Some(containerd) = PrivateContainerd::start().await else {
        return;
    };
    let Some(kubectl) = start(&containerd, "real-kubectl", 214).await else {
        return;
    };
    kubectl.run_pods("real-pod.yaml", &["real"]).await;
    let nodes = kubectl.run("get nodes -o name").await;
    assert_eq!(nodes.trim(), "node/real-kubectl");
    let read = async |path: &str| {
        let argument = format!("get pod real -o jsonpath={{{path}}}");
        kubectl.run(&argument).await
    };
    assert!(read(".status.podIP").await.starts_with("10.214."));
    let id = read(".status.containerStatuses[0].containerID").await;
    assert!(id.starts_with("containerd://"), "{id}");
    assert_eq!(kubectl.run("logs real").await, "started\n");

    let token = "/var/run/secrets/kubernetes.io/serviceaccount";
    for websocket in kubectl.transports() {
        let script = format!("cat; ls {token} | tr '\\n' ' '; echo oops >&2; exit 7");
        let exec = ["exec", "-i", "real", "--", "sh", "-c", &script];
        let (code, stdout, stderr) = kubectl.talk(websocket, &exec, "typed\n").await;
        assert_eq!(
            (code, stdout.as_str()),
            (7, "typed\nca.crt namespace token ")
        );
        assert!(stderr.starts_with("oops\n"), "{stderr}");

        let line = format!("websocket {websocket}\n");
        kubectl
            .talk(websocket, &["attach", "-i", "real"], &line)
            .await;
        // The log is written by the runtime, a moment later.
        let mut log = String::new();
        for _ in 0..100 {
            log = kubectl.run("logs real").await;
            if log.ends_with(&format!("got {line}")) {
                break;
            }
        }
        assert!(log.ends_with(&format!("got {line}")), "{log}");
    }
    reach_the_api(&kubectl).await;
    run_a_loaded_image(&kubectl, &containerd).await;
    // A rate needs two measurements.
    let mut figures = String::new();
    for _ in 0..200 {
        let path = "get --raw /apis/metrics.k8s.io/v1beta1/namespaces/default/pods";
        figures = kubectl.run(path).await;
        if figures.contains(r#""usage""#) {
            break;
        }
    }
    assert!(figures.contains(r#""usage""#), "{figures}");
    // The claim has a volume of the default class, which goes with it.
    let claim = "get pvc data -o jsonpath={.spec.storageClassName}/{.status.phase}";
    assert_eq!(kubectl.run(claim).await, "standard/Bound");
    kubectl.run("delete pod real").await;
    kubectl.run("delete pvc data").await;
    let mut left = String::from("?");
    for _ in 0..200 {
        left = kubectl.run("get pv -o name").await;
        if left.is_empty() {
            break;
        }
    }
    assert_eq!(left, "");
    let volumes = containerd.path("node").join("volumes");
    assert_eq!(std::fs::read_dir(volumes).unwrap().count(), 0);
    let tasks = containerd
        .ctr(&["tasks", "list", "--quiet"])
        .output()
        .unwrap();
    assert!(tasks.status.success());
    assert_eq!(String::from_utf8_lossy(&tasks.stdout), "");
}

/// A client in a pod finds the API server by its environment, and verifies it by its mounted certificate authority. So it
/// does in a pod on the host network, where the address is another one. Anonymous requests are rejected at this path.
async fn reach_the_api(kubectl: &Kubectl) {
    let path = std::env::var("PATH").unwrap();
    let found = std::env::split_paths(&path).map(|dir| dir.join("kubectl"));
    let program = found.into_iter().find(|file| file.is_file()).unwrap();
    let program = program.canonicalize().unwrap();
    let code = std::fs::read(&program).unwrap();
    if code.windows(LINKER.len()).any(|part| part == LINKER) {
        println!(
            "SKIPPED: {} is not statically linked, and cannot run in a pod",
            program.display()
        );
        return;
    }
    for (name, host_network) in [("client", false), ("host-client", true)] {
        let manifest = format!(
            "---\n{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{hostNetwork: {host_network}, \
             terminationGracePeriodSeconds: 1, containers: [{{name: c, image: 'mizzen.test/busybox:1', \
             imagePullPolicy: Never, command: [sleep, '1000'], volumeMounts: [{{name: kubectl, mountPath: /kubectl}}]}}], \
             volumes: [{{name: kubectl, hostPath: {{path: '{}'}}}}]}}}}",
            program.display()
        );
        let file = kubectl.home.path().join(format!("{name}.yaml"));
        std::fs::write(&file, manifest).unwrap();
        kubectl.run(&format!("create -f {}", file.display())).await;
        kubectl
            .run(&format!(
                "wait pod {name} --for=condition=Ready --timeout=60s"
            ))
            .await;
        let script = "cd /var/run/secrets/kubernetes.io/serviceaccount; export HOME=/tmp; \
                      /kubectl --server https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT \
                      --certificate-authority ca.crt --token $(cat token) --request-timeout 20s get --raw /api; echo; \
                      echo $KUBERNETES_SERVICE_HOST $KUBERNETES_SERVICE_PORT";
        let exec = ["exec", name, "--", "sh", "-c", script];
        let (code, stdout, stderr) = kubectl.talk(true, &exec, "").await;
        assert_eq!(code, 0, "{stdout}{stderr}");
        assert!(stdout.contains("APIVersions"), "{stdout}{stderr}");
        let address = stdout.lines().last().unwrap();
        assert_eq!(address == "10.0.0.1 443", !host_network, "{address}");
        kubectl.run(&format!("delete pod {name}")).await;
    }
}

/// An image that `mizzen image load` has imported is there for a pod, whose image volume it is, too.
async fn run_a_loaded_image(kubectl: &Kubectl, containerd: &PrivateContainerd) {
    let file = kubectl.home.path().join("loaded.tar");
    std::fs::write(&file, image(&["mizzen.test/loaded:1"], "loaded")).unwrap();
    let loaded = Command::new(env!("CARGO_BIN_EXE_mizzen"))
        .args(["image", "load"])
        .arg(&file)
        .args(["--cri-endpoint", &containerd.endpoint()])
        .output()
        .await
        .unwrap();
    assert!(loaded.status.success(), "{loaded:?}");
    let manifest = "---\n{apiVersion: v1, kind: Pod, metadata: {name: loaded}, spec: {terminationGracePeriodSeconds: 1, \
                    containers: [{name: c, image: 'mizzen.test/loaded:1', imagePullPolicy: Never, \
                    command: [sleep, '1000'], volumeMounts: [{name: files, mountPath: /files}]}], \
                    volumes: [{name: files, image: {reference: 'mizzen.test/loaded:1', pullPolicy: IfNotPresent}}]}}";
    let file = kubectl.home.path().join("loaded.yaml");
    std::fs::write(&file, manifest).unwrap();
    kubectl.run(&format!("create -f {}", file.display())).await;
    kubectl
        .run("wait pod loaded --for=condition=Ready --timeout=60s")
        .await;
    let listed = kubectl.run("exec loaded -- ls /files").await;
    assert_eq!(listed, "bin\netc\ntmp\n");
    kubectl.run("delete pod loaded").await;
}

#[tokio::test]
async fn a_missing_runtime_is_an_error_before_anything_starts() {
    let home = Home::in_memory()
        .whole()
        .with("--node-runtime=cri")
        .with("--cri-endpoint=unix:///nowhere/containerd.sock");
    let output = home.fail_to_start(0).await;
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr);
    let expected = match nix::unistd::geteuid().is_root() {
        true => {
            "no container runtime at unix:///nowhere/containerd.sock: the socket does not exist"
        }
        false => "--node-runtime cri needs root",
    };
    assert!(text.contains(expected), "{text}");
}
