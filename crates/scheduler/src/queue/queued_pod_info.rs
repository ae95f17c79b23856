//! A queued pod and its history (upstream: QueuedPodInfo).

use std::cmp::Reverse;
use std::sync::Arc;

use mizzen_value::Str;
use tokio::time::Instant;

use crate::model::PodInfo;
use crate::plugin::{Name, PluginNames};

/// The sub-queue of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SubQueue {
    /// activeQ.
    Active,
    /// backoffQ until then, or until activeQ is empty.
    Backoff(Instant),
    /// backoffQ until then.
    ErrorBackoff(Instant),
    /// Until a cluster event or the timeout.
    Unschedulable,
}

/// The QueueSort order: by priority, then by time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct QueueOrder {
    priority: Reverse<i32>,
    since: Instant,
    sequence: u64,
    pub uid: Str,
}

/// A queued pod.
#[derive(Debug)]
pub(crate) struct QueuedPodInfo {
    pub pod: Arc<PodInfo>,
    pub(super) queue_name: SubQueue,
    /// When it was queued or failed last.
    pub(super) since: Instant,
    /// When its timeout ended last.
    pub(super) flushed: Instant,
    /// Whether it is queued because its timeout ended.
    pub was_flushed: bool,
    sequence: u64,
    /// The number of attempts.
    pub attempts: u32,
    /// When the first attempt began.
    pub first_attempt: Option<Instant>,
    pub(super) n_failures: u32,
    /// Consecutive errors.
    pub(super) n_errors: u32,
    /// The plugins that rejected it in the last attempt.
    pub unschedulable_plugins: PluginNames,
    /// The plugin whose PreEnqueue rejects it.
    pub(super) gating_plugin: Option<Name>,
    /// Whether its victims are being deleted.
    pub(super) is_held: bool,
    /// Whether an event requeued it meanwhile.
    pub(super) was_requeued: bool,
}

impl QueuedPodInfo {
    pub(super) fn new(pod: Arc<PodInfo>, now: Instant, sequence: u64) -> QueuedPodInfo {
        QueuedPodInfo {
            pod,
            queue_name: SubQueue::Active,
            since: now,
            flushed: now,
            was_flushed: false,
            sequence,
            attempts: 0,
            first_attempt: None,
            n_failures: 0,
            n_errors: 0,
            unschedulable_plugins: PluginNames::default(),
            gating_plugin: None,
            is_held: false,
            was_requeued: false,
        }
    }

    pub(super) fn order(&self) -> QueueOrder {
        QueueOrder {
            priority: Reverse(self.pod.priority),
            since: self.since,
            sequence: self.sequence,
            uid: self.pod.uid.clone(),
        }
    }
}
