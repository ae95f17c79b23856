//! Pods that the API has no more while their containers run: they were deleted by force. They are
//! stopped as any other pod, with hooks. Their grace period is that of the deletion if the agent has
//! seen its deletionTimestamp, otherwise that of their specification.
//!
//! Kubernetes: pkg/kubelet/pod_workers.go, `removeTerminatedWorker`.
//!
//! Invariant: nothing is written about them. Another pod may have their name by now.

use std::sync::Arc;

use mizzen_sdk::{Key, Object};
use mizzen_value::Str;

use super::{Agent, PodWorker};
use crate::moment::{Moment, to_value};
use crate::pod::{PodStage, SyncContext, spec};

/// A pod that is stopped.
pub(super) struct RemovedPod {
    key: Key,
    /// What the API had last, with a deletionTimestamp.
    object: Object,
    worker: PodWorker,
}

impl Agent {
    /// Removes what the node has of a pod that has gone, once it has ended.
    pub(super) fn remove(&mut self, key: &Key, mut worker: PodWorker) {
        let last = worker.object.take();
        let Some(object) = last.filter(|_| worker.pod.stage != PodStage::Finished) else {
            return self.settings.runtime.remove_pod(&worker.uid);
        };
        let mut object = Arc::unwrap_or_clone(object);
        terminate(&mut object, self.settings.now());
        (worker.next_sync, worker.n_failures) = (None, 0);
        let key = key.clone();
        self.removed.push(RemovedPod {
            key: key.clone(),
            object,
            worker,
        });
        self.sync_removed(&key);
    }

    /// Syncs the removed pods of a name.
    pub(super) fn sync_removed(&mut self, key: &Key) {
        if self.removed.iter().all(|pod| pod.key != *key) {
            return;
        }
        let mut removed = std::mem::take(&mut self.removed);
        removed.retain_mut(|pod| pod.key != *key || !self.stop_removed(pod));
        self.removed = removed;
    }

    /// Stops what runs of a removed pod; true once nothing does.
    fn stop_removed(&mut self, removed: &mut RemovedPod) -> bool {
        let now = self.settings.now();
        let RemovedPod {
            key,
            object,
            worker,
        } = removed;
        let host = self.settings.host(&worker.node);
        let common = self.settings.services.inputs(object);
        let context = self.settings.node_context(&host, &common);
        let mut sync = SyncContext::new(object, now, &*self.settings.runtime, context);
        let next_sync = worker.pod.advance(&mut sync);
        let events = sync.events;
        self.record_events(object, events);
        let has_ended = worker.pod.stage == PodStage::Finished;
        if has_ended {
            self.settings.runtime.remove_pod(&worker.uid);
        } else if let Some(at) = worker.schedule(next_sync, now) {
            self.timers.add(at, key.clone());
        }
        has_ended
    }

    /// The UIDs of removed pods.
    pub(super) fn removed_uids(&self) -> impl Iterator<Item = Str> + '_ {
        self.removed.iter().map(|pod| (&*pod.worker.uid).into())
    }
}

/// Sets the deletionTimestamp of a pod that has none: it ends within its own grace period.
pub(super) fn terminate(pod: &mut Object, now: Moment) {
    if pod.is_terminating() {
        return;
    }
    let grace = spec::grace(pod);
    let metadata = pod.entry("metadata");
    metadata.set("deletionTimestamp", to_value(now + grace));
    let seconds = i64::try_from(grace.as_secs()).unwrap_or(i64::MAX);
    metadata.set("deletionGracePeriodSeconds", seconds);
}
