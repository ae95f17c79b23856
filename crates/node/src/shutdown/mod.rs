//! Graceful node shutdown: before the machine shuts down, its pods end in the order of their
//! priorities.
//!
//! | part | what it has |
//! |---|---|
//! | `plan` | which pods end when, and how long they get |
//! | `logind` | the inhibitor lock and the announcements of systemd-logind |
//!
//! A delay lock of logind is held while the node runs. Once a shutdown is announced, the node is
//! not ready, rejects new pods and ends those that run; then the lock is released, and the machine
//! goes down. A shutdown that is cancelled leaves the pods that have not been ended.
//!
//! Kubernetes: pkg/kubelet/nodeshutdown.

mod logind;
mod plan;

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mizzen_component_helpers::pod_state::is_terminal;
use mizzen_sdk::event::Note;
use mizzen_sdk::informer::Informer;
use mizzen_sdk::queue::Queue;
use mizzen_sdk::{Key, Object};
use mizzen_value::Str;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::agent::AgentHandle;
use crate::settings::NodeSettings;
pub(crate) use logind::remove_drop_in;
use logind::{InhibitError, InhibitorLock, Logind, LogindLost, LogindPlace};
pub(crate) use plan::PodShutdown;
pub use plan::{ShutdownGracePeriod, parse_shutdown_grace_periods, shutdown_grace_periods};
use plan::{delay, groups};

/// Where the configuration of logind is extended.
const LOGIND_CONF_DIR: &str = "/etc/systemd/logind.conf.d";
/// The back-off while logind is missing; doubled each time.
const INITIAL_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(60);
/// How often the end of pods is looked at.
const POLL: Duration = Duration::from_millis(100);
/// How long the API server gets to store the last statuses.
const STATUS_WRITES: Duration = Duration::from_secs(2);

/// Kubernetes: why the node is not ready.
pub(crate) const NOT_READY: &str = "node is shutting down";
/// Kubernetes: the reason and the message of a pod that is ended.
pub(crate) const TERMINATION: [&str; 2] = [
    "Terminated",
    "Pod was terminated in response to imminent node shutdown.",
];
/// Kubernetes: those of a new pod, which is rejected.
pub(crate) const REJECTION: [&str; 2] = [
    "NodeShutdown",
    "Pod was rejected as the node is shutting down.",
];

/// What a node does before its machine shuts down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShutdownConfig {
    /// How long pods get, by priority, sorted; empty if the node does not wait for its pods.
    pub grace_periods: Vec<ShutdownGracePeriod>,
    /// The address of the D-Bus with logind; by default that of the system.
    pub bus_address: Option<String>,
    /// The directory of configuration drop-ins of logind.
    pub logind_conf_dir: PathBuf,
}

impl Default for ShutdownConfig {
    fn default() -> ShutdownConfig {
        ShutdownConfig {
            grace_periods: Vec::new(),
            bus_address: None,
            logind_conf_dir: LOGIND_CONF_DIR.into(),
        }
    }
}

/// The node, its lock, and the task that ends its pods.
struct ShutdownManager {
    settings: Arc<NodeSettings>,
    agent: AgentHandle,
    pods: Informer<Object>,
    nodes: Queue<Key>,
    /// Held until a shutdown is announced. It outlives a connection: logind may be back before.
    lock: Option<InhibitorLock>,
    /// Ends pods and has the lock meanwhile; dropping it does both no longer.
    ending: JoinSet<()>,
}

/// Why a connection to logind has ended.
#[derive(Debug, thiserror::Error)]
enum WatchError {
    #[error(transparent)]
    Inhibit(#[from] InhibitError),
    #[error(transparent)]
    Lost(#[from] LogindLost),
}

/// Whether a shutdown is the reason of a failed pod.
pub(crate) fn is_cause(reason: &str) -> bool {
    [TERMINATION, REJECTION]
        .iter()
        .any(|[known, _]| *known == reason)
}

/// Watches for shutdowns until the future is dropped; pends if no pod gets time. `nodes` has the
/// keys of nodes whose status may have changed.
pub(crate) async fn run(
    settings: Arc<NodeSettings>,
    agent: AgentHandle,
    pods: Informer<Object>,
    nodes: Queue<Key>,
) {
    if settings.shutdown.grace_periods.is_empty() {
        return std::future::pending().await;
    }
    let mut manager = ShutdownManager {
        settings,
        agent,
        pods,
        nodes,
        lock: None,
        ending: JoinSet::new(),
    };
    let mut pause = INITIAL_BACKOFF;
    loop {
        let connected = manager.connect().await;
        let error = match connected {
            Ok(logind) => {
                pause = INITIAL_BACKOFF;
                manager.watch(logind).await
            }
            Err(error) => error.into(),
        };
        tracing::warn!(%error, retry_in = ?pause, "graceful node shutdown is off, retrying");
        sleep(pause).await;
        pause = (pause * 2).min(MAX_BACKOFF);
    }
}

impl ShutdownManager {
    /// Connects to logind and takes its lock.
    async fn connect(&mut self) -> Result<Logind, InhibitError> {
        let config = &self.settings.shutdown;
        // The node of a machine is the only one of its agent.
        let node = self.settings.name(0);
        let place = LogindPlace {
            bus_address: config.bus_address.as_deref(),
            conf_dir: &config.logind_conf_dir,
            node: &node,
        };
        let delay = delay(&config.grace_periods);
        let logind = Logind::connect(place, delay).await?;
        self.take_lock(&logind).await?;
        tracing::info!(delay = ?delay, "graceful node shutdown is on");
        Ok(logind)
    }

    /// Takes the lock. As it is granted, no shutdown is being prepared, whatever was announced.
    async fn take_lock(&mut self, logind: &Logind) -> Result<(), InhibitError> {
        let lock = logind.inhibit().await?;
        self.ending = JoinSet::new();
        self.lock = Some(lock);
        self.set_shutting_down(false);
        Ok(())
    }

    /// Follows the announcements until they end. Pods that are being ended still do so then.
    async fn watch(&mut self, mut logind: Logind) -> WatchError {
        loop {
            match logind.next().await {
                Ok(true) => self.on_shutdown(),
                Ok(false) => {
                    if let Err(error) = self.on_cancellation(&logind).await {
                        return error.into();
                    }
                }
                Err(lost) => return lost.into(),
            }
        }
    }

    fn on_shutdown(&mut self) {
        // Without the lock the pods are being ended already.
        let Some(lock) = self.lock.take() else {
            return;
        };
        self.record("Shutdown manager detected shutdown event");
        self.set_shutting_down(true);
        let pods_end = end_pods(
            self.settings.clone(),
            self.agent.clone(),
            self.pods.clone(),
            lock,
        );
        self.ending.spawn(pods_end);
    }

    /// Kubernetes: pods of all groups would end before the cancellation is looked at.
    async fn on_cancellation(&mut self, logind: &Logind) -> Result<(), InhibitError> {
        self.record("Shutdown manager detected shutdown cancellation");
        self.ending = JoinSet::new();
        self.set_shutting_down(false);
        self.take_lock(logind).await
    }

    fn record(&self, message: &str) {
        let note = Note::normal("Shutdown", "", message);
        self.settings
            .record_about_node(&self.settings.name(0), note);
    }

    fn set_shutting_down(&self, is_shutting_down: bool) {
        if self.settings.set_shutting_down(is_shutting_down) {
            tracing::info!(is_shutting_down, "the shutdown of the node has changed");
            let node = self.settings.name(0);
            self.nodes.add(Key::cluster(node.as_str()));
        }
    }
}

/// Ends all pods, group by group, and releases the lock.
async fn end_pods(
    settings: Arc<NodeSettings>,
    agent: AgentHandle,
    pods: Informer<Object>,
    lock: InhibitorLock,
) {
    let node = settings.name(0);
    let active = agent.active_pods(node.clone()).await;
    let mut ended = Vec::new();
    for group in groups(&settings.shutdown.grace_periods, &active) {
        let (priority, period) = (group.priority, group.period);
        tracing::info!(priority, n_pods = group.pods.len(), period = ?period, "ending the pods of a priority");
        let mut ending = HashSet::new();
        for pod in group.pods {
            ended.push(pod.key.clone());
            let uid = pod.uid.clone();
            if agent.shut_down(pod).await {
                ending.insert(uid);
            }
        }
        let end = wait_for_end(&agent, &node, &ending);
        if timeout(period, end).await.is_err() {
            tracing::warn!(priority, "pods have not ended in time");
        }
    }
    // If this is too short, the next agent finds that the containers are gone.
    let _ = timeout(STATUS_WRITES, wait_for_statuses(&pods, &ended)).await;
    drop(lock);
    tracing::info!("the pods have ended, the machine may shut down");
}

async fn wait_for_end(agent: &AgentHandle, node: &Str, ending: &HashSet<Str>) {
    let is_ending = |pod: &Object| ending.contains(pod.uid());
    while agent.active_pods(node.clone()).await.iter().any(is_ending) {
        sleep(POLL).await;
    }
}

/// Waits until the API has the ends of pods.
async fn wait_for_statuses(pods: &Informer<Object>, keys: &[Key]) {
    let is_written = |key: &Key| {
        let object = pods.store().get(key).and_then(|entry| entry.object().ok());
        object.is_none_or(|pod| is_terminal(&pod))
    };
    while !keys.iter().all(is_written) {
        sleep(POLL).await;
    }
}
