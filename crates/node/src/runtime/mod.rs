//! Who runs containers? The agent decides what runs; a runtime does it and says what became of it.
//!
//! [`Simulated`] is the first runtime: nothing runs, but everything looks as if it did. A runtime with real containers
//! answers the same questions from what it has heard last, and wakes the agent when it hears something new.
//!
//! Invariant: nothing here waits but what clients stream to and from ([`ContainerRuntime::exec`], [`ContainerRuntime::connect`]).
//! What else takes time is visible in [`Container::look`] once it is done.

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
pub use crate::shell::Environment;

/// What a container is to its pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It runs before others, and must complete.
    Init,
    /// It starts before others, and runs beside them.
    Sidecar,
    /// It is what the pod is for.
    Regular,
    /// Somebody looks into the pod with it.
    Ephemeral,
}

/// Which container is wanted.
pub struct Wish<'a> {
    /// The pod.
    pub pod: &'a Value,
    /// The container's part of the pod's specification.
    pub container: &'a Value,
    /// What it is to the pod.
    pub role: Role,
    /// How often it was restarted.
    pub n_restarts: u32,
    /// Since when it runs, if it does already: the agent was restarted.
    pub since: Option<Moment>,
    /// What it gets beside what the specification says.
    pub inputs: &'a Inputs,
    /// What its node adds to that.
    pub node: NodeContext<'a>,
}

/// One life of a container of which something is asked.
#[derive(Clone, Copy)]
pub struct ContainerLife<'a> {
    /// The pod.
    pub pod: &'a Value,
    /// The container's part of the pod's specification.
    pub container: &'a Value,
    /// When it was started.
    pub since: Moment,
    /// What it got beside what the specification says.
    pub inputs: &'a Inputs,
    /// What its node added to that.
    pub node: NodeContext<'a>,
}

/// Runs containers.
pub trait ContainerRuntime: Send + Sync {
    /// Its name and version, as `nodeInfo.containerRuntimeVersion` has it.
    fn version(&self) -> String;

    /// Whether it can run a pod; the error is for people.
    fn accepts(&self, pod: &Value) -> Result<(), String>;

    /// Gets a container's image, after so many tries that failed; or why it cannot be had.
    fn pull(&self, _pod: &Value, _container: &Value, _n_tries: u32) -> Result<(), String> {
        Ok(())
    }

    /// Begins to make and start a container, or finds the one that runs already.
    fn start(&self, wish: &Wish, now: Moment) -> Box<dyn Container>;

    /// Whether a container may read files of its volumes: what they are made of is then read for it.
    fn reads_files(&self, _container: &Value) -> bool {
        true
    }

    /// What a container has written in one life, oldest first, up to `now`.
    fn logs(&self, life: &ContainerLife, now: Moment) -> Vec<Line>;

    /// What a container writes in one life from `from` up to `now`, as it writes it. What was returned before is the beginning of
    /// what is returned later.
    fn output(&self, life: &ContainerLife, from: Moment, now: Moment) -> Vec<Chunk>;

    /// How much a container that runs used from `from`, which is not before its start, to `to`; none if that is not known.
    fn usage(&self, life: &ContainerLife, from: Moment, to: Moment) -> Option<ContainerUsage>;

    /// Runs a command in a container that runs. The future is done when the command has ended, with its exit code; the error says
    /// why it could not be started. Dropping the future ends the command.
    fn exec(&self, exec: Exec, stdio: Stdio) -> BoxFuture<'static, Result<i64, String>>;

    /// Connects to a port of a pod, from inside.
    fn connect(
        &self,
        pod: &Value,
        port: u16,
    ) -> BoxFuture<'static, io::Result<Box<dyn Connection>>>;
}

/// What a container used over some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContainerUsage {
    /// The time that it ran on all cores together.
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
    /// What the command sees of the container.
    pub environment: Environment,
    /// The command and its arguments.
    pub command: Vec<String>,
    /// The present moment.
    pub now: Arc<dyn Fn() -> Moment + Send + Sync>,
}

/// The streams of a command; those that are not wanted are none. Both outputs end when they are dropped.
pub struct Stdio {
    /// What the client types, until it closes its side.
    pub stdin: Option<mpsc::Receiver<Bytes>>,
    /// What the command prints.
    pub stdout: Option<mpsc::Sender<Bytes>>,
    /// What the command complains of.
    pub stderr: Option<mpsc::Sender<Bytes>>,
    /// Whether there is a terminal at the other end.
    pub tty: bool,
}

impl Stdio {
    /// The next that the client types; none when it closes its side, and nothing for ever after that.
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
pub trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// A container that was started, until it is forgotten.
pub trait Container: Send + Sync {
    /// How it is.
    fn look(&self, now: Moment) -> Sight;

    /// Tells it at `ask` to stop, and ends it at `kill`. If it is called again, the earlier times count.
    fn stop(&mut self, ask: Moment, kill: Moment);

    /// The inputs of the container have changed: its files, or what was typed.
    fn update(&mut self, wish: &Wish);

    /// Asks whether it is well at some moment, which may have passed.
    fn probe(&self, probe: Probe, wish: &Wish, at: Moment) -> Health;
}

/// How a container is.
#[derive(Debug, Clone, PartialEq)]
pub struct Sight {
    /// What it does.
    pub state: State,
    /// Whether it can be used, as far as the runtime knows.
    pub usable: bool,
    /// When that changes if nobody does anything; none if that is not known.
    pub changes_at: Option<Moment>,
}

/// What a container does.
#[derive(Debug, Clone, PartialEq)]
pub enum State {
    /// It is being made.
    Creating,
    /// It runs.
    Running {
        /// Since when.
        since: Moment,
    },
    /// It has ended.
    Ended(End),
}

/// How and when a container ended.
#[derive(Debug, Clone, PartialEq)]
pub struct End {
    /// When it was started; none if it never was, as far as is known.
    pub started: Option<Moment>,
    /// When it ended.
    pub finished: Option<Moment>,
    /// Its exit code.
    pub code: i64,
    /// Why, in one word.
    pub reason: Str,
    /// What it left behind.
    pub message: Str,
}

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probe {
    /// Has it started?
    Startup,
    /// Can it be used?
    Readiness,
    /// Is it alive?
    Liveness,
}

/// What a probe finds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// Whether all is well.
    pub good: bool,
    /// Whether it stays so until [`Sight::changes_at`] or until the pod changes.
    pub steady: bool,
    /// Whether the pod as it is now says so, whatever moment was asked about.
    pub is_of_pod: bool,
    /// What the probe says, if that is known.
    pub output: Option<String>,
}

/// Something that a container wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Whether it was written to stderr; with a terminal, nothing is.
    pub is_error: bool,
    /// What.
    pub text: String,
}

/// A line that a container wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// When.
    pub at: Moment,
    /// What, without the end of line.
    pub text: String,
}
