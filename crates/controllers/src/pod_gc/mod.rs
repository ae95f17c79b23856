//! Pods that nobody takes away: too many that ended, those of nodes that are gone, those that go and never will be gone.
//!
//! Invariant: no round looks at all pods; indexes have those that matter.

mod plan;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use mizzen_sdk::api::{DeleteOptions, Patch};
use mizzen_sdk::cache::{DecodeError, by_field};
use mizzen_sdk::failure_log::FailureLog;
use mizzen_sdk::informer::Informer;
use mizzen_sdk::resource::{NODES, PODS};
use mizzen_sdk::write::is_not_found;
use mizzen_sdk::{Key, Object};
use tokio::time::{Instant, interval};

use crate::{Context, Error, Work, pod_index};
use plan::Quarantine;

/// How often pods are collected.
const PERIOD: Duration = Duration::from_secs(20);
/// How many pods are deleted at a time.
const BATCH: usize = 50;

/// The indexes of pods: values of these fields.
const PHASE: &str = "status.phase";
const DELETION: &str = "metadata.deletionTimestamp";

struct PodGc {
    context: Context,
    pods: Informer<Object>,
    nodes: Informer<Object>,
}

/// Sets up the loop.
pub(crate) fn start(context: &Context) -> Work {
    let context = context.named("pod-garbage-collector");
    let (pods, nodes) = (context.follow(&PODS), context.follow(&NODES));
    pod_index::add_node(&pods);
    for field in [PHASE, DELETION] {
        pods.add_index(field, by_field(field));
    }
    let collector = PodGc {
        context,
        pods,
        nodes,
    };
    Work::default().and(async move {
        let (mut ticks, mut quarantine) = (interval(PERIOD), Quarantine::default());
        let failures = FailureLog::after(Duration::ZERO);
        loop {
            ticks.tick().await;
            if let Err(error) = collector.collect(&mut quarantine).await
                && let Some(unlogged) = failures.failed()
            {
                tracing::warn!(%error, unlogged, "pods could not be garbage collected");
            }
        }
    })
}

impl PodGc {
    /// One round. What fails is tried again in the next.
    async fn collect(&self, quarantine: &mut Quarantine) -> Result<(), Error> {
        let threshold = self.context.options.terminated_pod_gc_threshold;
        if threshold > 0 {
            let ended = plan::beyond(self.pods_with(PHASE, plan::is_end)?, threshold);
            self.delete_all(ended, false).await;
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
        self.delete_all(stuck, false).await;
        for node in self.missing_nodes(quarantine) {
            if self
                .context
                .api
                .find(&NODES, &Key::cluster(node.as_str()))
                .await?
                .is_none()
            {
                self.delete_all(pod_index::on_node(&self.pods, &node)?, true)
                    .await;
            }
        }
        Ok(())
    }

    /// The pods whose field has a value that is `wanted`.
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
        let mut named = pod_index::nodes(&self.pods);
        named.retain(|node| {
            self.nodes
                .store()
                .get(&Key::cluster(node.as_str()))
                .is_none()
        });
        quarantine.pass(named.iter().map(String::as_str), Instant::now())
    }

    async fn delete_all(&self, pods: Vec<Arc<Object>>, are_orphans: bool) {
        for batch in pods.chunks(BATCH) {
            let outcomes = join_all(batch.iter().map(|pod| self.delete(pod, are_orphans))).await;
            for error in outcomes
                .into_iter()
                .filter_map(Result::err)
                .filter(|error| !is_not_found(error))
            {
                tracing::debug!(%error, "a pod could not be collected");
            }
        }
    }

    /// Lets a pod fail unless it has ended, so that whoever waits for it knows, and deletes it at once.
    async fn delete(&self, pod: &Object, is_orphan: bool) -> Result<(), kube::Error> {
        let (api, key) = (&self.context.api, pod.key());
        if let Some(change) = plan::failure(pod, is_orphan, &self.context.now_text()) {
            api.patch(&PODS, &key, "status", Patch::Strategic, &change)
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
