//! Real containers: a node on a private containerd, against a server in the same process, on real time.
//!
//! Pods have addresses of a bridge that the node makes; only this machine dials them.

mod events;
mod eviction;
mod failures;
mod fields;
mod http_server;
mod image_access;
mod image_volumes;
mod kills;
mod network;
mod probes;
mod security;
mod shared_volumes;
mod shutdown;
mod slices;
mod start_and_stop;
mod static_pods;
mod stats;
mod user_namespaces;
mod volumes;
mod workloads;

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use mizzen_cri::CriClient;
use mizzen_cri::messages::{
    ImageSpec, ImageStatusRequest, ListContainersRequest, ListPodSandboxRequest,
};
use mizzen_node::cri::{ContainerLogPolicy, CriOptions, CriRuntime, Housekeeping, ImageGcPolicy};
use mizzen_node::eviction::EvictionConfig;
use mizzen_node::runtime::{ContainerRuntime as _, Exec, Stdio};
use mizzen_node::shutdown::ShutdownConfig;
use mizzen_node::{Options, Serving, StaticPodSource};
use mizzen_object::condition::is_true;
use mizzen_sdk::dynamic::PatchType;
use mizzen_sdk::resource::{CONFIG_MAPS, NODES, PODS, SECRETS};
use mizzen_sdk::{Key, Object};
use mizzen_testing::{Builder, Cluster};
use mizzen_value::value;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use crate::containerd::{BUSYBOX, PAUSE, PrivateContainerd};
use crate::fixtures::{create, delete_pod, events_of, get_pod, show, text};
use crate::logs::Authority;
use crate::registry::{Registry, USER};

/// How long a test waits for a condition.
const PATIENCE: Duration = Duration::from_secs(90);

/// A cluster with one real node.
struct RealNode {
    cluster: Cluster,
    containerd: PrivateContainerd,
    authority: Authority,
    name: &'static str,
    runtime: CriRuntime,
    housekeeping: Housekeeping,
    /// Without thresholds at first: the machine of a test may run short of anything.
    eviction: EvictionConfig,
    shutdown: ShutdownConfig,
    /// Where clients in pods reach the API server, if they do.
    api_server: Option<String>,
}

impl RealNode {
    /// Starts a node whose pods have addresses of `10.213.N.0/24`; `None` if the machine cannot.
    async fn start(name: &'static str, n: u8) -> Option<RealNode> {
        RealNode::start_in(control_plane(), name, n).await
    }

    /// Starts a node in a cluster that has more.
    async fn start_in(builder: Builder, name: &'static str, n: u8) -> Option<RealNode> {
        RealNode::start_with(builder, name, n, Housekeeping::default()).await
    }

    async fn start_with(
        builder: Builder,
        name: &'static str,
        n: u8,
        housekeeping: Housekeeping,
    ) -> Option<RealNode> {
        let containerd = PrivateContainerd::start().await?;
        let authority = Authority::new();
        let identity = authority.sign("kube-apiserver-kubelet-client");
        // Cgroups have the UIDs of pods, which begin alike with the same seed, and tests run beside each other.
        let cluster = builder
            .seed(n.into())
            .real_time()
            .tune_server(move |options| options.kubelet_client = Some(identity.clone()))
            .start()
            .await;
        let runtime = connect(&containerd, name, &housekeeping).await;
        let mut node = RealNode {
            cluster,
            containerd,
            authority,
            name,
            runtime,
            housekeeping,
            eviction: EvictionConfig {
                thresholds: Vec::new(),
                ..EvictionConfig::default()
            },
            shutdown: ShutdownConfig::default(),
            api_server: None,
        };
        node.run_agent().await;
        node.until("the node is registered", async |node| {
            let (client, key) = (node.cluster.dynamic_client(), Key::cluster(node.name));
            client.find(&NODES, &key).await.unwrap().is_some()
        })
        .await;
        let range = value!({ "spec": { "podCIDR": (format!("10.213.{n}.0/24")) } });
        let client = node.cluster.dynamic_client();
        client
            .patch(&NODES, &Key::cluster(name), "", PatchType::Merge, &range)
            .await
            .unwrap();
        Some(node)
    }

    /// Runs the agent, or restarts it with a new connection to the runtime.
    async fn run_agent(&mut self) {
        self.runtime = CriRuntime::connect(self.cri_options()).await.unwrap();
        let clock = mizzen_sdk::clock::wall_clock();
        let authority = self.authority.pem();
        let serving = Serving::bind(Ipv4Addr::LOCALHOST.into(), &authority, clock).await;
        let serving = Mutex::new(Some(serving.unwrap()));
        let (runtime, name) = (self.runtime.clone(), self.name);
        let manifests = self.containerd.path("manifests");
        let (eviction, shutdown) = (self.eviction.clone(), self.shutdown.clone());
        let tune = move |options: &mut Options| {
            options.serving = serving.lock().take();
            options.capacity = runtime.capacity();
            options.eviction = eviction.clone();
            options.shutdown = shutdown.clone();
            options.runtime = Arc::new(runtime.clone());
            options.prefix = name.into();
            options.is_numbered = false;
            options.static_pods = Some(StaticPodSource {
                path: manifests.clone(),
                complete: Arc::new(|pod| mizzen_kinds::complete("", "Pod", &pod)),
            });
        };
        self.cluster
            .restart_with(|builder| builder.nodes(1).tune_nodes(tune))
            .await;
    }

    async fn until(&self, what: &str, holds: impl AsyncFn(&RealNode) -> bool) {
        let began = Instant::now();
        while !holds(self).await {
            if began.elapsed() > PATIENCE {
                let pods = self.cluster.objects(&PODS, "").await;
                let pods: Vec<String> = pods.iter().map(show).collect();
                let mut events = Vec::new();
                for pod in self.cluster.objects(&PODS, "").await {
                    events.extend(events_of(&self.cluster, pod.name()).await);
                }
                panic!("not in time: {what}\n{pods:#?}\n{events:#?}");
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until the state of a pod contains a text.
    async fn until_pod(&self, name: &str, wanted: &str) -> Object {
        self.until(&format!("{name} is {wanted}"), async |node| {
            show(&get_pod(&node.cluster, name).await).contains(wanted)
        })
        .await;
        get_pod(&self.cluster, name).await
    }

    /// Creates a pod from its spec.
    async fn run(&self, name: &str, spec: &str) {
        let node = self.name;
        let text = format!("{{metadata: {{name: {name}}}, spec: {{nodeName: {node}, {spec}}}}}");
        create(&self.cluster, &PODS, &text).await;
    }

    /// The log of a pod.
    async fn log(&self, pod: &str, query: &str) -> String {
        let path = format!("/api/v1/namespaces/default/pods/{pod}/log{query}");
        let (code, text) = text(&self.cluster, &path).await;
        assert_eq!(code, 200, "{text}");
        text
    }

    /// What the node answers to the API server at a path.
    async fn kubelet(&self, path: &str) -> String {
        let report =
            mizzen_controlplane::get_from_kubelet(self.cluster.server(), self.name, path).await;
        let report = report.map_err(|status| status.message).unwrap();
        String::from_utf8(report.into()).unwrap()
    }

    /// The output and the exit code of a shell command in the container `c` of a pod.
    async fn exec(&self, pod: &str, command: &str, input: &'static str) -> (String, String, i64) {
        let pod = get_pod(&self.cluster, pod).await;
        let id = pod["status"]["containerStatuses"][0]["containerID"].str();
        let exec = Exec {
            id: id.into(),
            pod: Clone::clone(&pod),
            container: "c".into(),
            environment: Default::default(),
            command: ["sh", "-c", command].map(String::from).to_vec(),
            now: Arc::new(Default::default),
        };
        let (stdout, out) = mpsc::channel(16);
        let (stderr, err) = mpsc::channel(16);
        let (stdin, typed) = mpsc::channel(1);
        stdin
            .send(Bytes::from_static(input.as_bytes()))
            .await
            .unwrap();
        drop(stdin);
        let stdio = Stdio {
            stdin: Some(typed),
            stdout: Some(stdout),
            stderr: Some(stderr),
            tty: false,
            resize: None,
        };
        let ended = self.runtime.exec(exec, stdio);
        let (ended, out, err) = tokio::join!(ended, collect(out), collect(err));
        (out, err, ended.unwrap())
    }

    /// The numbers of sandboxes and containers in the runtime.
    async fn count(&self) -> (usize, usize) {
        let client = CriClient::connect(&self.containerd.endpoint())
            .await
            .unwrap();
        let sandboxes = client.call(ListPodSandboxRequest::default()).await.unwrap();
        let containers = client.call(ListContainersRequest::default()).await.unwrap();
        (sandboxes.items.len(), containers.containers.len())
    }

    fn cri_options(&self) -> CriOptions {
        CriOptions {
            api_server: self.api_server.clone(),
            ..cri_options(&self.containerd, self.name, &self.housekeeping)
        }
    }

    fn volumes_dir(&self) -> std::path::PathBuf {
        self.containerd.path("node").join("pods")
    }
}

/// A cluster of a server alone.
fn control_plane() -> Builder {
    Cluster::builder().server_only().without_bootstrap()
}

async fn connect(
    containerd: &PrivateContainerd,
    name: &str,
    housekeeping: &Housekeeping,
) -> CriRuntime {
    CriRuntime::connect(cri_options(containerd, name, housekeeping))
        .await
        .unwrap()
}

fn cri_options(
    containerd: &PrivateContainerd,
    name: &str,
    housekeeping: &Housekeeping,
) -> CriOptions {
    CriOptions {
        endpoint: containerd.endpoint(),
        node: name.into(),
        root: containerd.path("node"),
        logs: containerd.path("pod-logs"),
        network: containerd.network_dir(),
        resolver: None,
        api_server: None,
        unsafe_sysctls: vec!["net.core.*".into()],
        system_bus: None,
        housekeeping: housekeeping.clone(),
    }
}

async fn collect(mut from: mpsc::Receiver<Bytes>) -> String {
    let mut all = Vec::new();
    while let Some(part) = from.recv().await {
        all.extend_from_slice(&part);
    }
    String::from_utf8(all).unwrap()
}

fn container(more: &str) -> String {
    format!("containers: [{{name: c, image: '{BUSYBOX}', imagePullPolicy: Never, {more}}}]")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_runs_with_its_inputs_and_leaves_nothing_behind() {
    let Some(node) = RealNode::start("real-a", 1).await else {
        return;
    };
    create(
        &node.cluster,
        &CONFIG_MAPS,
        "{metadata: {name: config}, data: {key: from a file}}",
    )
    .await;
    create(
        &node.cluster,
        &SECRETS,
        "{metadata: {name: secret}, data: {bin: /wD+}}",
    )
    .await;
    let spec = container(
        "command: [sh, -c, 'echo hello $WHO from $(hostname); cat /config/key; echo; exec sleep 1000'], \
         env: [{name: NAME, value: web}, {name: WHO, value: $(NAME)}], \
         volumeMounts: [{name: config, mountPath: /config}, {name: secret, mountPath: /secret}, \
         {name: empty, mountPath: /data}, {name: info, mountPath: /info}]",
    );
    let volumes = "volumes: [{name: config, configMap: {name: config}}, {name: secret, secret: {secretName: secret}}, \
                   {name: empty, emptyDir: {}}, {name: info, downwardAPI: {items: [{path: name, fieldRef: {fieldPath: \
                   metadata.name}}]}}], terminationGracePeriodSeconds: 2";
    node.run("web", &format!("{spec}, {volumes}")).await;
    let pod = node.until_pod("web", "Running ready=True c=running").await;
    let address = pod["status"]["podIP"].str();
    assert!(address.starts_with("10.213.1."), "{address}");
    let id = pod["status"]["containerStatuses"][0]["containerID"].str();
    assert!(id.starts_with("containerd://"), "{id}");
    assert_eq!(
        node.log("web", "").await,
        "hello web from web\nfrom a file\n"
    );
    let id = id.strip_prefix("containerd://").unwrap();
    let link = format!("containers/web_default_c-{id}.log");
    let link = node.containerd.path(&link);
    let text = std::fs::read_to_string(&link).unwrap();
    assert!(text.contains("hello web from web"), "{text}");

    let (out, err, code) = node
        .exec(
            "web",
            "cat; echo err >&2; cat /info/name; wc -c < /secret/bin; touch /data/x; exit 3",
            "typed ",
        )
        .await;
    assert_eq!(
        (out.as_str(), err.as_str(), code),
        ("typed web3\n", "err\n", 3)
    );

    let events: BTreeSet<String> = events_of(&node.cluster, "web")
        .await
        .iter()
        .map(|event| event.split(' ').nth(1).unwrap().to_owned())
        .collect();
    let expected = ["Created", "Pulled", "Started"].map(String::from);
    assert_eq!(events, expected.into());

    delete_pod(&node.cluster, "web", None).await;
    node.until("the pod is deleted", async |node| {
        node.cluster.objects(&PODS, "").await.is_empty()
    })
    .await;
    node.until("the runtime is empty", async |node| {
        node.count().await == (0, 0)
    })
    .await;
    node.until("the directories are empty", async |node| {
        std::fs::read_dir(node.volumes_dir()).unwrap().count() == 0
    })
    .await;
    assert!(std::fs::symlink_metadata(&link).is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_exits_is_restarted_and_its_end_is_kept() {
    let Some(node) = RealNode::start("real-b", 2).await else {
        return;
    };
    let spec = container(
        "command: [sh, -c, 'if [ -e /data/x ]; then echo second; exec sleep 1000; fi; touch /data/x; echo first; \
         echo -n why > /dev/termination-log; exit 3'], volumeMounts: [{name: data, mountPath: /data}]",
    );
    node.run(
        "web",
        &format!("{spec}, volumes: [{{name: data, emptyDir: {{}}}}]"),
    )
    .await;
    let pod = node
        .until_pod("web", "Running ready=True c=running+1")
        .await;
    let end = &pod["status"]["containerStatuses"][0]["lastState"]["terminated"];
    assert_eq!(
        (
            end["exitCode"].int(),
            end["reason"].str(),
            end["message"].str()
        ),
        (3, "Error", "why")
    );
    assert_eq!(node.log("web", "").await, "second\n");
    assert_eq!(node.log("web", "?previous=true").await, "first\n");
    assert_eq!(node.log("web", "?tailLines=0").await, "");

    node.run(
        "job",
        &format!(
            "restartPolicy: Never, {}",
            container("command: [sh, -c, 'echo done; seq 1000 1999 > /dev/termination-log']")
        ),
    )
    .await;
    let pod = node
        .until_pod("job", "Succeeded ready=False c=Completed(0)")
        .await;
    let end = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
    let message = end["message"].str();
    assert!(message.ends_with("\n1998\n1999\n"), "{message}");
    assert_eq!(message.len(), 4096);
    assert_eq!(node.log("job", "").await, "done\n");
    let failed = container(
        "command: [sh, -c, 'echo it failed; exit 1'], terminationMessagePolicy: FallbackToLogsOnError",
    );
    node.run("failed", &format!("restartPolicy: Never, {failed}"))
        .await;
    let pod = node
        .until_pod("failed", "Failed ready=False c=Error(1)")
        .await;
    let end = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!(end["message"].str(), "it failed\n");
    node.run("odd", &container("command: [/no/such/program]"))
        .await;
    node.until_pod("odd", "c=CrashLoopBackOff").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_restarted_adopts_what_runs() {
    let Some(mut node) = RealNode::start("real-c", 3).await else {
        return;
    };
    node.run(
        "stays",
        &container("command: [sh, -c, 'echo once; exec sleep 1000']"),
    )
    .await;
    node.run("ends", &container("command: [sh, -c, 'echo up; while [ ! -e /tmp/end ]; do sleep 0.1; done; rm /tmp/end']"))
        .await;
    let before = node.until_pod("stays", "ready=True c=running").await;
    node.until_pod("ends", "ready=True c=running").await;
    let id = |pod: &Object| {
        pod["status"]["containerStatuses"][0]["containerID"]
            .str()
            .to_owned()
    };

    // It ends while no agent watches.
    let (_, _, code) = node.exec("ends", "touch /tmp/end", "").await;
    assert_eq!(code, 0);
    node.run_agent().await;
    let ended = node.until_pod("ends", "ready=True c=running+1").await;
    assert_eq!(
        ended["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"].int(),
        0
    );
    let after = node.until_pod("stays", "ready=True c=running").await;
    assert_eq!(id(&after), id(&before));
    assert!(!show(&after).contains('+'), "{}", show(&after));
    assert_eq!(node.log("stays", "").await, "once\n");
    // Two sandboxes, two containers, and the dead one.
    assert_eq!(node.count().await, (2, 3));

    // A pod that is deleted while no agent runs is removed by the next one.
    node.cluster.restart_with(|builder| builder.nodes(0)).await;
    delete_pod(&node.cluster, "stays", Some(0)).await;
    node.run_agent().await;
    node.until("the orphan is removed", async |node| {
        node.count().await.0 == 1
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn images_come_by_their_pull_policy() {
    let Some(node) = RealNode::start("real-d", 4).await else {
        return;
    };
    node.run(
        "never",
        "containers: [{name: c, image: '127.0.0.1:1/none:1', imagePullPolicy: Never}]",
    )
    .await;
    let pod = node.until_pod("never", "c=ErrImageNeverPull").await;
    let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"];
    assert_eq!(
        waiting["message"].str(),
        "Container image \"127.0.0.1:1/none:1\" is not present with pull policy of Never"
    );
    // Its sandbox is there before any container is.
    let address = pod["status"]["podIP"].str();
    assert!(address.starts_with("10.213.4."), "{address}");
    let conditions = &pod["status"]["conditions"];
    assert!(
        is_true(conditions, "PodReadyToStartContainers"),
        "{conditions:?}"
    );
    // Nothing listens at that port of this machine.
    node.run(
        "pull",
        "containers: [{name: c, image: '127.0.0.1:1/none:1', imagePullPolicy: IfNotPresent}]",
    )
    .await;
    node.until_pod("pull", "c=ErrImagePull").await;
    node.until_pod("pull", "c=ImagePullBackOff").await;
    let events = events_of(&node.cluster, "pull").await;
    for expected in [
        "Normal Pulling spec.containers{c} Pulling image \"127.0.0.1:1/none:1\" x1",
        "Warning Failed spec.containers{c} Error: ErrImagePull x1",
        "Warning Failed spec.containers{c} Error: ImagePullBackOff x1",
    ] {
        assert!(events.iter().any(|event| event == expected), "{events:#?}");
    }
    node.run(
        "invalid",
        "containers: [{name: c, image: 'a.example/Upper:1'}]",
    )
    .await;
    let pod = node.until_pod("invalid", "c=InvalidImageName").await;
    let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"];
    assert_eq!(
        waiting["message"].str(),
        "Failed to apply default image tag \"a.example/Upper:1\": couldn't parse image name \"a.example/Upper:1\": \
         invalid reference format: repository name (Upper) must be lowercase"
    );
    node.containerd.import(&["127.0.0.1:1/none:1"]);
    node.until_pod("never", "ready=True c=running").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_and_hooks_run() {
    let Some(node) = RealNode::start("real-e", 5).await else {
        return;
    };
    let shared = node.containerd.path("shared");
    let volume = format!(
        "volumes: [{{name: out, hostPath: {{path: '{}', type: DirectoryOrCreate}}}}]",
        shared.display()
    );
    let spec = container(
        "command: [sh, -c, 'mkdir /tmp/www; trap \"exit 0\" TERM; httpd -f -p 8080 -h /tmp/www & wait'], \
         ports: [{name: web, containerPort: 8080}], \
         startupProbe: {tcpSocket: {port: web}, periodSeconds: 1}, \
         readinessProbe: {httpGet: {path: /ready, port: web}, periodSeconds: 1, failureThreshold: 1}, \
         livenessProbe: {exec: {command: [test, '!', -e, /tmp/sick]}, periodSeconds: 1, failureThreshold: 1}, \
         lifecycle: {postStart: {exec: {command: [touch, /out/started]}}, preStop: {exec: {command: [touch, /out/stopping]}}}, \
         volumeMounts: [{name: out, mountPath: /out}]",
    );
    node.run(
        "web",
        &format!("{spec}, {volume}, terminationGracePeriodSeconds: 5"),
    )
    .await;
    node.until_pod("web", "Running ready=False c=unready").await;
    assert!(shared.join("started").exists());
    node.exec("web", "touch /tmp/www/ready", "").await;
    node.until_pod("web", "Running ready=True c=running").await;

    // A port is forwarded from inside the pod.
    let pod = get_pod(&node.cluster, "web").await;
    let mut connection = node.runtime.connect(&pod, 8080).await.unwrap();
    connection
        .write_all(b"GET /ready HTTP/1.0\r\n\r\n")
        .await
        .unwrap();
    let mut response = String::new();
    connection.read_to_string(&mut response).await.unwrap();
    assert!(
        response.starts_with("HTTP/1.1 200 OK") || response.starts_with("HTTP/1.0 200 OK"),
        "{response}"
    );

    node.exec("web", "touch /tmp/sick", "").await;
    node.until_pod("web", "c=unready+1").await;
    assert!(shared.join("stopping").exists());
    let events = events_of(&node.cluster, "web").await;
    let said = |text: &str| events.iter().any(|event| event.contains(text));
    assert!(
        said("Readiness probe failed: HTTP probe failed with statuscode: 404"),
        "{events:#?}"
    );
    assert!(
        said("Container c failed liveness probe, will be restarted"),
        "{events:#?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn init_containers_and_sidecars_run_in_order() {
    let Some(node) = RealNode::start("real-f", 6).await else {
        return;
    };
    let one = |name: &str, command: &str, more: &str| {
        format!(
            "{{name: {name}, image: '{BUSYBOX}', imagePullPolicy: Never, command: [sh, -c, '{command}'], \
             volumeMounts: [{{name: data, mountPath: /data}}]{more}}}"
        )
    };
    let spec = format!(
        "initContainers: [{}, {}, {}], containers: [{}], volumes: [{{name: data, emptyDir: {{medium: Memory, sizeLimit: 1Mi}}}}], \
         restartPolicy: Never, shareProcessNamespace: true",
        one("first", "echo first >> /data/log", ""),
        one(
            "side",
            "echo side >> /data/log; trap \"exit 0\" TERM; sleep 1000 & wait",
            ", restartPolicy: Always"
        ),
        one("last", "echo last >> /data/log", ""),
        one(
            "c",
            "echo main >> /data/log; cat /data/log; mount | grep -c \"/data type tmpfs\"",
            ""
        ),
    );
    node.run("web", &spec).await;
    node.until_pod("web", "Succeeded").await;
    let log = node.log("web", "?container=c").await;
    assert_eq!(log, "first\nside\nlast\nmain\n1\n");
    // A volume of a type that the node cannot mount is refused with a reason.
    node.run(
        "share",
        &format!(
            "{}, volumes: [{{name: v, nfs: {{server: x, path: /}}}}]",
            container("")
        ),
    )
    .await;
    let pod = node.until_pod("share", "Failed").await;
    assert_eq!(pod["status"]["reason"].str(), "UnsupportedPodSpec");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_runtime_makes_the_node_unready_and_containers_run_on() {
    let Some(mut node) = RealNode::start("real-g", 7).await else {
        return;
    };
    let ready = async |node: &RealNode| {
        let object = node.cluster.object(&NODES, node.name).await;
        let conditions = object["status"]["conditions"].list().iter();
        let mut ready = conditions.filter(|condition| condition["type"].str() == "Ready");
        ready.next().map(|condition| {
            (
                condition["status"].str().to_owned(),
                condition["message"].str().to_owned(),
            )
        })
    };
    let probe = "{exec: {command: ['true']}, periodSeconds: 1, failureThreshold: 1}";
    let probed =
        format!("command: [sleep, '1000'], livenessProbe: {probe}, readinessProbe: {probe}");
    node.run("web", &container(&probed)).await;
    let before = node.until_pod("web", "ready=True c=running").await;
    node.until("the node is ready", async |node| {
        ready(node).await.unwrap().0 == "True"
    })
    .await;
    node.containerd.kill();
    node.until("the agent has noticed", async |node| {
        node.runtime.health().is_err()
    })
    .await;
    // A change of the node is one way by which its status is written, renewals of its lease are the other.
    let label = value!({ "metadata": { "labels": { "changed": "yes" } } });
    let (client, key) = (node.cluster.dynamic_client(), Key::cluster(node.name));
    client
        .patch(&NODES, &key, "", PatchType::Merge, &label)
        .await
        .unwrap();
    node.until("the node is not ready", async |node| {
        let (status, message) = ready(node).await.unwrap();
        status == "False" && message.starts_with("container runtime is down: ")
    })
    .await;
    // What cannot be probed is neither unhealthy nor unready.
    node.until("the probes have errored", async |node| {
        let events = events_of(&node.cluster, "web").await;
        ["Liveness", "Readiness"].iter().all(|probe| {
            let errored =
                format!("{probe} probe errored and resulted in unknown state: rpc error:");
            events.iter().any(|event| event.contains(&errored))
        })
    })
    .await;
    node.containerd.launch().await;
    node.until("the node is ready again", async |node| {
        ready(node).await.unwrap().0 == "True"
    })
    .await;
    node.until("events say it", async |node| {
        let events = events_of(&node.cluster, node.name).await;
        [
            "Starting  Starting kubelet.",
            "NodeHasNoDiskPressure  Node real-g status is now: NodeHasNoDiskPressure",
            "NodeNotReady  Node real-g status is now: NodeNotReady",
            "NodeReady  Node real-g status is now: NodeReady",
        ]
        .iter()
        .all(|expected| events.iter().any(|event| event.contains(expected)))
    })
    .await;
    let after = get_pod(&node.cluster, "web").await;
    assert_eq!(
        before["status"]["containerStatuses"],
        after["status"]["containerStatuses"]
    );
    let (out, _, code) = node.exec("web", "echo alive", "").await;
    assert_eq!((out.as_str(), code), ("alive\n", 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn security_contexts_limits_and_host_ports_apply() {
    let Some(node) = RealNode::start("real-h", 8).await else {
        return;
    };
    let spec = container(
        "command: [sh, -c, 'echo page > /e/index.html; touch /sub/mine; httpd -f -p 80 -h /e'], \
         ports: [{containerPort: 80, hostPort: 38099, hostIP: 127.0.0.1}], \
         resources: {limits: {memory: 32Mi}}, \
         securityContext: {readOnlyRootFilesystem: true, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}, \
         seccompProfile: {type: RuntimeDefault}}, \
         volumeMounts: [{name: e, mountPath: /e}, {name: e, mountPath: /sub, subPath: a/b}]",
    );
    let more = "volumes: [{name: e, emptyDir: {}}], hostAliases: [{ip: 10.9.9.9, hostnames: [alias.test]}], \
                securityContext: {runAsUser: 1000, runAsGroup: 3000, fsGroup: 2000, \
                sysctls: [{name: net.ipv4.ip_unprivileged_port_start, value: '0'}]}";
    node.run("web", &format!("{spec}, {more}")).await;
    node.until_pod("web", "ready=True c=running").await;
    let check = "id; touch /x; sed -n -e 's/^CapEff:.//p' -e 's/^NoNewPrivs:.//p' -e 's/^Seccomp:.//p' /proc/self/status; \
                 tail -n 1 /etc/hosts; ls /sub";
    let (out, err, _) = node.exec("web", check, "").await;
    let expected =
        "uid=1000 gid=3000 groups=2000,3000\n0000000000000000\n1\n2\n10.9.9.9\talias.test\nmine\n";
    assert_eq!(out, expected);
    assert!(err.contains("Read-only file system"), "{err}");

    let mut connection = tokio::net::TcpStream::connect("127.0.0.1:38099")
        .await
        .unwrap();
    connection
        .write_all(b"GET / HTTP/1.0\r\n\r\n")
        .await
        .unwrap();
    let mut response = String::new();
    connection.read_to_string(&mut response).await.unwrap();
    assert!(response.ends_with("page\n"), "{response}");

    let hungry = container("command: [tail, /dev/zero], resources: {limits: {memory: 8Mi}}");
    node.run("oom", &format!("restartPolicy: Never, {hungry}"))
        .await;
    node.until_pod("oom", "Failed ready=False c=OOMKilled(137)")
        .await;
}

/// The names of the images in the status of a node.
async fn image_names(node: &RealNode) -> Vec<String> {
    let object = node.cluster.object(&NODES, node.name).await;
    let images = object["status"]["images"].list().iter();
    let names = images.flat_map(|image| image["names"].list());
    names.map(|name| name.str().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn images_are_pulled_with_the_secrets_of_the_pod() {
    let Some(node) = RealNode::start("real-i", 9).await else {
        return;
    };
    let Some(registry) = Registry::start(&node.containerd).await else {
        return;
    };
    registry.push("team/app", "1").await;
    let image = registry.name("team/app:1");
    let spec = |secrets: &str| {
        format!(
            "imagePullSecrets: [{secrets}], containers: [{{name: c, image: '{image}', command: [sleep, '1000']}}]"
        )
    };
    node.run("without", &spec("")).await;
    node.run(
        "with",
        &spec("{name: wrong}, {name: missing}, {name: right}"),
    )
    .await;
    let secret = async |name: &str, password: &str| {
        let auth = STANDARD.encode(format!("{}:{password}", USER.0));
        let text = format!(
            r#"{{"auths":{{"http://{}":{{"auth":"{auth}"}}}}}}"#,
            registry.host()
        );
        let data = STANDARD.encode(text);
        let secret = format!(
            "{{metadata: {{name: {name}}}, type: kubernetes.io/dockerconfigjson, data: {{.dockerconfigjson: {data}}}}}"
        );
        create(&node.cluster, &SECRETS, &secret).await;
    };
    let refused = async |name: &str| {
        node.until(&format!("{name} is refused"), async |node| {
            let events = events_of(&node.cluster, name).await;
            let text = events.join("\n");
            // containerd 1.6 and 2 say it differently.
            let reasons = ["401 Unauthorized", "no basic auth credentials"];
            let is_refused = reasons.iter().any(|reason| text.contains(reason));
            text.contains("Failed to pull image") && is_refused
        })
        .await;
    };
    refused("with").await;
    refused("without").await;
    // The next pull tries all that are there by then, in turn.
    secret("wrong", "other").await;
    secret("right", USER.1).await;
    node.until_pod("with", "Running ready=True c=running").await;
    let events = events_of(&node.cluster, "with").await;
    for expected in [
        "Warning FailedToRetrieveImagePullSecret  Unable to retrieve some image pull secrets (wrong, missing, right); \
         attempting to pull the image may not succeed.",
        "Warning FailedToRetrieveImagePullSecret  Unable to retrieve some image pull secrets (missing); attempting to \
         pull the image may not succeed.",
        &format!("Normal Pulled spec.containers{{c}} Successfully pulled image \"{image}\" in "),
    ] {
        assert!(
            events.iter().any(|event| event.starts_with(expected)),
            "{expected}: {events:#?}"
        );
    }
    node.until("the image is in the status of the node", async |node| {
        image_names(node).await.contains(&image)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_are_rotated_and_read_whole() {
    let housekeeping = Housekeeping {
        container_log: ContainerLogPolicy {
            max_size: Some(500),
            max_files: 50,
            interval: Duration::from_millis(200),
        },
        ..Housekeeping::default()
    };
    let Some(node) = RealNode::start_with(control_plane(), "real-j", 10, housekeeping).await else {
        return;
    };
    let spec =
        container("command: [sh, -c, 'for i in $(seq 80); do echo line $i; sleep 0.05; done']");
    node.run("web", &format!("restartPolicy: Never, {spec}"))
        .await;
    let pod = node.until_pod("web", "c=running").await;
    let whole: String = (1..=80).map(|i| format!("line {i}\n")).collect();
    assert_eq!(node.log("web", "?follow=true").await, whole);
    node.until_pod("web", "Succeeded").await;
    assert_eq!(node.log("web", "").await, whole);
    let tail = node.log("web", "?tailLines=50").await;
    assert_eq!(
        tail,
        whole
            .lines()
            .skip(30)
            .map(|line| format!("{line}\n"))
            .collect::<String>()
    );
    let dir = node.containerd.path("pod-logs");
    let dir = dir.join(format!("default_web_{}", pod.uid())).join("c");
    let files = std::fs::read_dir(dir).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let names: Vec<String> = names.collect();
    assert!(names.contains(&"0.log".to_owned()), "{names:?}");
    assert!(names.iter().any(|name| name.ends_with(".gz")), "{names:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn unused_images_are_collected_when_the_disk_is_full() {
    let housekeeping = Housekeeping {
        image_gc: ImageGcPolicy {
            high_threshold_percent: 0,
            low_threshold_percent: 0,
            min_age: Duration::ZERO,
            max_age: Duration::ZERO,
        },
        ..Housekeeping::default()
    };
    let Some(mut node) = RealNode::start_with(control_plane(), "real-k", 11, housekeeping).await
    else {
        return;
    };
    let client = CriClient::connect(&node.containerd.endpoint())
        .await
        .unwrap();
    let has = async |image: &str| {
        let image = Some(ImageSpec {
            image: image.into(),
            ..ImageSpec::default()
        });
        let verbose = false;
        let status = client.call(ImageStatusRequest { image, verbose }).await;
        status.unwrap().image.is_some()
    };
    node.containerd.import_of(&["mizzen.test/other:1"], "other");
    image_volumes::import(&node.containerd, "mizzen.test/data:1").await;
    let record = image_access::record_of_gone_image(&node.containerd.path("node"));
    node.run_with_image("web", "reference: 'mizzen.test/data:1'", "")
        .await;
    node.until_pod("web", "ready=True c=running").await;
    // Images are collected when an agent starts, and later from time to time.
    node.run_agent().await;
    node.until("the image is removed", async |_| {
        !has("mizzen.test/other:1").await
    })
    .await;
    // Both names are of the image of sandboxes, which stays.
    assert!(has(PAUSE).await && has(BUSYBOX).await);
    node.until(
        "the record of an image that has gone is removed",
        async |_| !record.exists(),
    )
    .await;
    // No container has it, but a volume.
    assert!(has("mizzen.test/data:1").await);
    node.until("the node has said that the disk is full", async |node| {
        let events = events_of(&node.cluster, node.name).await;
        let said = "Warning FreeDiskSpaceFailed  Insufficient free disk space";
        events.iter().any(|event| event.starts_with(said))
    })
    .await;
}
