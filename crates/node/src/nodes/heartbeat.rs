//! Node heartbeats: nodes are registered, then each renews its lease every ten seconds.
//!
//! Leases are renewed in steps over the ten seconds, so that a thousand nodes do not all write at
//! once. The status is written when it differs, and every five minutes.
//!
//! Kubernetes: a node that is deleted is not registered again until the agent restarts.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::{self, FuturesUnordered};
use kube::Error;
use mizzen_sdk::cache::{Entry, Store};
use mizzen_sdk::dynamic::PatchType;
use mizzen_sdk::queue::Queue;
use mizzen_sdk::resource::{LEASES, NODES};
use mizzen_sdk::write::is_already_exists;
use mizzen_sdk::{Key, Object};
use mizzen_value::{Str, Value, value};
use tokio::time::sleep;

use super::events;
use super::object::{annotations, labels, needs_status, node_object, status};
use crate::agent::Timers;
use crate::moment::{Moment, to_rfc3339};
use crate::settings::NodeSettings;

/// Kubernetes: the duration of a lease, and its renew interval (pkg/kubelet/kubelet.go).
pub(crate) const LEASE_DURATION: Duration = Duration::from_secs(40);
const RENEW_INTERVAL: Duration = Duration::from_secs(10);
/// Kubernetes: how often the status of a node is written if nothing changes.
pub(crate) const STATUS_INTERVAL: Duration = Duration::from_secs(300);
/// How often the health of a container runtime is looked at, which costs no call.
const HEALTH_INTERVAL: Duration = Duration::from_secs(1);
/// The number of steps over which the nodes are spread.
const STEPS: usize = 40;
/// The namespace of node leases.
const NAMESPACE: &str = "kube-node-lease";
/// The most nodes that are registered concurrently.
const MAX_CONCURRENT: usize = 32;
/// The back-off of a failed registration; doubled each time.
const INITIAL_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(7);

/// The heartbeat state of one node.
struct NodeHeartbeat {
    name: Str,
    uid: Str,
    /// The version of its lease; empty if it has none yet.
    lease: String,
    /// Whether the node was deleted.
    is_gone: bool,
}

/// A periodic task of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum HeartbeatTask {
    Renew(usize),
    Report(usize),
}

/// Registers nodes and keeps them alive until the future is dropped. `queue` has the keys of nodes
/// that changed, `nodes` the nodes.
pub(crate) async fn run_heartbeats(
    settings: Arc<NodeSettings>,
    nodes: Store<Object>,
    queue: Queue<Key>,
) {
    let mut heartbeats = register(&settings).await;
    if settings.runtime.runs_processes() {
        for heartbeat in &heartbeats {
            settings.record_about_node(&heartbeat.name, events::starting());
        }
    }
    let places: HashMap<Str, usize> = heartbeats
        .iter()
        .enumerate()
        .map(|(at, heartbeat)| (heartbeat.name.clone(), at))
        .collect();
    let mut timers = Timers::default();
    let began = settings.now();
    for at in 0..heartbeats.len() {
        let turn = (at * STEPS / heartbeats.len()) as u32;
        timers.add(
            began + RENEW_INTERVAL * turn / STEPS as u32,
            HeartbeatTask::Renew(at),
        );
        timers.add(
            began + STATUS_INTERVAL + STATUS_INTERVAL * turn / STEPS as u32,
            HeartbeatTask::Report(at),
        );
    }
    let mut was_healthy = None;
    loop {
        let mut pause = timers
            .next()
            .map_or(RENEW_INTERVAL, |at| at.saturating_since(settings.now()));
        if settings.runtime.runs_processes() {
            pause = pause.min(HEALTH_INTERVAL);
        }
        tokio::select! {
            key = queue.get() => {
                let Some(key) = key else { return };
                if let Some(at) = places.get(key.name()) {
                    settings.on_node_change(&mut heartbeats[*at], nodes.get(&key)).await;
                }
                queue.done(&key);
            }
            () = sleep(pause) => {
                let now = settings.now();
                let due: Vec<(Moment, HeartbeatTask)> = std::iter::from_fn(|| timers.pop(now)).collect();
                settings.run_due(&mut heartbeats, &due).await;
                let is_healthy = settings.health().is_ok();
                let has_changed = was_healthy.replace(is_healthy) != Some(is_healthy);
                if settings.runtime.runs_processes() && (has_changed || !due.is_empty()) {
                    settings.report_health(&mut heartbeats, &nodes).await;
                }
                for (at, task) in due {
                    timers.add(task.again(at, now), task);
                }
            }
        }
    }
}

impl HeartbeatTask {
    /// The node whose lease is renewed.
    fn renews(self) -> Option<usize> {
        match self {
            HeartbeatTask::Renew(at) => Some(at),
            HeartbeatTask::Report(_) => None,
        }
    }

    /// When it is due again. Missed runs are skipped.
    fn again(self, at: Moment, now: Moment) -> Moment {
        let every = match self {
            HeartbeatTask::Renew(_) => RENEW_INTERVAL,
            HeartbeatTask::Report(_) => STATUS_INTERVAL,
        };
        (at + every).max(now)
    }
}

/// Registers every node, with retries.
async fn register(settings: &Arc<NodeSettings>) -> Vec<NodeHeartbeat> {
    let tasks = settings.names().map(|name| {
        let settings = settings.clone();
        async move {
            let mut pause = INITIAL_BACKOFF;
            loop {
                match settings.register(&name).await {
                    Ok(heartbeat) => return heartbeat,
                    Err(error) => log_error(&error, "cannot register a node, retrying", &name),
                }
                sleep(pause).await;
                pause = (pause * 2).min(MAX_BACKOFF);
            }
        }
    });
    stream::iter(tasks).buffered(MAX_CONCURRENT).collect().await
}

fn log(outcome: Result<(), Error>) {
    if let Err(error) = outcome {
        log_error(&error, "cannot write a node's heartbeat", "");
    }
}

/// Errors of the server are logged here; connection errors by the client.
fn log_error(error: &Error, what: &str, node: &str) {
    match error {
        Error::Api(status) => tracing::warn!(node, "{what}: {}", status.message),
        error => tracing::debug!(node, %error, "{what}"),
    }
}

impl NodeSettings {
    /// Runs all due tasks concurrently: first leases, then statuses.
    async fn run_due(&self, heartbeats: &mut [NodeHeartbeat], due: &[(Moment, HeartbeatTask)]) {
        let renews: HashSet<usize> = due.iter().filter_map(|(_, task)| task.renews()).collect();
        let living = heartbeats
            .iter_mut()
            .enumerate()
            .filter(|(at, heartbeat)| renews.contains(at) && !heartbeat.is_gone);
        let renewals: FuturesUnordered<_> =
            living.map(|(_, heartbeat)| self.renew(heartbeat)).collect();
        renewals.for_each(async |outcome| log(outcome)).await;
        for (_, task) in due {
            if let HeartbeatTask::Report(at) = task
                && !heartbeats[*at].is_gone
            {
                log(self.report(&heartbeats[*at].name, &Value::Null).await);
            }
        }
    }

    /// Writes the status of nodes that have lost or regained their health. What was written
    /// last is read from the node, so that no change is missed.
    async fn report_health(&self, heartbeats: &mut [NodeHeartbeat], nodes: &Store<Object>) {
        for heartbeat in heartbeats {
            for note in self.runtime.take_node_events() {
                self.record_about_node(&heartbeat.name, note);
            }
            let node = nodes.get(&Key::cluster(heartbeat.name.as_str()));
            if node.is_some() {
                self.on_node_change(heartbeat, node).await;
            }
        }
    }

    /// Writes the status of a node if another client has changed it, and stops heartbeats of a
    /// deleted node.
    async fn on_node_change(&self, heartbeat: &mut NodeHeartbeat, node: Option<Entry<Object>>) {
        let node = node.filter(|node| heartbeat.uid == node.uid());
        heartbeat.is_gone = node.is_none();
        if let Some(Ok(node)) = node.map(|node| node.object()) {
            self.runtime.set_pod_cidr(node["spec"]["podCIDR"].str());
            if needs_status(self, &heartbeat.name, &node) {
                log(self.report(&heartbeat.name, &node["status"]).await);
            }
        }
    }

    async fn register(&self, name: &str) -> Result<NodeHeartbeat, Error> {
        let (key, api) = (Key::cluster(name), self.api_of(name));
        let mut before = Value::Null;
        let node = match api.create(&NODES, &node_object(self, name)).await {
            Err(error) if is_already_exists(&error) => {
                let known = api.get(&NODES, &key).await?;
                before = known["status"].clone();
                let change = value!({
                    "metadata": { "labels": (labels(self, name)), "annotations": (annotations(self, name)) },
                    "status": (status(self, name, &known["status"])),
                });
                api.patch(&NODES, &key, "status", PatchType::Strategic, &change)
                    .await?
            }
            created => created?,
        };
        self.record_changes(name, &before, &node["status"]);
        let mut heartbeat = NodeHeartbeat {
            name: name.into(),
            uid: node.uid().into(),
            lease: String::new(),
            is_gone: false,
        };
        self.runtime.set_pod_cidr(node["spec"]["podCIDR"].str());
        self.renew(&mut heartbeat).await?;
        Ok(heartbeat)
    }

    /// Renews or creates the lease of a node.
    async fn renew(&self, heartbeat: &mut NodeHeartbeat) -> Result<(), Error> {
        let (key, api) = (
            Key::new(NAMESPACE, heartbeat.name.as_str()),
            self.api_of(&heartbeat.name),
        );
        if !heartbeat.lease.is_empty() {
            match api.update(&LEASES, &self.lease(heartbeat)).await {
                Ok(lease) => {
                    heartbeat.lease = lease.version().into();
                    return Ok(());
                }
                // Another client wrote or deleted it: read it again. Kubernetes: a missing lease is
                // an internal error.
                Err(Error::Api(_)) => {}
                Err(error) => return Err(error),
            }
        }
        heartbeat.lease = match api.find(&LEASES, &key).await? {
            Some(lease) => lease.version().into(),
            None => String::new(),
        };
        let lease = self.lease(heartbeat);
        let written = match heartbeat.lease.is_empty() {
            true => api.create(&LEASES, &lease).await?,
            false => api.update(&LEASES, &lease).await?,
        };
        heartbeat.lease = written.version().into();
        Ok(())
    }

    fn lease(&self, heartbeat: &NodeHeartbeat) -> Object {
        let mut lease = value!({
            "metadata": {
                "name": (&heartbeat.name),
                "namespace": NAMESPACE,
                "ownerReferences": [
                    { "apiVersion": "v1", "kind": "Node", "name": (&heartbeat.name), "uid": (&heartbeat.uid) },
                ],
            },
            "spec": {
                "holderIdentity": (&heartbeat.name),
                "leaseDurationSeconds": (LEASE_DURATION.as_secs() as i64),
                "renewTime": (to_rfc3339(self.now(), 6)),
            },
        });
        if !heartbeat.lease.is_empty() {
            lease
                .entry("metadata")
                .set("resourceVersion", heartbeat.lease.as_str());
        }
        Object(lease)
    }

    /// Writes the status of a node. `known` is its current status, or null to read it.
    async fn report(&self, name: &str, known: &Value) -> Result<(), Error> {
        let (key, api) = (Key::cluster(name), self.api_of(name));
        let read = match known.is_null() {
            true => api.find(&NODES, &key).await?,
            false => None,
        };
        let known = read.as_ref().map_or(known, |node| &node["status"]);
        if known.is_null() {
            return Ok(());
        }
        let change = value!({ "status": (status(self, name, known)) });
        api.patch(&NODES, &key, "status", PatchType::Strategic, &change)
            .await?;
        self.record_changes(name, known, &change["status"]);
        Ok(())
    }

    /// Records what has happened to a node with real containers.
    fn record_changes(&self, name: &str, before: &Value, after: &Value) {
        if self.runtime.runs_processes() {
            for note in events::changes(name, before, after) {
                self.record_about_node(name, note);
            }
        }
    }
}
