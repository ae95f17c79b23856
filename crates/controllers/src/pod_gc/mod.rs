//! The pod garbage collector: deletes terminated pods beyond a threshold, pods of nodes that do not
//! exist, and terminating pods without a kubelet.
//!
//! Invariant: no sync lists all pods; indexes have the candidates.

mod plan;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use mizzen_sdk::cache::{DecodeError, by_field};
use mizzen_sdk::dynamic::{DeleteOptions, PatchType};
use mizzen_sdk::failure_log::FailureLog;
use mizzen_sdk::informer::Informer;
use mizzen_sdk::resource::{NODES, PODS};
use mizzen_sdk::write::is_not_found;
use mizzen_sdk::{Key, Object};
use tokio::time::{Instant, interval};

use crate::{Controller, ControllerContext, Error, pod_index};
use plan::Quarantine;

/// How often pods are collected.
const PERIOD: Duration = Duration::from_secs(20);
/// How many pods are deleted concurrently.
const BATCH: usize = 50;

/// The indexed fields.
const PHASE: &str = "status.phase";
const DELETION: &str = "metadata.deletionTimestamp";

struct PodGc {
    context: ControllerContext,
    pods: Informer<Object>,
    nodes: Informer<Object>,
}

pub(crate) fn start(context: &ControllerContext) -> Controller {
    let context = context.named("pod-garbage-collector");
    let (pods, nodes) = (context.informer(&PODS), context.informer(&NODES));
    pod_index::add_node_index(&pods);
    for field in [PHASE, DELETION] {
        pods.add_index(field, by_field(field));
    }
    let collector = PodGc {
        context,
        pods,
        nodes,
    };
    Controller::new(&collector.context).with_task(async move {
        let (mut ticks, mut quarantine) = (interval(PERIOD), Quarantine::default());
        let failures = FailureLog::after(Duration::ZERO);
        loop {
            ticks.tick().await;
            if let Err(error) = collector.gc(&mut quarantine).await
                && let Some(unlogged) = failures.failed()
            {
                tracing::warn!(%error, unlogged, "pod garbage collection failed");
            }
        }
    })
}

impl PodGc {
    /// One collection. Failures are retried by the next one.
    async fn gc(&self, quarantine: &mut Quarantine) -> Result<(), Error> {
        let threshold = self.context.options.terminated_pod_gc_threshold;
        if threshold > 0 {
            let ended = plan::over_threshold(self.pods_with(PHASE, plan::is_end)?, threshold);
            self.delete_pods(ended, false).await;
        }
        let mut stuck = self.pods_with(DELETION, |_| true)?;
        stuck.retain(|pod| {
            let node = self
                .nodes
                .lister()
                .get(pod["spec"]["nodeName"].str())
                .ok()
                .flatten();
            plan::is_stuck(pod, node.as_deref())
        });
        self.delete_pods(stuck, false).await;
        for node in self.missing_nodes(quarantine) {
            if self
                .context
                .api
                .find(&NODES, &Key::cluster(node.as_str()))
                .await?
                .is_none()
            {
                self.delete_pods(pod_index::pods_on_node(&self.pods, &node)?, true)
                    .await;
            }
        }
        Ok(())
    }

    /// The pods whose indexed field is `wanted`.
    fn pods_with(
        &self,
        index: &str,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<Vec<Arc<Object>>, DecodeError> {
        let pods = self.pods.store().snapshot();
        let values: Vec<&str> = pods
            .index_values(index)
            .into_iter()
            .flatten()
            .filter(|value| wanted(value))
            .collect();
        let found = values
            .into_iter()
            .flat_map(|value| pods.by_index(index, value).into_iter().flatten());
        found.map(|entry| entry.object()).collect()
    }

    fn missing_nodes(&self, quarantine: &mut Quarantine) -> Vec<String> {
        let mut named = pod_index::indexed_nodes(&self.pods);
        named.retain(|node| {
            self.nodes
                .store()
                .get(&Key::cluster(node.as_str()))
                .is_none()
        });
        quarantine.update(named.iter().map(String::as_str), Instant::now())
    }

    async fn delete_pods(&self, pods: Vec<Arc<Object>>, are_orphans: bool) {
        for batch in pods.chunks(BATCH) {
            let outcomes = join_all(
                batch
                    .iter()
                    .map(|pod| self.mark_failed_and_delete(pod, are_orphans)),
            )
            .await;
            for error in outcomes
                .into_iter()
                .filter_map(Result::err)
                .filter(|error| !is_not_found(error))
            {
                tracing::debug!(%error, "pod not deleted");
            }
        }
    }

    /// Sets the phase to Failed unless the pod has finished, and deletes the pod without a grace
    /// period.
    async fn mark_failed_and_delete(
        &self,
        pod: &Object,
        is_orphan: bool,
    ) -> Result<(), kube::Error> {
        let (api, key) = (&self.context.api, pod.key());
        if let Some(change) = plan::failed_status(pod, is_orphan, &self.context.now_text()) {
            api.patch(&PODS, &key, "status", PatchType::Strategic, &change)
                .await?;
        }
        let options = DeleteOptions {
            uid: Some(pod.uid()),
            grace_seconds: Some(0),
            ..DeleteOptions::default()
        };
        api.delete(&PODS, &key, &options).await.map(drop)
    }
}
