//! The container runtime interface: the agent decides what runs, a runtime runs it and reports its
//! status.
//!
//! [`Simulated`] runs nothing, but reports as if it did. A runtime with real containers would
//! answer from its latest events, and wake the agent when it has new ones.
//!
//! Invariant: only streams wait ([`ContainerRuntime::exec`], [`ContainerRuntime::connect`]).
//! Everything else that takes time is visible in [`ContainerHandle::status`] once it is done.

mod exec;
mod http;
pub(crate) mod plain;
mod simulated;
pub(crate) mod terminal;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use mizzen_value::{Str, Value};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;

pub use simulated::Simulated;

use crate::moment::Moment;
use crate::pod::inputs::{Inputs, NodeContext};
pub use crate::shell::ContainerEnvironment;

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

/// A container runtime.
pub trait ContainerRuntime: Send + Sync {
    /// Its name and version for `nodeInfo.containerRuntimeVersion`.
    fn version(&self) -> String;

    /// Whether it can run a pod.
    fn accepts(&self, pod: &Value) -> Result<(), String>;

    /// Pulls a container's image, after `n_tries` failed pulls.
    fn pull(&self, _pod: &Value, _container: &Value, _n_tries: u32) -> Result<(), String> {
        Ok(())
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

/// A command to run in a container.
pub struct Exec {
    /// The pod.
    pub pod: Value,
    /// The name of the container.
    pub container: String,
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
    fn stop(&mut self, ask: Moment, kill: Moment);

    /// Updates the inputs of the container: its files, or its stdin.
    fn update(&mut self, config: &ContainerConfig);

    /// The result of a probe at a moment, which may be in the past.
    fn probe(&self, probe: ProbeType, config: &ContainerConfig, at: Moment) -> ProbeResult;
}

/// The status of a container.
#[derive(Debug, Clone, PartialEq)]
pub struct ContainerStatus {
    /// Its state.
    pub state: ContainerPhase,
    /// Readiness as the runtime knows it.
    pub usable: bool,
    /// When the status changes next by itself; `None` if that is not known.
    pub changes_at: Option<Moment>,
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    /// Whether the result stays until [`ContainerStatus::changes_at`] or until the pod changes.
    pub steady: bool,
    /// Whether the result depends on the current pod, whatever moment was probed.
    pub is_of_pod: bool,
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
