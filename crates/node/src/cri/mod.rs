//! Real containers: a [`ContainerRuntime`] on the container runtime interface (CRI).
//!
//! | part | what it has |
//! |---|---|
//! | `config` | the configuration of sandboxes and containers, from a pod |
//! | `accept` | what is refused |
//! | `volumes` | volumes as directories |
//! | `sandbox` | the sandbox of a pod: created, stopped, removed |
//! | `image` | images by pull policy |
//! | `image_volume` | images as volumes |
//! | `pull_records`, `image_verification` | which pods may use an image that is there |
//! | `keyring` | the credentials of registries |
//! | `user_namespaces` | pods with users of their own |
//! | `container` | one instance of a container: created, started, stopped; its hooks |
//! | `prober` | probes and HTTP hooks |
//! | `http_action` | their HTTP requests |
//! | `relist` | what has changed in the runtime, by events and by lists |
//! | `adopt` | what was there before the agent started |
//! | `network` | the CNI configuration, where there is none |
//! | `resolver` | the DNS configuration of pods |
//! | `service_address` | the API server in pods |
//! | `housekeeping` | images, dead containers and logs, from time to time |
//! | `image_gc` | which images are collected |
//! | `container_gc` | which containers, sandboxes and directories are collected |
//! | `log_rotation` | logs by size |
//! | `log_links` | links to logs, for their collectors |
//! | `preflight` | what the machine lacks |
//! | `purge` | the removal of all that a node has made |
//! | `machine` | capacity and name of the machine |
//! | `cgroup`, `resources` | the cgroups of pods, and their limits |
//! | `cgroup_driver`, `slices` | what makes cgroups; those that systemd makes |
//! | `resize` | other limits for what runs |
//! | `stats` | the figures of the machine and its pods |
//! | `stream` | exec, attach and port-forward |
//!
//! Each task works for one pod and writes its result into the table of pods (`CriNode::pods`);
//! then it wakes the agent. No lock is held across a call.
//!
//! Invariant: a sandbox and its containers have the labels of their pod and of this node. With them
//! an agent finds them again, and never touches those of another program.

mod accept;
mod adopt;
mod cgroup;
mod cgroup_driver;
mod config;
mod container;
mod container_gc;
mod housekeeping;
mod http_action;
mod image;
mod image_gc;
mod image_verification;
mod image_volume;
mod keyring;
mod log_links;
pub(crate) mod log_rotation;
mod machine;
mod network;
mod preflight;
mod prober;
mod pull_records;
mod purge;
mod relist;
mod resize;
mod resolver;
mod resources;
mod sandbox;
mod service_address;
mod slices;
mod stats;
mod stream;
mod user_namespaces;
mod volumes;

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};

use accept::NodeSupport;
pub use accept::check_sysctl_pattern;
use futures_util::future::BoxFuture;
pub use housekeeping::Housekeeping;
pub use image_gc::ImageGcPolicy;
pub use image_verification::{ImageVerification, VerificationPolicy};
pub use log_rotation::ContainerLogPolicy;
use mizzen_component_helpers::pod_state::quality_of_service;
pub use mizzen_cri::ConnectError;
use mizzen_cri::CriClient;
use mizzen_cri::messages::{ContainerConfig as CriContainerConfig, Mount, PodSandboxConfig};
use mizzen_sdk::Key;
use mizzen_sdk::dynamic::DynamicClient;
use mizzen_sdk::event::Note;
use mizzen_sdk::metrics::Families;
use mizzen_value::quantity::{Quantity, QuantityFormat};
use mizzen_value::{Str, Value, value};
use parking_lot::Mutex;
pub use preflight::Unprepared;
pub use purge::{NodeTraces, PurgeError};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use crate::configuration::duration;
use crate::moment::Moment;
use crate::pod::env_file::VolumeText;
use crate::pod::inputs::VolumeContents;
use crate::runtime::{
    Attach, Chunk, ContainerConfig, ContainerHandle, ContainerLife, ContainerRuntime,
    ContainerUsage, Exec, FoundContainer, ImageRequest, ImageState, LogLine, MachineInfo,
    PodConnection, ProbeType, ResizeProgress, RuntimeFeatures, SandboxState, Stdio, Unacceptable,
    Wake,
};
use crate::stats::StatsProvider;
use cgroup::{CgroupDriver, Cgroups};
use config::NodePaths;
use container::{ContainerCell, CriContainer};
use image::{Pull, PullUser};
use image_gc::ImageRecords;
use image_volume::ImageMounter;
use prober::ProbeCounts;
use pull_records::PullRecords;
use resize::LatestResize;
use resources::MachineResources;
use sandbox::{Sandbox, SandboxPhase};
use service_address::{ServiceListener, service_address};
use stats::StatsCache;
use user_namespaces::UserNamespaces;
use volumes::VolumeState;

/// The configuration of a node with real containers.
#[derive(Debug, Clone)]
pub struct CriOptions {
    /// The socket of the runtime, such as `unix:///run/containerd/containerd.sock`.
    pub endpoint: String,
    /// The name of the node.
    pub node: String,
    /// The directory of pods: volumes and termination messages.
    pub root: PathBuf,
    /// The directory of logs.
    pub logs: PathBuf,
    /// The directory in which the runtime expects its CNI configuration.
    pub network: PathBuf,
    /// The resolv.conf for pods; `None` for that of the machine, or that of systemd-resolved where the
    /// machine has only an address of the loopback interface.
    pub resolver: Option<PathBuf>,
    /// Where the agent reaches the API server, such as `127.0.0.1:6443`, for clients in pods.
    pub api_server: Option<String>,
    /// The sysctls that pods may set besides the safe ones; with `*` at the end, prefixes.
    pub unsafe_sysctls: Vec<String>,
    /// The address of the D-Bus with systemd, which makes cgroups if the runtime has its driver; `None` for
    /// that of the system.
    pub system_bus: Option<String>,
    /// Limits of images, pulls and logs.
    pub housekeeping: Housekeeping,
}

/// A runtime with real containers. It is cheap to clone.
#[derive(Clone)]
pub struct CriRuntime(Arc<CriNode>);

/// What all tasks share.
pub(crate) struct CriNode {
    client: CriClient,
    node: String,
    paths: NodePaths,
    network: PathBuf,
    /// The range of the node's pods for which there is a CNI configuration.
    pod_cidr: Mutex<String>,
    /// Whether the runtime has the CNI plug-in `firewall`.
    has_firewall: bool,
    resolver: Option<PathBuf>,
    api_server: Option<String>,
    service_listener: tokio::sync::Mutex<ServiceListener>,
    unsafe_sysctls: Vec<String>,
    /// The client of the node.
    api: OnceLock<DynamicClient>,
    wake: OnceLock<Wake>,
    /// All pods that the runtime has or should have, by UID.
    pods: Mutex<HashMap<Str, PodRecord>>,
    health: Mutex<Result<(), String>>,
    features: Mutex<RuntimeFeatures>,
    image_mounter: ImageMounter,
    housekeeping: Housekeeping,
    /// The turns of pulls.
    pulls: Semaphore,
    /// The images that were pulled, and with which credentials.
    pull_records: Arc<PullRecords>,
    /// The images for the status of the node.
    images: Mutex<Value>,
    /// What is known of the images, while they are collected.
    image_records: tokio::sync::Mutex<ImageRecords>,
    /// The Events about the node since the last call.
    node_events: Mutex<Vec<Note>>,
    cgroups: Cgroups,
    user_namespaces: UserNamespaces,
    stats: StatsCache,
    machine: MachineResources,
    /// The memory that is allocatable to pods, in bytes; zero if it is not known yet.
    allocatable_memory: AtomicI64,
}

/// A pod in the runtime.
struct PodRecord {
    key: Key,
    sandbox: Sandbox,
    /// The instances of containers, oldest first.
    containers: Vec<Arc<ContainerCell>>,
    /// Pulls by what they are for.
    pulls: HashMap<PullUser, Pull>,
    /// The turns of its containers to mount images.
    image_mounts: Arc<tokio::sync::Mutex<()>>,
    events: Vec<Note>,
    resize: Arc<LatestResize>,
    volumes: Arc<Mutex<VolumeState>>,
    /// The results of probes, by container.
    probe_counts: HashMap<(Str, ProbeType), ProbeCounts>,
}

impl PodRecord {
    fn new(key: Key) -> PodRecord {
        PodRecord {
            key,
            sandbox: Sandbox::default(),
            containers: Vec::new(),
            pulls: HashMap::new(),
            image_mounts: Arc::default(),
            events: Vec::new(),
            resize: Arc::default(),
            volumes: Arc::default(),
            probe_counts: HashMap::new(),
        }
    }

    /// Whether the pod has ended: its sandbox is stopped after all containers.
    fn has_ended(&self) -> bool {
        matches!(self.sandbox.phase, SandboxPhase::Stopped { .. })
    }
}

impl CriRuntime {
    /// Whether this machine has what real containers need.
    pub async fn check(options: &CriOptions, is_root: bool) -> Result<(), Unprepared> {
        preflight::check(options, is_root).await
    }

    /// Connects to the runtime and finds the pods that it runs for this node.
    pub async fn connect(options: CriOptions) -> Result<CriRuntime, ConnectError> {
        let client = CriClient::connect(&options.endpoint).await?;
        let (driver, system_bus) = (CgroupDriver::of(&client).await, options.system_bus);
        let cgroups = spawn_blocking(move || Cgroups::detect(driver, system_bus));
        let cgroups = cgroups.await.expect("detecting cgroups does not panic");
        let image_mounter = ImageMounter::of(&client).await;
        let has_firewall = preflight::has_plugin(&client, network::FIREWALL).await;
        let verification = options.housekeeping.image_verification.clone();
        let pull_records = Arc::new(PullRecords::new(&options.root, verification));
        let paths = NodePaths {
            root: options.root,
            logs: options.logs,
        };
        let node = Arc::new(CriNode {
            client,
            node: options.node,
            user_namespaces: UserNamespaces::new(paths.pods()),
            paths,
            network: options.network,
            pod_cidr: Mutex::default(),
            has_firewall,
            resolver: options.resolver,
            api_server: options.api_server,
            service_listener: tokio::sync::Mutex::default(),
            unsafe_sysctls: options.unsafe_sysctls,
            api: OnceLock::new(),
            wake: OnceLock::new(),
            pods: Mutex::default(),
            health: Mutex::new(Ok(())),
            features: Mutex::default(),
            image_mounter,
            pulls: Semaphore::new(options.housekeeping.max_parallel_image_pulls.max(1)),
            housekeeping: options.housekeeping,
            pull_records,
            images: Mutex::new(Value::Null),
            image_records: tokio::sync::Mutex::default(),
            node_events: Mutex::default(),
            cgroups,
            stats: StatsCache::default(),
            machine: machine::resources(),
            allocatable_memory: AtomicI64::new(0),
        });
        if let Err(error) = purge::mark_root(&node.paths, &node.node) {
            let dir = node.paths.root.display();
            tracing::warn!(%error, %dir, "cannot write to the directory of the node");
        }
        node.recover_pull_records().await;
        // What is wrong with it is in the condition of the node.
        let _ = node.check_status().await;
        let adopted = node.adopt().await;
        adopted.map_err(|source| ConnectError::Call {
            endpoint: node.client.endpoint().into(),
            source,
        })?;
        Ok(CriRuntime(node))
    }

    /// The capacity of the machine.
    pub fn capacity(&self) -> Value {
        machine::capacity(&self.0.paths.root)
    }
}

impl CriNode {
    /// Syncs a pod.
    fn wake(&self, key: &Key) {
        if let Some(wake) = self.wake.get() {
            wake(key.clone());
        }
    }

    /// Changes the record of a pod, which is made if there is none.
    fn with_pod<T>(&self, pod: &Value, change: impl FnOnce(&mut PodRecord) -> T) -> T {
        let metadata = &pod["metadata"];
        let mut pods = self.pods.lock();
        let record = pods.entry(metadata["uid"].str().into());
        let key = || Key::new(metadata["namespace"].str(), metadata["name"].str());
        change(record.or_insert_with(|| PodRecord::new(key())))
    }

    /// Changes the record of a pod, unless it was removed, and syncs the pod.
    fn update_pod(&self, uid: &str, change: impl FnOnce(&mut PodRecord)) {
        let key = {
            let mut pods = self.pods.lock();
            let Some(record) = pods.get_mut(uid) else {
                return;
            };
            change(record);
            record.key.clone()
        };
        self.wake(&key);
    }

    /// The configuration of a pod's sandbox, in the cgroup of the pod, with its resources.
    fn sandbox_config(&self, pod: &Value, attempt: u32) -> PodSandboxConfig {
        let mut made = config::sandbox(pod, &self.node, attempt, &self.paths);
        if let Some(linux) = &mut made.linux {
            let uid = pod["metadata"]["uid"].str();
            linux.cgroup_parent = self.cgroups.pod_path(quality_of_service(pod), uid);
            let (resources, overhead) = resources::of_sandbox(pod, self.machine);
            (linux.resources, linux.overhead) = (Some(resources), Some(overhead));
        }
        made
    }

    /// The configuration of a container, with its limits.
    fn container_config(&self, config: &ContainerConfig, mounts: Vec<Mount>) -> CriContainerConfig {
        let mut made = config::container(config, &self.node, mounts, &self.paths);
        if let Some(linux) = &mut made.linux {
            let limits = resources::of_container(config.pod, config.container, self.machine);
            linux.resources = Some(limits);
        }
        made
    }

    /// The fields of KubeletConfiguration that say how this runtime is used.
    fn configuration(&self) -> Value {
        let (
            Housekeeping {
                image_gc,
                container_log,
                max_parallel_image_pulls,
                image_verification,
                ..
            },
            driver,
        ) = (&self.housekeeping, self.cgroups.driver());
        let max_size = match container_log.max_size {
            Some(bytes) => Quantity::from_int(bytes as i64, QuantityFormat::Binary).to_string(),
            None => "-1".into(),
        };
        let sysctls = self.unsafe_sysctls.iter();
        let exempt = image_verification.allowlist().iter();
        let mut configuration = value!({
            "containerRuntimeEndpoint": (self.client.endpoint()),
            "podLogsDir": (self.paths.logs.display().to_string()),
            "containerLogMaxSize": max_size,
            "containerLogMaxFiles": (container_log.max_files as i64),
            "containerLogMonitorInterval": (duration(container_log.interval)),
            "imageGCHighThresholdPercent": (image_gc.high_threshold_percent as i64),
            "imageGCLowThresholdPercent": (image_gc.low_threshold_percent as i64),
            "imageMinimumGCAge": (duration(image_gc.min_age)),
            "imageMaximumGCAge": (duration(image_gc.max_age)),
            "serializeImagePulls": (*max_parallel_image_pulls == 1),
            "maxParallelImagePulls": (*max_parallel_image_pulls as i64),
            "imagePullCredentialsVerificationPolicy": (image_verification.policy().name()),
            "preloadedImagesVerificationAllowlist": (exempt.map(Value::from).collect::<Vec<_>>()),
            "allowedUnsafeSysctls": (sysctls.map(|name| Value::from(name.as_str())).collect::<Vec<_>>()),
            "cgroupsPerQOS": true,
            "cgroupDriver": (driver.name()),
            "cpuCFSQuota": true,
        });
        if let Some(resolver) = &self.resolver {
            configuration.set("resolvConf", resolver.display().to_string());
        }
        configuration
    }

    /// The container ID in a status.
    fn full_id(&self, id: &str) -> Str {
        format!("{}://{id}", self.client.version().runtime_name).into()
    }
}

/// The ID without its scheme.
fn bare_id(id: &str) -> &str {
    id.split_once("://").map_or(id, |(_, id)| id)
}

impl ContainerRuntime for CriRuntime {
    fn version(&self) -> String {
        let version = self.0.client.version();
        format!("{}://{}", version.runtime_name, version.runtime_version)
    }

    fn runs_processes(&self) -> bool {
        true
    }

    fn machine(&self) -> Option<MachineInfo> {
        Some(machine::info())
    }

    fn run(&self) -> BoxFuture<'static, ()> {
        let node = self.0.clone();
        Box::pin(async move {
            tokio::join!(node.clone().follow_runtime(), node.keep_house());
        })
    }

    fn on_change(&self, wake: Wake) {
        // There is one agent.
        let _ = self.0.wake.set(wake);
    }

    fn health(&self) -> Result<(), String> {
        self.0.health.lock().clone()
    }

    fn set_pod_cidr(&self, pod_cidr: &str) {
        self.0.ensure_network(pod_cidr);
    }

    fn set_allocatable(&self, allocatable: &Value, before_eviction: &Value) {
        let memory = Quantity::parse_or_zero(allocatable["memory"].str()).value();
        self.0.allocatable_memory.store(memory, Ordering::Relaxed);
        match self.0.cgroups.driver() {
            CgroupDriver::Cgroupfs => self.0.cgroups.limit_all_pods(before_eviction),
            // It waits for systemd.
            CgroupDriver::Systemd => {
                let (node, allocatable) = (self.0.clone(), before_eviction.clone());
                drop(spawn_blocking(move || {
                    node.cgroups.limit_all_pods(&allocatable);
                }));
            }
        }
    }

    fn configuration(&self) -> Value {
        self.0.configuration()
    }

    fn collect_probes(&self, families: &mut Families) {
        self.0.collect_probes(families);
    }

    fn stats(&self) -> Option<Arc<dyn StatsProvider>> {
        Some(Arc::new(self.clone()))
    }

    fn remove_orphans(&self, uids: &[Str]) {
        let orphans: Vec<Str> = {
            let pods = self.0.pods.lock();
            let known = pods.keys().filter(|uid| !uids.contains(*uid));
            known.cloned().collect()
        };
        // The directory of an orphan is removed after its sandbox.
        let known = uids.iter().chain(&orphans).cloned().collect();
        for uid in &orphans {
            self.0.clone().remove_orphan(uid);
        }
        self.0.clone().remove_directories(known);
    }

    fn accepts(&self, pod: &Value) -> Result<(), Unacceptable> {
        let features = self.0.features.lock().clone();
        let has_images = !matches!(self.0.image_mounter, ImageMounter::None);
        let support = NodeSupport {
            unsafe_sysctls: &self.0.unsafe_sysctls,
            features: &features,
            has_images,
            has_apparmor: accept::has_apparmor(),
        };
        match accept::refusal(pod, &support) {
            None => Ok(()),
            Some(refusal) => Err(refusal),
        }
    }

    fn set_api(&self, api: DynamicClient) {
        // There is one agent.
        let _ = self.0.api.set(api);
    }

    fn sandbox(&self, pod: &Value, volumes: &dyn Fn() -> VolumeContents) -> SandboxState {
        self.0.ensure_sandbox(pod, volumes)
    }

    fn has_sandbox(&self, pod: &Value) -> bool {
        self.0.has_sandbox(pod)
    }

    fn resize_pod(&self, pod: &Value) -> ResizeProgress {
        self.0.resize_pod(pod)
    }

    fn update_volumes(&self, pod: &Value, volumes: VolumeContents) {
        self.0.clone().update_volumes(pod, volumes);
    }

    fn volume_text(&self, pod: &Value, volume: &str, path: &str) -> io::Result<VolumeText> {
        volumes::volume_text(pod, volume, path, &self.0.paths)
    }

    fn volume_directory(&self) -> Option<PathBuf> {
        Some(self.0.paths.root.join("volumes"))
    }

    fn stop_sandbox(&self, pod: &Value) -> bool {
        self.0.clone().stop_sandbox(pod)
    }

    fn remove_pod(&self, uid: &str) {
        self.0.clone().remove_pod(uid);
    }

    fn take_events(&self, pod: &Value) -> Vec<Note> {
        let uid = pod["metadata"]["uid"].str();
        let mut pods = self.0.pods.lock();
        let record = pods.get_mut(uid);
        record.map_or_else(Vec::new, |record| std::mem::take(&mut record.events))
    }

    fn image(&self, request: &ImageRequest) -> ImageState {
        self.0.clone().ensure_image(request)
    }

    fn images(&self) -> Value {
        self.0.images.lock().clone()
    }

    fn reclaim_disk(&self) -> BoxFuture<'static, ()> {
        Box::pin(self.0.clone().reclaim_disk())
    }

    fn features(&self) -> Option<RuntimeFeatures> {
        Some(self.0.features.lock().clone())
    }

    fn take_node_events(&self) -> Vec<Note> {
        std::mem::take(&mut *self.0.node_events.lock())
    }

    fn find(&self, pod: &Value, container: &str, now: Moment) -> Option<FoundContainer> {
        self.0.find_container(pod, container, now)
    }

    fn start(&self, config: &ContainerConfig, now: Moment) -> Box<dyn ContainerHandle> {
        let cell = match config.since {
            Some(_) => self.0.adopted_container(config),
            None => None,
        };
        if cell.is_some() {
            // The listener for its pod has ended with the agent that had started it.
            let (node, service) = (self.0.clone(), service_address(config.node.services()));
            tokio::spawn(async move { node.serve_api_again(service).await });
        }
        let cell = cell.unwrap_or_else(|| self.0.clone().start_container(config, now));
        Box::new(CriContainer::new(self.0.clone(), cell, config))
    }

    fn logs(&self, _life: &ContainerLife, _now: Moment) -> Vec<LogLine> {
        Vec::new()
    }

    fn output(&self, _life: &ContainerLife, _from: Moment, _now: Moment) -> Vec<Chunk> {
        Vec::new()
    }

    fn usage(&self, _life: &ContainerLife, _from: Moment, _to: Moment) -> Option<ContainerUsage> {
        None
    }

    fn exec(&self, exec: Exec, stdio: Stdio) -> BoxFuture<'static, Result<i64, String>> {
        Box::pin(self.0.clone().exec(exec, stdio))
    }

    fn attach(&self, attach: Attach, stdio: Stdio) -> BoxFuture<'static, Result<i64, String>> {
        Box::pin(self.0.clone().attach(attach, stdio))
    }

    fn log_file(&self, pod: &Value, container: &str, id: &str) -> Option<PathBuf> {
        self.0.log_file(pod, container, id)
    }

    fn connect(
        &self,
        pod: &Value,
        port: u16,
    ) -> BoxFuture<'static, io::Result<Box<dyn PodConnection>>> {
        Box::pin(
            self.0
                .clone()
                .connect(pod["metadata"]["uid"].str().into(), port),
        )
    }
}
