//! Eviction: a node that runs short of memory, disk or process IDs says so and ends pods; a pod
//! that uses more disk than its limits allow ends, too.
//!
//! | part | what it has |
//! |---|---|
//! | `threshold` | the signals, their thresholds, and which are met |
//! | `decide` | which pod is evicted, and its message |
//!
//! Kubernetes: pkg/kubelet/eviction.

mod decide;
mod threshold;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use mizzen_sdk::event::Note;
use mizzen_sdk::queue::Queue;
use mizzen_sdk::{Key, Object};
use mizzen_value::Str;
use tokio::time::{sleep, timeout};

use crate::agent::AgentHandle;
use crate::settings::NodeSettings;
use crate::stats::{MeasuredPods, NodeStats};
use decide::{Candidate, by_pressure, has_storage_limit, over_storage_limits};
pub(crate) use decide::{Eviction, rejection};
pub(crate) use threshold::NodePressure;
pub use threshold::{
    DEFAULT_HARD, EvictionConfig, Signal, Threshold, ThresholdValue, parse_thresholds,
};
use threshold::{ThresholdState, observations};

/// Kubernetes: how long the end of evicted pods is awaited, and how often it is looked at.
const CLEANUP: Duration = Duration::from_secs(30);
const CLEANUP_POLL: Duration = Duration::from_secs(1);
/// The longest measurement.
const MEASUREMENT: Duration = Duration::from_secs(60);

/// Evicts pods until the future is dropped; pends if nothing is measured. `nodes` has the keys of
/// nodes whose status may have changed.
pub(crate) async fn run(settings: Arc<NodeSettings>, agent: AgentHandle, nodes: Queue<Key>) {
    if settings.stats.is_none() {
        return std::future::pending().await;
    }
    let node = settings.name(0);
    let mut state = ThresholdState::default();
    loop {
        let evicted = match settings.decide(&node, &agent, &mut state).await {
            Some(evictions) => {
                nodes.add(Key::cluster(node.as_str()));
                evict(&agent, evictions).await
            }
            None => {
                tracing::warn!(node = %node, "cannot measure the node, pods are not evicted");
                HashSet::new()
            }
        };
        // After an eviction the node is measured again as soon as the pods have ended.
        if evicted.is_empty() {
            sleep(settings.eviction.interval).await;
            continue;
        }
        let ended = wait_for_cleanup(&agent, &node, &evicted);
        if timeout(CLEANUP, ended).await.is_err() {
            tracing::warn!(node = %node, "evicted pods have not ended in time");
        }
    }
}

/// Evicts pods. Returns the UIDs of those that end.
async fn evict(agent: &AgentHandle, evictions: Vec<Eviction>) -> HashSet<Str> {
    let mut evicted = HashSet::new();
    for eviction in evictions {
        let uid = eviction.uid.clone();
        tracing::warn!(pod = %eviction.key, message = eviction.message, "evicting a pod");
        if agent.evict(eviction).await {
            evicted.insert(uid);
        }
    }
    evicted
}

async fn wait_for_cleanup(agent: &AgentHandle, node: &Str, evicted: &HashSet<Str>) {
    loop {
        sleep(CLEANUP_POLL).await;
        let active = agent.active_pods(node.clone()).await;
        if !active.iter().any(|pod| evicted.contains(pod.uid())) {
            return;
        }
    }
}

fn candidates<'a>(pods: &'a [Object], stats: &'a NodeStats) -> Vec<Candidate<'a>> {
    let candidates = pods.iter().map(|pod| Candidate {
        pod,
        stats: stats.pods.iter().find(|stats| stats.uid == pod.uid()),
    });
    candidates.collect()
}

impl NodeSettings {
    /// Updates the conditions of the node, and returns the pods to evict; `None` if the node cannot
    /// be measured.
    async fn decide(
        &self,
        node: &Str,
        agent: &AgentHandle,
        state: &mut ThresholdState,
    ) -> Option<Vec<Eviction>> {
        let pods = agent.active_pods(node.clone()).await;
        let limited = pods.iter().filter(|pod| has_storage_limit(pod));
        let limited = limited.map(|pod| pod.uid().into()).collect();
        let stats = self.measure(MeasuredPods::Only(limited)).await?;
        let seen = observations(&stats);
        let (met, pressures) = state.observe(&self.eviction, &seen, self.now());
        self.set_pressures(node, pressures);
        let over = over_storage_limits(&candidates(&pods, &stats), stats.has_image_fs);
        let Some(threshold) = met.first().filter(|_| over.is_empty()) else {
            return Some(over);
        };
        let resource = threshold.signal.resource();
        let message = format!("Attempting to reclaim {resource}");
        self.record_about_node(node, Note::warning("EvictionThresholdMet", "", message));
        if self.reclaim_disk(threshold.signal, &stats).await {
            tracing::info!(node = %node, resource, "enough was reclaimed, no pod is evicted");
            return Some(Vec::new());
        }
        // All pods are measured only to choose one of them.
        let stats = self.measure(MeasuredPods::All).await?;
        let candidates = candidates(&pods, &stats);
        let chosen = by_pressure(&self.eviction, &met, &seen, candidates, stats.has_image_fs);
        if chosen.is_none() {
            tracing::warn!(node = %node, resource, "no pod can be evicted");
        }
        Some(chosen.into_iter().collect())
    }

    async fn measure(&self, pods: MeasuredPods) -> Option<NodeStats> {
        let measured = timeout(MEASUREMENT, self.node_stats(pods)).await;
        measured.ok().flatten()
    }

    /// Removes what no pod needs from the disk that runs short; true if that is enough. Kubernetes:
    /// eviction_manager.go, `reclaimNodeLevelResources`. On a disk without images and containers
    /// there is nothing to remove.
    async fn reclaim_disk(&self, signal: Signal, stats: &NodeStats) -> bool {
        let is_image_fs = matches!(signal, Signal::ImageFsAvailable | Signal::ImageFsInodesFree);
        let has_garbage =
            signal.pressure() == NodePressure::Disk && (is_image_fs || !stats.has_image_fs);
        if !has_garbage {
            return false;
        }
        self.runtime.reclaim_disk().await;
        let Some(stats) = self.measure(MeasuredPods::Only(HashSet::new())).await else {
            return false;
        };
        let seen = observations(&stats);
        let mut thresholds = self.eviction.thresholds.iter();
        !thresholds.any(|threshold| threshold.is_met(&seen, true))
    }

    fn set_pressures(&self, node: &str, pressures: Vec<NodePressure>) {
        let mut known = self.pressures.lock();
        if *known != pressures {
            let names: Vec<&str> = pressures.iter().map(|it| it.name()).collect();
            tracing::info!(
                node,
                conditions = names.join(" "),
                "the pressure on the node has changed"
            );
        }
        *known = pressures;
    }
}
