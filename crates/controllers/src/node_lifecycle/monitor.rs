//! The health monitor: checks all nodes periodically, and adds and removes NoExecute taints.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use k8s_openapi::jiff::Timestamp;
use mizzen_sdk::cache::Entry;
use mizzen_sdk::event::Note;
use mizzen_sdk::informer::Informer;
use mizzen_sdk::resource::NODES;
use mizzen_sdk::write::is_conflict;
use mizzen_sdk::{Key, Object};
use mizzen_value::Value;
use mizzen_workloads::common::pod::condition;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use super::health::{CheckTime, NodeHealth, NodeHealthCheck, check_health};
use super::metrics::NodeCollectorMetrics;
use super::zones::{DisruptionChange, ZoneStates, zone_of};
use super::{pods, taints};
use crate::{ControllerContext, pod_index, taint};

/// How often the taint queues are processed.
const TAINT_PERIOD: Duration = Duration::from_millis(100);
/// How many nodes are written concurrently.
const MAX_CONCURRENT_UPDATES: usize = 8;
/// How often a conflicting status update is tried.
const TRIES: usize = 5;
/// Nodes with this label do not count for the zone state.
const EXCLUDED: &str = "node.kubernetes.io/exclude-disruption";
/// The namespace of node leases.
const LEASES: &str = "kube-node-lease";

pub(super) struct HealthMonitor {
    pub context: ControllerContext,
    pub nodes: Informer<Object>,
    pub pods: Informer<Object>,
    pub leases: Informer<Object>,
    pub metrics: Arc<NodeCollectorMetrics>,
    pub known: HashMap<String, MonitoredNode>,
    pub zones: ZoneStates,
}

/// A monitored node.
pub(super) struct MonitoredNode {
    /// An entry of the cache; it is decoded for each check and not kept decoded.
    node: Entry<Object>,
    health: Option<NodeHealth>,
    /// Marking its pods as not ready failed and must be repeated.
    again: bool,
}

impl HealthMonitor {
    /// Runs until the future is dropped.
    pub(super) async fn run(mut self) {
        let mut checks = interval(self.context.options.node_monitor.period);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = checks.tick() => self.monitor_node_health().await,
                () = sleep(TAINT_PERIOD), if !self.zones.are_queues_empty() => self.taint_due_nodes().await,
            }
        }
    }

    async fn monitor_node_health(&mut self) {
        let (nodes, began) = (self.nodes.store().list(), Instant::now());
        self.classify_nodes(&nodes).await;
        let mut ready: BTreeMap<String, Vec<bool>> = BTreeMap::new();
        for some in nodes.chunks(MAX_CONCURRENT_UPDATES) {
            let checks = join_all(some.iter().map(|node| self.try_update_node_health(node))).await;
            for (node, look) in checks.into_iter().flatten() {
                if node.label(EXCLUDED).is_none() {
                    ready
                        .entry(zone_of(&node))
                        .or_default()
                        .push(look.ready.as_deref() == Some("True"));
                }
                self.process_taint_base_eviction(&node, look).await;
            }
        }
        self.metrics.set_zones(&ready, began);
        match self
            .zones
            .handle_disruption(&ready, self.context.monotonic_now())
        {
            DisruptionChange::None => (),
            DisruptionChange::FullyDisrupted => self.remove_no_execute_taints(&nodes).await,
            DisruptionChange::Recovered => self.reset_health(),
        }
    }

    /// Handles added and deleted nodes.
    async fn classify_nodes(&mut self, nodes: &[Entry<Object>]) {
        for entry in nodes {
            if let Some(known) = self.known.get_mut(entry.key().name()) {
                known.node = entry.clone();
                continue;
            }
            let Some(node) = decode(entry) else { continue };
            self.record_event(
                &node,
                "RegisteredNode",
                format!("Registered Node {0} in Controller", node.name()),
            );
            self.known.insert(
                node.name().into(),
                MonitoredNode {
                    node: entry.clone(),
                    health: None,
                    again: false,
                },
            );
            // Its NoExecute taints may be of an earlier run, so they are removed and decided again.
            self.mark_as_reachable(&node).await;
        }
        let is_gone = |name: &str| self.nodes.store().get(&Key::cluster(name)).is_none();
        let gone: Vec<MonitoredNode> = self
            .known
            .extract_if(|name, _| is_gone(name))
            .map(|(_, known)| known)
            .collect();
        for node in gone.iter().filter_map(|known| decode(&known.node)) {
            self.record_event(
                &node,
                "RemovingNode",
                format!("Removing Node {} from Controller", node.name()),
            );
            self.zones
                .taint_queue(&zone_of(&node), self.context.monotonic_now())
                .remove(node.name());
        }
    }

    fn record_event(&self, node: &Object, reason: &str, what: String) {
        let message = format!("Node {} event: {what}", node.name());
        self.context
            .record_event(&NODES, node, Note::normal(reason, "", message));
    }

    /// Checks a node and writes its conditions. Returns the node as written; none if that failed.
    async fn try_update_node_health(
        &self,
        entry: &Entry<Object>,
    ) -> Option<(Object, NodeHealthCheck)> {
        let mut node = decode(entry)?;
        let known = self
            .known
            .get(node.name())
            .and_then(|known| known.health.as_ref());
        let lease = self.leases.store().get(&Key::new(LEASES, node.name()));
        let renewed = lease
            .and_then(|lease| lease.text_at(&["spec", "renewTime"]))
            .unwrap_or_default();
        for _ in 0..TRIES {
            let now = CheckTime {
                monotonic: self.context.monotonic_now(),
                wall: self.context.now(),
            };
            let look = check_health(
                known,
                &node,
                &renewed,
                now,
                self.context.options.node_monitor,
            );
            let Some(conditions) = &look.conditions else {
                return Some((node, look));
            };
            let mut after = node.clone();
            after
                .entry("status")
                .set("conditions", Value::List(conditions.clone()));
            match self.context.api.update_status(&NODES, &after).await {
                Ok(after) => return Some((after, look)),
                Err(error) if is_conflict(&error) => {
                    node = self
                        .context
                        .api
                        .find(&NODES, &node.key())
                        .await
                        .ok()
                        .flatten()?;
                }
                Err(error) => {
                    tracing::debug!(node = node.name(), %error, "node conditions not written");
                    return None;
                }
            }
        }
        None
    }

    /// Handles taints and pods after a check.
    async fn process_taint_base_eviction(&mut self, node: &Object, look: NodeHealthCheck) {
        match look.ready.as_deref() {
            Some("True") => self.mark_as_reachable(node).await,
            Some("False") => {
                self.add_to_taint_queue(node, taint::NOT_READY, taint::UNREACHABLE)
                    .await
            }
            Some(_) => {
                self.add_to_taint_queue(node, taint::UNREACHABLE, taint::NOT_READY)
                    .await
            }
            None => (),
        }
        if look.lost {
            let message = format!("Node {} status is now: NodeNotReady", node.name());
            self.context
                .record_event(&NODES, node, Note::normal("NodeNotReady", "", message));
        }
        let Some(known) = self.known.get_mut(node.name()) else {
            return;
        };
        known.health = Some(look.health);
        let is_ready = look.ready.as_deref() == Some("True");
        if look.lost || (known.again && !is_ready) {
            let pods = pod_index::pods_on_node(&self.pods, node.name());
            known.again = pods.is_err();
            for pod in pods.unwrap_or_default() {
                let marked = pods::mark_pod_not_ready(&self.context, &pod).await;
                known.again |= marked.is_err();
            }
        }
    }

    /// Queues a node for a taint; if it has the opposite taint, the two are swapped at once.
    async fn add_to_taint_queue(&mut self, node: &Object, key: &str, opposite: &str) {
        if taint::has_taint(node, opposite, "NoExecute") {
            self.swap_taint(node.name(), key, opposite).await;
        } else if !taint::has_taint(node, key, "NoExecute") {
            self.zones
                .taint_queue(&zone_of(node), self.context.monotonic_now())
                .add(node.name());
        }
    }

    async fn swap_taint(&mut self, node: &str, key: &str, opposite: &str) -> bool {
        let now = self.context.now_text();
        let add = [taint::new_taint(key, "NoExecute", &now)];
        let remove = [taint::new_taint(opposite, "NoExecute", &now)];
        let change =
            |node: &Object| taint::updated_taints(node["spec"]["taints"].list(), &add, &remove);
        let changed = taints::change(&self.context, &self.nodes, node, change);
        changed.await.is_ok()
    }

    /// Removes the NoExecute taints of a node.
    async fn mark_as_reachable(&mut self, node: &Object) {
        let now = self.context.monotonic_now();
        self.zones
            .taint_queue(&zone_of(node), now)
            .remove(node.name());
        let keys = [taint::NOT_READY, taint::UNREACHABLE];
        if !keys
            .iter()
            .any(|key| taint::has_taint(node, key, "NoExecute"))
        {
            return;
        }
        let ours = keys.map(|key| taint::new_taint(key, "NoExecute", ""));
        let change =
            |node: &Object| taint::updated_taints(node["spec"]["taints"].list(), &[], &ours);
        let changed = taints::change(&self.context, &self.nodes, node.name(), change);
        if let Err(error) = changed.await {
            tracing::debug!(node = node.name(), %error, "NoExecute taints not removed");
        }
    }

    async fn remove_no_execute_taints(&mut self, nodes: &[Entry<Object>]) {
        for node in nodes.iter().filter_map(decode) {
            self.mark_as_reachable(&node).await;
        }
    }

    fn reset_health(&mut self) {
        let now: Timestamp = self.context.monotonic_now();
        for health in self
            .known
            .values_mut()
            .filter_map(|known| known.health.as_mut())
        {
            health.seen = now;
        }
    }

    /// Taints the nodes that the rate limit admits.
    async fn taint_due_nodes(&mut self) {
        for name in self.zones.next(self.context.monotonic_now()) {
            let Ok(Some(node)) = self.nodes.lister().get(&name) else {
                continue;
            };
            let ready = condition(&node, "Ready");
            let is_done = match ready.map_or("", |ready| ready["status"].str()) {
                "False" => {
                    self.swap_taint(&name, taint::NOT_READY, taint::UNREACHABLE)
                        .await
                }
                "Unknown" => {
                    self.swap_taint(&name, taint::UNREACHABLE, taint::NOT_READY)
                        .await
                }
                // It is ready again.
                _ => continue,
            };
            if is_done {
                self.metrics.count_eviction(zone_of(&node));
            } else {
                self.zones
                    .taint_queue(&zone_of(&node), self.context.monotonic_now())
                    .add(&name);
            }
        }
    }
}

/// Nodes are decoded for each check and not kept.
fn decode(entry: &Entry<Object>) -> Option<Object> {
    entry
        .read()
        .inspect_err(|error| tracing::warn!(%error, "node not decoded"))
        .ok()
}
