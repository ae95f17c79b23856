//! The container runtime interface: the agent decides what runs, a runtime runs it and reports its
//! status.
//!
//! [`Simulated`] runs nothing, but reports as if it did: it knows when a status changes
//! ([`ContainerStatus::changes_at`]). A runtime with processes does not. It works in the background
//! and answers from what it has seen: "pending" is an answer to everything that takes time
//! ([`SandboxState`], [`ImageState`], [`ContainerPhase::Creating`], a probe without a result). When
//! it has another answer, it wakes the agent ([`ContainerRuntime::on_change`]), which syncs the pod
//! and asks again. So one pod worker drives both, and neither waits for the other.
//!
//! Invariant: only streams wait ([`ContainerRuntime::exec`], [`ContainerRuntime::attach`],
//! [`ContainerRuntime::connect`]).
//!
//! Invariant: answers are idempotent. A question that is asked again, because a sync is repeated
//! for another reason, starts nothing twice.

mod exec;
mod exec_script;
mod http;
pub(crate) mod plain;
mod simulated;
pub(crate) mod terminal;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use mizzen_sdk::Key;
use mizzen_sdk::dynamic::DynamicClient;
use mizzen_sdk::event::Note;
use mizzen_sdk::metrics::Families;
use mizzen_value::{Str, Value};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;

pub use simulated::Simulated;

use crate::moment::Moment;
use crate::pod::env_file::VolumeText;
use crate::pod::inputs::{Inputs, NodeContext, VolumeContents};
use crate::pod::references::Contents;
pub use crate::shell::ContainerEnvironment;
use crate::stats::StatsProvider;

/// The role of a container in its pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContainerRole {
    /// Runs before the regular containers, and must complete.
    Init,
    /// A restartable init container: it starts before the regular containers and runs beside them.
    Sidecar,
    /// Runs the workload.
    Regular,
    /// An ephemeral container, for debugging.
    Ephemeral,
}

/// The configuration of a container to start.
pub struct ContainerConfig<'a> {
    /// The pod.
    pub pod: &'a Value,
    /// The container's specification.
    pub container: &'a Value,
    /// Its role in the pod.
    pub role: ContainerRole,
    /// The restart count.
    pub n_restarts: u32,
    /// When it started, if it runs already because the agent was restarted.
    pub since: Option<Moment>,
    /// Its inputs beside the specification.
    pub inputs: &'a Inputs,
    /// What its node adds.
    pub node: NodeContext<'a>,
}

/// One instance of a container.
#[derive(Clone, Copy)]
pub struct ContainerLife<'a> {
    /// The pod.
    pub pod: &'a Value,
    /// The container's specification.
    pub container: &'a Value,
    /// When it started.
    pub since: Moment,
    /// Its inputs beside the specification.
    pub inputs: &'a Inputs,
    /// What its node added.
    pub node: NodeContext<'a>,
}

/// Wakes the agent: the pod is synced.
pub type Wake = Arc<dyn Fn(Key) + Send + Sync>;

/// A container runtime.
pub trait ContainerRuntime: Send + Sync {
    /// Its name and version for `nodeInfo.containerRuntimeVersion`.
    fn version(&self) -> String;

    /// Whether containers are processes. Then they get their whole environment and their volumes,
    /// pods get their address from the runtime, and after a restart of the agent the runtime knows
    /// better than the status of a pod what runs ([`ContainerRuntime::find`]).
    fn runs_processes(&self) -> bool {
        false
    }

    /// Works in the background until the future is dropped.
    fn run(&self) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }

    /// Sets the function to call when an answer about a pod has changed, other than by time.
    fn on_change(&self, _wake: Wake) {}

    /// Whether containers can run now, for the condition Ready of the node.
    fn health(&self) -> Result<(), String> {
        Ok(())
    }

    /// The machine on which containers run; `None` if there is none.
    fn machine(&self) -> Option<MachineInfo> {
        None
    }

    /// Sets the client with which the runtime reads objects, as the node.
    fn set_api(&self, _api: DynamicClient) {}

    /// The range of addresses of the node's pods is known.
    fn set_pod_cidr(&self, _pod_cidr: &str) {}

    /// Sets what is allocatable to the pods of the node, and what they may use together before they
    /// are evicted.
    fn set_allocatable(&self, _allocatable: &Value, _before_eviction: &Value) {}

    /// The fields of a KubeletConfiguration that the runtime decides.
    fn configuration(&self) -> Value {
        Value::object()
    }

    /// Adds the results of probes to a scrape.
    fn collect_probes(&self, _families: &mut Families) {}

    /// What measures the node and its pods; `None` if nothing can be measured.
    fn stats(&self) -> Option<Arc<dyn StatsProvider>> {
        None
    }

    /// Only pods with these UIDs are on the node: removes all other ones that it finds.
    fn remove_orphans(&self, _uids: &[Str]) {}

    /// Whether it can run a pod.
    fn accepts(&self, pod: &Value) -> Result<(), Unacceptable>;

    /// Ensures that a pod has its volumes and its sandbox.
    fn sandbox(&self, _pod: &Value, _volumes: &dyn Fn() -> VolumeContents) -> SandboxState {
        SandboxState::Ready { addresses: None }
    }

    /// Whether a pod has a sandbox, or one is being made. Without one its containers have ended.
    fn has_sandbox(&self, _pod: &Value) -> bool {
        true
    }

    /// Sets the limits of a pod, of which no running container has to be resized, to its resources.
    fn resize_pod(&self, _pod: &Value) -> ResizeProgress {
        ResizeProgress::Done
    }

    /// The files of a pod's volumes may have changed.
    fn update_volumes(&self, _pod: &Value, _volumes: VolumeContents) {}

    /// A file of a volume that was set up, by its path in the volume.
    fn volume_text(&self, _pod: &Value, _volume: &str, _path: &str) -> io::Result<VolumeText> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// The directory of volumes that the node makes for claims; `None` if it makes none.
    fn volume_directory(&self) -> Option<PathBuf> {
        None
    }

    /// Stops the sandbox of a pod of which no container runs; true once it has stopped.
    fn stop_sandbox(&self, _pod: &Value) -> bool {
        true
    }

    /// Removes what is left of a pod that has been deleted.
    fn remove_pod(&self, _uid: &str) {}

    /// The Events about a pod since the last call.
    fn take_events(&self, _pod: &Value) -> Vec<Note> {
        Vec::new()
    }

    /// Ensures that a container's image is present.
    fn image(&self, _request: &ImageRequest) -> ImageState {
        ImageState::Present { message: None }
    }

    /// The images on the node, for its status; null if they are not known.
    fn images(&self) -> Value {
        Value::Null
    }

    /// Removes what no pod needs from the disk: dead containers and unused images.
    fn reclaim_disk(&self) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }

    /// What it can do; `None` if it can do all.
    fn features(&self) -> Option<RuntimeFeatures> {
        None
    }

    /// The Events about the node since the last call.
    fn take_node_events(&self) -> Vec<Note> {
        Vec::new()
    }

    /// The latest instance of a container that was there before the agent started; `None` if there
    /// is none, or if the status of the pod is all that is known.
    fn find(&self, _pod: &Value, _container: &str, _now: Moment) -> Option<FoundContainer> {
        None
    }

    /// Starts a container, or attaches to the one that runs already.
    fn start(&self, config: &ContainerConfig, now: Moment) -> Box<dyn ContainerHandle>;

    /// Whether a container may read files of its volumes, so that their sources must be read.
    fn reads_files(&self, _container: &Value) -> bool {
        true
    }

    /// The log lines of an instance up to `now`, oldest first.
    fn logs(&self, life: &ContainerLife, now: Moment) -> Vec<LogLine>;

    /// The output of an instance from `from` up to `now`. A later result begins with the earlier
    /// ones.
    fn output(&self, life: &ContainerLife, from: Moment, now: Moment) -> Vec<Chunk>;

    /// The usage of a running container from `from`, not before its start, to `to`; `None` if it is
    /// not known.
    fn usage(&self, life: &ContainerLife, from: Moment, to: Moment) -> Option<ContainerUsage>;

    /// Runs a command in a running container. The future returns the exit code, or why the command
    /// could not start. Dropping it ends the command.
    fn exec(&self, exec: Exec, stdio: Stdio) -> BoxFuture<'static, Result<i64, String>>;

    /// Attaches to the process of a running container, until it exits or the client leaves. Called
    /// only if [`ContainerRuntime::runs_processes`]; otherwise the output of a container is known.
    fn attach(&self, _attach: Attach, _stdio: Stdio) -> BoxFuture<'static, Result<i64, String>> {
        Box::pin(std::future::ready(Err("there is no process".into())))
    }

    /// The log file of the container of an ID, in the format of the container runtime interface;
    /// `None` if [`ContainerRuntime::logs`] has the lines.
    fn log_file(&self, _pod: &Value, _container: &str, _id: &str) -> Option<PathBuf> {
        None
    }

    /// Connects to a port of a pod, from inside.
    fn connect(
        &self,
        pod: &Value,
        port: u16,
    ) -> BoxFuture<'static, io::Result<Box<dyn PodConnection>>>;
}

/// The resource usage of a container over some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContainerUsage {
    /// The CPU time on all cores together.
    pub cpu_time: Duration,
    /// The working set at the end.
    pub memory_bytes: u64,
}

/// A machine, for the status of its node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MachineInfo {
    /// The version of the kernel.
    pub kernel_version: String,
    /// The name of the operating system.
    pub os_image: String,
    /// The ID of the machine.
    pub machine_id: String,
    /// The ID of its last start.
    pub boot_id: String,
}

/// What a runtime can do, for the status of its node and its pods.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuntimeFeatures {
    /// Whether it has `supplementalGroupsPolicy`; `None` if it does not say.
    pub supplemental_groups_policy: Option<bool>,
    /// Its handlers; empty if it does not say.
    pub handlers: Vec<RuntimeHandler>,
}

/// A handler of a runtime.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuntimeHandler {
    /// Its name; empty for the default one.
    pub name: String,
    /// Whether it makes all mounts below a read-only one read-only.
    pub recursive_read_only: bool,
    /// Whether its pods can have user namespaces.
    pub user_namespaces: bool,
}

impl RuntimeFeatures {
    /// Whether pods of a handler can have user namespaces.
    pub fn user_namespaces(&self, handler: &str) -> bool {
        let mut handlers = self.handlers.iter();
        handlers.any(|known| known.name == handler && known.user_namespaces)
    }

    /// Whether the default handler makes all mounts below a read-only one read-only.
    pub fn recursive_read_only(&self) -> bool {
        let mut default = self.handlers.iter().filter(|it| it.name.is_empty());
        default.next().is_some_and(|it| it.recursive_read_only)
    }
}

/// Why a runtime cannot run a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unacceptable {
    /// The reason in the pod's status.
    pub reason: &'static str,
    /// The message.
    pub message: String,
}

/// The sandbox of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SandboxState {
    /// It is being created, or will be.
    Pending,
    /// Containers can start.
    Ready {
        /// The pod's addresses, if the runtime assigns them; none on the host network.
        addresses: Option<Vec<Str>>,
    },
}

/// What an image is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageUser<'a> {
    /// The container with this name.
    Container(&'a str),
    /// The volume with this name.
    Volume(&'a str),
}

/// The image that a container or a volume needs.
pub struct ImageRequest<'a> {
    /// The pod.
    pub pod: &'a Value,
    /// What it is for.
    pub user: ImageUser<'a>,
    /// The name of the image.
    pub image: &'a str,
    /// The pull policy.
    pub policy: &'a str,
    /// The failed pulls before.
    pub n_tries: u32,
    /// The Secrets of `imagePullSecrets` that exist.
    pub pull_secrets: Vec<Arc<Contents>>,
}

/// The image of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageState {
    /// It is not known yet whether it must be pulled.
    Pending,
    /// It is being pulled.
    Pulling,
    /// It is on the node.
    Present {
        /// The message of the Event Pulled; `None` if it was there before.
        message: Option<String>,
    },
    /// It cannot be had now.
    Failed {
        /// `ErrImagePull`, `ErrImageNeverPull` or another reason of a waiting container.
        reason: &'static str,
        /// Why.
        message: String,
    },
}

/// A container that was there before the agent started.
#[derive(Debug, Clone, PartialEq)]
pub struct FoundContainer {
    /// The restart count.
    pub n_restarts: u32,
    /// Its ID, with the scheme.
    pub id: Str,
    /// Running or ended.
    pub state: ContainerPhase,
    /// Its image by digest.
    pub image_id: Str,
    /// Its user, as a status has it; null if it is not known.
    pub user: Value,
    /// The previous instance: its ID and its end.
    pub last: Option<(Str, Termination)>,
    /// Whether it was in a sandbox before the current one.
    pub is_of_old_sandbox: bool,
}

/// An attachment to a container.
pub struct Attach {
    /// The container ID, with the scheme.
    pub id: String,
    /// Whether the container has a terminal.
    pub tty: bool,
    /// Whether the input of the container ends with that of its first client.
    pub stdin_once: bool,
}

/// A command to run in a container.
pub struct Exec {
    /// The pod.
    pub pod: Value,
    /// The name of the container.
    pub container: String,
    /// The container ID, with the scheme.
    pub id: String,
    /// The environment of the command.
    pub environment: ContainerEnvironment,
    /// The command and its arguments.
    pub command: Vec<String>,
    /// The clock.
    pub now: Arc<dyn Fn() -> Moment + Send + Sync>,
}

/// The streams of a command, as far as they are requested. Both outputs end when they are dropped.
pub struct Stdio {
    /// Input, until the client closes its side.
    pub stdin: Option<mpsc::Receiver<Bytes>>,
    /// The standard output.
    pub stdout: Option<mpsc::Sender<Bytes>>,
    /// The standard error.
    pub stderr: Option<mpsc::Sender<Bytes>>,
    /// Whether the client has a terminal.
    pub tty: bool,
    /// The sizes of the terminal, as the client sends them: `{"Width":80,"Height":24}`.
    pub resize: Option<mpsc::Receiver<Bytes>>,
}

impl Stdio {
    /// The next input; `None` when the client closes its side, pending for ever after that.
    pub async fn read(&mut self) -> Option<Bytes> {
        let Some(stdin) = &mut self.stdin else {
            return std::future::pending().await;
        };
        let data = stdin.recv().await;
        if data.is_none() {
            self.stdin = None;
        }
        data
    }
}

/// A connection to a port of a pod.
pub trait PodConnection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> PodConnection for T {}

/// A container that was started.
pub trait ContainerHandle: Send + Sync {
    /// Its current status.
    fn status(&self, now: Moment) -> ContainerStatus;

    /// Sends SIGTERM at `ask` and SIGKILL at `kill`. If it is called again, the earlier times
    /// count.
    fn stop(&mut self, stop: StopTimes);

    /// Runs the preStop hook of a container that is stopped later, at `kill` by itself. A runtime
    /// without processes has nothing to do. If it is called again, the earlier time counts.
    fn prepare_stop(&mut self, _stop: StopTimes) {}

    /// Updates the inputs of the container: its files, or its stdin.
    fn update(&mut self, config: &ContainerConfig);

    /// Changes its resources while it runs, to those of `config`.
    fn resize(&mut self, _config: &ContainerConfig) -> ResizeProgress {
        ResizeProgress::Done
    }

    /// Gives it up while it is being created. False if it may start nevertheless: then its status says
    /// what has become of it.
    fn cancel(&mut self) -> bool {
        true
    }

    /// The Events about the container since the last call.
    fn take_events(&mut self) -> Vec<Note> {
        Vec::new()
    }

    /// The result of a probe that is due at a moment, which may be in the past; `None` while it
    /// runs.
    fn probe(&self, probe: ProbeType, config: &ContainerConfig, at: Moment) -> Option<ProbeResult>;

    /// The result that a probe would have now, if that is known without running it.
    fn foresee_probe(
        &self,
        _probe: ProbeType,
        _config: &ContainerConfig,
        _now: Moment,
    ) -> Option<ProbeResult> {
        None
    }
}

/// The progress of a resize.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResizeProgress {
    /// The container has its resources.
    Done,
    /// They are being changed.
    InProgress,
    /// They could not be changed, which is tried again.
    Failed(String),
}

/// When a container is stopped.
#[derive(Debug, Clone, Copy)]
pub struct StopTimes {
    /// The current time.
    pub now: Moment,
    /// When SIGTERM is due, after a preStop hook that sleeps. A runtime with processes runs the
    /// hook itself.
    pub term: Moment,
    /// When it is killed.
    pub kill: Moment,
}

/// The status of a container.
#[derive(Debug, Clone, PartialEq)]
pub struct ContainerStatus {
    /// Its state.
    pub state: ContainerPhase,
    /// Readiness as the runtime knows it.
    pub usable: bool,
    /// Whether the runtime stops it, because its postStart hook has failed.
    pub has_failed_hook: bool,
    /// When the status changes next by itself; `None` if that is not known.
    pub changes_at: Option<Moment>,
    /// The container ID, with the scheme; empty if it is made up or not known yet.
    pub id: Str,
    /// The image by digest; empty if it is made up or not known yet.
    pub image_id: Str,
    /// The user as a status has it, null if it is not known; `None` if it is made up.
    pub user: Option<Value>,
}

/// The state of a container.
#[derive(Debug, Clone, PartialEq)]
pub enum ContainerPhase {
    /// It is being created.
    Creating,
    /// It runs.
    Running {
        /// When it started.
        since: Moment,
    },
    /// It has exited.
    Ended(Termination),
    /// It could not be created.
    Failed {
        /// The reason: `CreateContainerError` or another one.
        reason: Str,
        /// The message.
        message: String,
    },
}

/// The termination of a container.
#[derive(Debug, Clone, PartialEq)]
pub struct Termination {
    /// When it started; `None` if it never did.
    pub started: Option<Moment>,
    /// When it exited.
    pub finished: Option<Moment>,
    /// The exit code.
    pub code: i64,
    /// The reason.
    pub reason: Str,
    /// The termination message.
    pub message: Str,
}

/// The type of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProbeType {
    /// `startupProbe`.
    Startup,
    /// `readinessProbe`.
    Readiness,
    /// `livenessProbe`.
    Liveness,
}

/// The result of a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeResult {
    /// Whether it succeeded.
    pub good: bool,
    /// Whether the container could not be probed. Then the results before it stand.
    pub is_unknown: bool,
    /// Whether the result stays until [`ContainerStatus::changes_at`] or until the pod changes.
    pub steady: bool,
    /// Whether the result depends on the current pod, whatever moment was probed.
    pub is_of_pod: bool,
    /// Whether it took time: then probes that were due meanwhile are left out.
    pub is_measured: bool,
    /// The output of the probe, if it is known.
    pub output: Option<String>,
}

/// A chunk of output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Whether it was written to stderr; never with a terminal.
    pub is_error: bool,
    /// The text.
    pub text: String,
}

/// A log line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// When it was written.
    pub at: Moment,
    /// Without the end of line.
    pub text: String,
}
