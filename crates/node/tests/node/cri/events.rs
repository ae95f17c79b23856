//! A runtime with a stream of events. The runtime is made up, because that of a distribution may have no events.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use futures_util::stream;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::Frame;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use mizzen_cri::messages::{
    Container, ContainerConfig, ContainerEventResponse, ContainerEventType, ContainerState,
    ContainerStatus, ContainerStatusRequest, ContainerStatusResponse, CreateContainerRequest,
    CreateContainerResponse, Empty, Image, ImageStatusResponse, ListContainersResponse,
    ListImagesResponse, ListPodSandboxResponse, NamespaceOption, PodSandbox, PodSandboxConfig,
    PodSandboxNetworkStatus, PodSandboxState, PodSandboxStatus, PodSandboxStatusResponse,
    PullImageResponse, RemoveContainerRequest, RemovePodSandboxRequest, RunPodSandboxRequest,
    RunPodSandboxResponse, RuntimeCondition, RuntimeHandler, RuntimeHandlerFeatures, RuntimeStatus,
    StartContainerRequest, StatusResponse, StopContainerRequest, StopPodSandboxRequest,
    VersionResponse,
};
use mizzen_node::Options;
use mizzen_node::cri::{CriOptions, CriRuntime, Housekeeping};
use mizzen_sdk::Key;
use mizzen_sdk::resource::{NODES, PODS};
use mizzen_testing::Cluster;
use parking_lot::Mutex;
use prost::Message;
use tempfile::TempDir;
use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::{PATIENCE, control_plane};
use crate::fixtures::{create, get_pod, show};

/// How many events a client may leave unread.
const MAX_EVENTS: usize = 4096;

/// A container runtime without containers.
#[derive(Clone, Default)]
pub(super) struct MadeUpRuntime(pub(super) Arc<Mutex<State>>);

/// How a call fails.
#[derive(Clone, Copy)]
pub(super) enum Failure {
    /// It has no effect.
    Refused,
    /// It has its effect, and the client does not learn it.
    ResponseLost,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) sandboxes: BTreeMap<String, PodSandbox>,
    pub(super) containers: BTreeMap<String, (Container, ContainerStatus)>,
    /// The failures of the next calls of methods.
    pub(super) failures: Vec<(&'static str, Failure)>,
    /// The streams of events.
    streams: Vec<mpsc::Sender<ContainerEventResponse>>,
    refuses_streams: bool,
    /// Whether lists say that all containers run.
    hides_exits: bool,
    has_no_network: bool,
    /// The configuration of the runtime, as containerd 1 shows it.
    pub(super) config: String,
    /// What sandboxes were made with, oldest first.
    pub(super) sandbox_configs: Vec<PodSandboxConfig>,
    /// What containers were made with, oldest first.
    pub(super) container_configs: Vec<ContainerConfig>,
    /// Whether pods can have user namespaces.
    pub(super) has_user_namespaces: bool,
    /// Whether images cannot be looked at.
    pub(super) hides_images: bool,
    /// How often each method was called.
    calls: HashMap<String, usize>,
}

/// A message in the framing of gRPC.
fn frame(message: &impl Message) -> Bytes {
    let text = message.encode_to_vec();
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(text.len() as u32);
    frame.put_slice(&text);
    frame.freeze()
}

type Body = BoxBody<Bytes, Infallible>;

fn status(code: &'static str) -> Frame<Bytes> {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static(code));
    Frame::trailers(trailers)
}

const INVALID_ARGUMENT: &str = "3";
const NOT_FOUND: &str = "5";
const ALREADY_EXISTS: &str = "6";
const UNIMPLEMENTED: &str = "12";
const UNAVAILABLE: &str = "14";

fn respond(message: Result<Bytes, &'static str>) -> Body {
    let frames = match message {
        Ok(message) => vec![Frame::data(message), status("0")],
        Err(code) => vec![status(code)],
    };
    let frames = frames.into_iter().map(Ok::<_, Infallible>);
    BodyExt::boxed(StreamBody::new(stream::iter(frames)))
}

impl MadeUpRuntime {
    fn serve(&self, socket: PathBuf) {
        let (listener, runtime) = (UnixListener::bind(socket).unwrap(), self.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let runtime = runtime.clone();
                tokio::spawn(async move {
                    let service = service_fn(|request: Request<Incoming>| {
                        let runtime = runtime.clone();
                        async move { Ok::<_, Infallible>(runtime.handle(request).await) }
                    });
                    let _ = http2::Builder::new(TokioExecutor::new())
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
    }

    async fn handle(&self, request: Request<Incoming>) -> Response<Body> {
        let method = request.uri().path().rsplit('/').next().unwrap().to_owned();
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let message = body.slice(5..);
        *self.0.lock().calls.entry(method.clone()).or_default() += 1;
        let body = match (method.as_str(), self.next_failure(&method)) {
            ("GetContainerEvents", _) => self.stream(),
            (method, None) => respond(self.answer(method, message)),
            (method, Some(failure)) => {
                if matches!(failure, Failure::ResponseLost) {
                    self.answer(method, message).unwrap();
                }
                respond(Err(UNAVAILABLE))
            }
        };
        let response = Response::builder().header("content-type", "application/grpc");
        response.body(body).unwrap()
    }

    fn next_failure(&self, method: &str) -> Option<Failure> {
        let failures = &mut self.0.lock().failures;
        let at = failures.iter().position(|(of, _)| *of == method)?;
        Some(failures.remove(at).1)
    }

    fn stream(&self) -> Body {
        let mut state = self.0.lock();
        if state.refuses_streams {
            return respond(Err(UNIMPLEMENTED));
        }
        let (sender, receiver) = mpsc::channel(MAX_EVENTS);
        state.streams.push(sender);
        let events = stream::unfold(receiver, |mut receiver| async move {
            let event: ContainerEventResponse = receiver.recv().await?;
            Some((Ok::<_, Infallible>(Frame::data(frame(&event))), receiver))
        });
        BodyExt::boxed(StreamBody::new(events))
    }

    fn answer(&self, method: &str, message: Bytes) -> Result<Bytes, &'static str> {
        let state = &mut *self.0.lock();
        let n_before = state.calls[method] - 1;
        Ok(match method {
            "Version" => frame(&VersionResponse {
                runtime_name: "made-up".into(),
                runtime_api_version: "v1".into(),
                ..VersionResponse::default()
            }),
            "Status" => {
                let network = RuntimeCondition {
                    r#type: "NetworkReady".into(),
                    status: !state.has_no_network,
                    reason: "NetworkPluginNotReady".into(),
                    message: "cni plugin not initialized".into(),
                };
                let runtime = RuntimeCondition {
                    r#type: "RuntimeReady".into(),
                    status: true,
                    ..RuntimeCondition::default()
                };
                frame(&StatusResponse {
                    status: Some(RuntimeStatus {
                        conditions: vec![runtime, network],
                    }),
                    runtime_handlers: vec![RuntimeHandler {
                        name: String::new(),
                        features: Some(RuntimeHandlerFeatures {
                            user_namespaces: state.has_user_namespaces,
                            ..RuntimeHandlerFeatures::default()
                        }),
                    }],
                    info: [("config".to_owned(), state.config.clone())].into(),
                    ..StatusResponse::default()
                })
            }
            "RunPodSandbox" => {
                let config = RunPodSandboxRequest::decode(message)
                    .unwrap()
                    .config
                    .unwrap();
                state.sandbox_configs.push(config.clone());
                let id = format!("sandbox-{n_before}");
                let sandbox = PodSandbox {
                    id: id.clone(),
                    metadata: config.metadata,
                    labels: config.labels,
                    state: PodSandboxState::Ready as i32,
                    ..PodSandbox::default()
                };
                state.sandboxes.insert(id.clone(), sandbox);
                frame(&RunPodSandboxResponse { pod_sandbox_id: id })
            }
            "PodSandboxStatus" => frame(&PodSandboxStatusResponse {
                status: Some(PodSandboxStatus {
                    state: PodSandboxState::Ready as i32,
                    network: Some(PodSandboxNetworkStatus {
                        ip: "10.213.0.2".into(),
                        ..PodSandboxNetworkStatus::default()
                    }),
                    ..PodSandboxStatus::default()
                }),
            }),
            "ListPodSandbox" => frame(&ListPodSandboxResponse {
                items: state.sandboxes.values().cloned().collect(),
            }),
            "ListImages" => frame(&ListImagesResponse::default()),
            "PullImage" => frame(&PullImageResponse {
                image_ref: "image".into(),
            }),
            "ImageStatus" if state.hides_images => return Err(UNIMPLEMENTED),
            "ImageStatus" => frame(&ImageStatusResponse {
                image: Some(Image {
                    id: "image".into(),
                    ..Image::default()
                }),
                ..ImageStatusResponse::default()
            }),
            "CreateContainer" => {
                let request = CreateContainerRequest::decode(message).unwrap();
                let config = request.config.unwrap();
                state.container_configs.push(config.clone());
                // As containerd 2 (internal/cri/server/container_create.go, `sameUsernsConfig`).
                let sandbox = request.sandbox_config.unwrap().linux;
                let sandbox = sandbox.and_then(|it| it.security_context?.namespace_options);
                let linux = config.linux.clone();
                let own = linux.and_then(|it| it.security_context?.namespace_options);
                let users = |it: Option<NamespaceOption>| it.unwrap_or_default().userns_options;
                if users(sandbox).unwrap_or_default() != users(own).unwrap_or_default() {
                    return Err(INVALID_ARGUMENT);
                }
                let name = |it: &Container| (it.metadata.clone(), it.labels.clone());
                let wanted = (config.metadata.clone(), config.labels.clone());
                let mut known = state.containers.values();
                if known.any(|(known, _)| name(known) == wanted) {
                    return Err(ALREADY_EXISTS);
                }
                let id = format!("container-{n_before}");
                let container = Container {
                    id: id.clone(),
                    pod_sandbox_id: request.pod_sandbox_id,
                    metadata: config.metadata.clone(),
                    labels: config.labels,
                    ..Container::default()
                };
                let status = ContainerStatus {
                    id: id.clone(),
                    metadata: config.metadata,
                    created_at: 1,
                    ..ContainerStatus::default()
                };
                state.containers.insert(id.clone(), (container, status));
                frame(&CreateContainerResponse { container_id: id })
            }
            "StartContainer" => {
                let id = StartContainerRequest::decode(message).unwrap().container_id;
                let (_, status) = state.containers.get_mut(&id).ok_or(NOT_FOUND)?;
                status.state = ContainerState::Running as i32;
                status.started_at = 2;
                frame(&Empty {})
            }
            "StopContainer" => {
                let id = StopContainerRequest::decode(message).unwrap().container_id;
                let (_, status) = state.containers.get_mut(&id).ok_or(NOT_FOUND)?;
                status.state = ContainerState::Exited as i32;
                frame(&Empty {})
            }
            "StopPodSandbox" => {
                let id = StopPodSandboxRequest::decode(message).unwrap();
                let sandbox = state.sandboxes.get_mut(&id.pod_sandbox_id);
                sandbox.ok_or(NOT_FOUND)?.state = PodSandboxState::NotReady as i32;
                frame(&Empty {})
            }
            "RemovePodSandbox" => {
                let id = RemovePodSandboxRequest::decode(message).unwrap();
                state.sandboxes.remove(&id.pod_sandbox_id);
                frame(&Empty {})
            }
            "RemoveContainer" => {
                let id = RemoveContainerRequest::decode(message).unwrap();
                state.containers.remove(&id.container_id);
                frame(&Empty {})
            }
            "UpdateContainerResources" => frame(&Empty {}),
            "ContainerStatus" => {
                let id = ContainerStatusRequest::decode(message)
                    .unwrap()
                    .container_id;
                let (_, status) = state.containers.get(&id).ok_or(NOT_FOUND)?;
                frame(&ContainerStatusResponse {
                    status: Some(status.clone()),
                })
            }
            "ListContainers" => {
                let (hides_exits, containers) = (state.hides_exits, state.containers.values());
                let listed = containers.map(|(container, status)| Container {
                    state: match hides_exits {
                        true => ContainerState::Running as i32,
                        false => status.state,
                    },
                    ..container.clone()
                });
                frame(&ListContainersResponse {
                    containers: listed.collect(),
                })
            }
            _ => return Err(UNIMPLEMENTED),
        })
    }

    /// Ends a container; nothing is sent.
    fn exit(&self, id: &str) {
        let mut state = self.0.lock();
        let (_, status) = state.containers.get_mut(id).unwrap();
        status.state = ContainerState::Exited as i32;
        (status.finished_at, status.exit_code) = (3, 7);
    }

    fn send_stopped(&self, id: &str) {
        for stream in &self.0.lock().streams {
            let event = ContainerEventResponse {
                container_id: id.into(),
                container_event_type: ContainerEventType::Stopped as i32,
                ..ContainerEventResponse::default()
            };
            // The client may have left.
            let _ = stream.try_send(event);
        }
    }

    pub(super) fn n_calls(&self, method: &str) -> usize {
        self.0.lock().calls.get(method).copied().unwrap_or_default()
    }

    fn has_stream(&self) -> bool {
        !self.0.lock().streams.is_empty()
    }
}

/// A node on a made-up runtime.
pub(super) struct Node {
    pub(super) cluster: Cluster,
    pub(super) runtime: MadeUpRuntime,
    dir: TempDir,
}

impl Node {
    pub(super) async fn start(name: &'static str, runtime: MadeUpRuntime) -> Node {
        Node::start_on_bus(name, runtime, None).await
    }

    /// Starts one whose systemd is on a bus with this address.
    pub(super) async fn start_on_bus(
        name: &'static str,
        runtime: MadeUpRuntime,
        system_bus: Option<String>,
    ) -> Node {
        let dir = tempfile::tempdir().unwrap();
        runtime.serve(dir.path().join("runtime.sock"));
        let path = |name: &str| dir.path().join(name);
        std::fs::write(path("resolv.conf"), "nameserver 10.0.0.1\n").unwrap();
        let connected = CriRuntime::connect(CriOptions {
            endpoint: path("runtime.sock").display().to_string(),
            node: name.into(),
            root: path("node"),
            logs: path("logs"),
            network: path("cni"),
            resolver: Some(path("resolv.conf")),
            api_server: None,
            unsafe_sysctls: Vec::new(),
            system_bus,
            housekeeping: Housekeeping::default(),
        });
        let connected = connected.await.unwrap();
        let tune = move |options: &mut Options| {
            options.runtime = Arc::new(connected.clone());
            options.eviction.thresholds.clear();
            options.prefix = name.into();
            options.is_numbered = false;
        };
        let builder = control_plane().real_time().nodes(1).tune_nodes(tune);
        Node {
            cluster: builder.start().await,
            runtime,
            dir,
        }
    }

    /// The socket of the runtime.
    pub(super) fn endpoint(&self) -> String {
        self.dir.path().join("runtime.sock").display().to_string()
    }

    pub(super) async fn until(&self, what: &str, holds: impl AsyncFn(&Node) -> bool) {
        let began = Instant::now();
        while !holds(self).await {
            assert!(began.elapsed() < PATIENCE, "not in time: {what}");
            sleep(std::time::Duration::from_millis(20)).await;
        }
    }

    /// Runs a pod, whose first container is `container-0`.
    pub(super) async fn run_pod(&self, node: &str) {
        let pod = format!(
            "{{metadata: {{name: web}}, spec: {{nodeName: {node}, restartPolicy: Never, \
             containers: [{{name: c, image: a, imagePullPolicy: IfNotPresent}}]}}}}"
        );
        create(&self.cluster, &PODS, &pod).await;
        self.until_pod("ready=True c=running").await;
    }

    pub(super) async fn until_pod(&self, wanted: &str) {
        self.until(wanted, async |node| {
            show(&get_pod(&node.cluster, "web").await).contains(wanted)
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exit_is_seen_by_its_event_and_other_events_cost_nothing() {
    let runtime = MadeUpRuntime::default();
    runtime.0.lock().hides_exits = true;
    let node = Node::start("events-a", runtime).await;
    node.run_pod("events-a").await;
    node.until("there is a stream", async |node| node.runtime.has_stream())
        .await;
    let n_before = node.runtime.n_calls("Status");
    for _ in 0..1000 {
        node.runtime.send_stopped("container-of-another-program");
    }
    node.runtime.exit("container-0");
    node.runtime.send_stopped("container-0");
    // Lists do not say it.
    node.until_pod("Failed ready=False c=Error(7)").await;
    let n_calls = node.runtime.n_calls("Status") - n_before;
    assert!(n_calls < 100, "{n_calls} calls");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_breaks_is_replaced_by_lists() {
    let node = Node::start("events-b", MadeUpRuntime::default()).await;
    node.run_pod("events-b").await;
    node.until("there is a stream", async |node| node.runtime.has_stream())
        .await;
    {
        let mut state = node.runtime.0.lock();
        state.refuses_streams = true;
        state.streams.clear();
    }
    node.runtime.exit("container-0");
    node.until_pod("Failed ready=False c=Error(7)").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_with_events_that_becomes_ready_makes_its_node_ready() {
    let runtime = MadeUpRuntime::default();
    runtime.0.lock().has_no_network = true;
    let node = Node::start("events-c", runtime).await;
    let ready = async |node: &Node| {
        let client = node.cluster.dynamic_client();
        let found = client.find(&NODES, &Key::cluster("events-c")).await;
        let conditions = found
            .unwrap()
            .map(|node| node["status"]["conditions"].clone());
        let conditions = conditions.unwrap_or_default();
        let mut ready = conditions.list().iter();
        let ready = ready.find(|condition| condition["type"].str() == "Ready");
        ready.map_or(String::new(), |ready| ready["status"].str().to_owned())
    };
    node.until("the node is not ready", async |node| {
        node.runtime.has_stream() && ready(node).await == "False"
    })
    .await;
    node.runtime.0.lock().has_no_network = false;
    node.until("the node is ready", async |node| {
        ready(node).await == "True"
    })
    .await;
}
