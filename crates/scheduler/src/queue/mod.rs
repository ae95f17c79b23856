//! The scheduling queue: the active queue ordered by priority and time, the backoff queues, and the
//! unschedulable pods, which wait for a cluster event or a timeout.
//!
//! Events are applied between two attempts, never during one, so no event is missed while a pod is
//! scheduled: the pod is back in the queue before the next event.
//!
//! Invariant: a pod is in at most one sub-queue.

mod nominator;
mod queued_pod_info;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use mizzen_sdk::queue::report_retry;
use mizzen_value::Str;
use tokio::time::Instant;

use crate::model::PodInfo;
use crate::plugin::{Name, PluginNames};
use crate::{HashMap, HashSet};

pub(crate) use nominator::Nominator;
pub(crate) use queued_pod_info::QueuedPodInfo;
use queued_pod_info::{QueueOrder, SubQueue};

/// Back-off ends at whole windows, so that pods that failed at about the same time are retried by
/// priority (upstream: backoffQOrderingWindowDuration).
const BACKOFF_WINDOW: Duration = Duration::from_secs(1);
/// How often `delays.unschedulable` is checked.
const FLUSH_INTERVAL: Duration = Duration::from_secs(30);

/// Why a pod enters a sub-queue, if no cluster event is the cause (upstream: framework/events.go).
const UNSCHEDULED_POD_ADD: &str = "UnschedulablePodAdd";
const SCHEDULE_ATTEMPT_FAILURE: &str = "ScheduleAttemptFailure";
const BACKOFF_COMPLETE: &str = "BackoffComplete";
const POP_FROM_BACKOFF_Q: &str = "PopFromBackoffQ";
const FORCE_ACTIVATE: &str = "ForceActivate";
const UNSCHEDULABLE_TIMEOUT: &str = "UnschedulableTimeout";
const ASSIGNED_POD_DELETE: &str = "AssignedPodDelete";

/// How often pods entered a sub-queue, by the sub-queue and the event.
pub(crate) type IncomingPods = BTreeMap<(&'static str, &'static str), u64>;

/// How long pods wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BackoffDurations {
    /// `podInitialBackoffSeconds`; doubled after each failure.
    pub initial: Duration,
    /// `podMaxBackoffSeconds`.
    pub max: Duration,
    /// How long a pod stays unschedulable without a cluster event (upstream:
    /// DefaultPodMaxInUnschedulablePodsDuration).
    pub unschedulable: Duration,
}

impl Default for BackoffDurations {
    fn default() -> BackoffDurations {
        let seconds = Duration::from_secs;
        BackoffDurations {
            initial: seconds(1),
            max: seconds(10),
            unschedulable: seconds(300),
        }
    }
}

/// The pods to be scheduled.
pub(crate) struct SchedulingQueue {
    pods: HashMap<Str, QueuedPodInfo>,
    /// activeQ.
    active: BTreeSet<QueueOrder>,
    /// Part of backoffQ: rejected pods that an event requeued. Popped early if activeQ is empty.
    backoff: BTreeSet<(Instant, QueueOrder)>,
    /// Part of backoffQ: pods whose attempt ended with an error.
    error_backoff: BTreeSet<(Instant, QueueOrder)>,
    /// Unschedulable pods, by the plugins that rejected them.
    unschedulable: HashMap<PluginNames, HashSet<Str>>,
    pub nominated: Nominator,
    incoming: IncomingPods,
    delays: BackoffDurations,
    origin: Instant,
    next_flush: Instant,
    sequence: u64,
}

/// The number of pods in each sub-queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct QueueDepths {
    pub active: usize,
    pub backoff: usize,
    pub unschedulable: usize,
    pub gated: usize,
}

impl SchedulingQueue {
    pub(crate) fn new(delays: BackoffDurations) -> SchedulingQueue {
        let origin = Instant::now();
        SchedulingQueue {
            pods: HashMap::default(),
            active: BTreeSet::new(),
            backoff: BTreeSet::new(),
            error_backoff: BTreeSet::new(),
            unschedulable: HashMap::default(),
            nominated: Nominator::default(),
            incoming: IncomingPods::new(),
            delays,
            origin,
            next_flush: origin + FLUSH_INTERVAL,
            sequence: 0,
        }
    }

    pub(crate) fn depths(&self) -> QueueDepths {
        QueueDepths {
            active: self.active.len(),
            backoff: self.backoff.len() + self.error_backoff.len(),
            unschedulable: self.unschedulable.values().map(HashSet::len).sum(),
            gated: self
                .pods
                .values()
                .filter(|queued_pod| queued_pod.gating_plugin.is_some())
                .count(),
        }
    }

    pub(crate) fn incoming(&self) -> &IncomingPods {
        &self.incoming
    }

    /// Unschedulable pods by the plugin that rejected them and by profile.
    pub(crate) fn unschedulable_by_plugin(&self) -> BTreeMap<(Name, Str), usize> {
        let mut counts = BTreeMap::new();
        for (unschedulable_plugins, uids) in &self.unschedulable {
            let profiles = uids.iter().filter_map(|uid| self.pods.get(uid));
            for profile in profiles.map(|queued_pod| &queued_pod.pod.scheduler) {
                for name in Name::all().filter(|name| unschedulable_plugins.has(*name)) {
                    *counts.entry((name, profile.clone())).or_default() += 1;
                }
            }
        }
        counts
    }

    /// A queued pod.
    pub(crate) fn get(&self, uid: &str) -> Option<&QueuedPodInfo> {
        self.pods.get(uid)
    }

    /// Adds a new pod. `gating_plugin` is the plugin whose PreEnqueue rejects it.
    pub(crate) fn add(&mut self, pod: Arc<PodInfo>, gating_plugin: Option<Name>) {
        self.nominated.add(&pod, None);
        self.sequence += 1;
        let queued_pod = QueuedPodInfo::new(pod, Instant::now(), self.sequence);
        self.enqueue(queued_pod, gating_plugin, UNSCHEDULED_POD_ADD);
    }

    /// Moves a pod to activeQ, or keeps it unschedulable if PreEnqueue rejects it.
    fn enqueue(
        &mut self,
        mut queued_pod: QueuedPodInfo,
        gating_plugin: Option<Name>,
        event: &'static str,
    ) {
        queued_pod.gating_plugin = gating_plugin;
        if let Some(name) = gating_plugin {
            queued_pod.unschedulable_plugins.insert(name);
            queued_pod.was_flushed = false;
            self.insert_incoming(queued_pod, SubQueue::Unschedulable, event);
        } else {
            self.insert_incoming(queued_pod, SubQueue::Active, event);
        }
    }

    /// Updates a queued pod. Returns false if the pod is not queued.
    pub(crate) fn update(&mut self, pod: &Arc<PodInfo>) -> bool {
        let Some(mut queued_pod) = self.remove_entry(&pod.uid) else {
            return false;
        };
        let queue_name = queued_pod.queue_name;
        let old = std::mem::replace(&mut queued_pod.pod, pod.clone());
        self.nominated.update(&old, pod);
        self.insert_entry(queued_pod, queue_name);
        true
    }

    pub(crate) fn remove(&mut self, uid: &str) -> Option<Arc<PodInfo>> {
        self.nominated.remove(uid);
        self.remove_entry(uid).map(|queued_pod| queued_pod.pod)
    }

    /// Takes the next pod to schedule.
    pub(crate) fn pop(&mut self) -> Option<QueuedPodInfo> {
        let early = || self.backoff.first().map(|(_, order)| order);
        let uid = self.active.first().or_else(early)?.uid.clone();
        let mut queued_pod = self.remove_entry(&uid)?;
        if queued_pod.queue_name != SubQueue::Active {
            self.count_incoming("active", POP_FROM_BACKOFF_Q);
        }
        queued_pod.attempts += 1;
        queued_pod.first_attempt.get_or_insert_with(Instant::now);
        Some(queued_pod)
    }

    /// Puts back a pod whose attempt failed. Without rejecting plugins the failure was an error,
    /// and the pod is retried after its back-off (upstream: AddUnschedulableIfNotPresent).
    pub(crate) fn add_unschedulable(
        &mut self,
        mut queued_pod: QueuedPodInfo,
        unschedulable_plugins: PluginNames,
    ) {
        queued_pod.unschedulable_plugins = unschedulable_plugins;
        queued_pod.since = Instant::now();
        queued_pod.was_flushed = false;
        if unschedulable_plugins.is_empty() {
            queued_pod.n_errors += 1;
            let queue_name = self.backoff_queue(&queued_pod);
            self.insert_incoming(queued_pod, queue_name, SCHEDULE_ATTEMPT_FAILURE);
        } else {
            queued_pod.n_failures += 1;
            queued_pod.n_errors = 0;
            let queue_name = SubQueue::Unschedulable;
            self.insert_incoming(queued_pod, queue_name, SCHEDULE_ATTEMPT_FAILURE);
        }
    }

    /// Requeues the pods for which `event` may help. Only pods that one of `registered_plugins`
    /// rejected are looked at; `helps` evaluates the queueing hints of a pod's rejecting plugins;
    /// `gating_plugin` runs PreEnqueue.
    pub(crate) fn move_all_to_active_or_backoff(
        &mut self,
        event: &'static str,
        registered_plugins: PluginNames,
        helps: impl Fn(&PodInfo, PluginNames) -> bool,
        gating_plugin: impl Fn(&PodInfo) -> Option<Name>,
    ) {
        let concerned = self
            .unschedulable
            .iter()
            .filter(|(unschedulable_plugins, _)| {
                unschedulable_plugins.intersects(registered_plugins)
            });
        let concerned = concerned
            .flat_map(|(_, uids)| uids)
            .filter_map(|uid| self.pods.get(uid));
        let helped =
            concerned.filter(|queued_pod| helps(&queued_pod.pod, queued_pod.unschedulable_plugins));
        let uids: Vec<Str> = helped
            .map(|queued_pod| queued_pod.pod.uid.clone())
            .collect();
        for uid in uids {
            let gating_plugin = self
                .pods
                .get(&uid)
                .and_then(|queued_pod| gating_plugin(&queued_pod.pod));
            self.requeue(&uid, gating_plugin, event);
        }
    }

    /// Requeues one pod; it is retried when its back-off ends.
    fn requeue(&mut self, uid: &str, gating_plugin: Option<Name>, event: &'static str) {
        let Some(mut queued_pod) = self.remove_entry(uid) else {
            return;
        };
        if queued_pod.is_held {
            queued_pod.was_requeued = true;
            return self.insert_entry(queued_pod, SubQueue::Unschedulable);
        }
        let queue_name = self.backoff_queue(&queued_pod);
        match queue_name {
            _ if gating_plugin.is_some() => self.enqueue(queued_pod, gating_plugin, event),
            SubQueue::Backoff(until) | SubQueue::ErrorBackoff(until)
                if self.is_backing_off(until) =>
            {
                queued_pod.gating_plugin = None;
                self.insert_incoming(queued_pod, queue_name, event);
            }
            _ => self.enqueue(queued_pod, None, event),
        }
    }

    /// Moves a pod to activeQ at once.
    fn activate(&mut self, uid: &str, gating_plugin: Option<Name>, event: &'static str) {
        if let Some(queued_pod) = self.remove_entry(uid) {
            self.enqueue(queued_pod, gating_plugin, event);
        }
    }

    /// Keeps a preemptor back until its victims are deleted.
    pub(crate) fn hold(&mut self, uid: &str) {
        if let Some(queued_pod) = self.pods.get_mut(uid) {
            queued_pod.is_held = true;
        }
    }

    /// Ends [`hold`](SchedulingQueue::hold). If a victim could not be deleted, the preemptor is
    /// retried at once.
    pub(crate) fn release(&mut self, uid: &str, preempted: bool) {
        let Some(queued_pod) = self.pods.get_mut(uid) else {
            return;
        };
        queued_pod.is_held = false;
        let was_requeued = std::mem::take(&mut queued_pod.was_requeued);
        if !preempted {
            self.activate(uid, None, FORCE_ACTIVATE);
        } else if was_requeued {
            self.requeue(uid, None, ASSIGNED_POD_DELETE);
        }
    }

    /// Moves pods whose back-off or timeout has ended to activeQ.
    pub(crate) fn flush(&mut self, gating_plugin: impl Fn(&PodInfo) -> Option<Name>) {
        for error_backoff in [false, true] {
            while let Some(uid) = self.first_expired(error_backoff) {
                let gating_plugin = self
                    .pods
                    .get(&uid)
                    .and_then(|queued_pod| gating_plugin(&queued_pod.pod));
                self.activate(&uid, gating_plugin, BACKOFF_COMPLETE);
            }
        }
        let now = Instant::now();
        if now >= self.next_flush {
            self.next_flush = now + FLUSH_INTERVAL;
            self.flush_unschedulable(now, gating_plugin);
        }
    }

    fn flush_unschedulable(
        &mut self,
        now: Instant,
        gating_plugin: impl Fn(&PodInfo) -> Option<Name>,
    ) {
        let limit = self.delays.unschedulable;
        let stale = |queued_pod: &&mut QueuedPodInfo| {
            queued_pod.queue_name == SubQueue::Unschedulable
                && now - queued_pod.since.max(queued_pod.flushed) > limit
        };
        let uids: Vec<Str> = self
            .pods
            .values_mut()
            .filter(stale)
            .map(|queued_pod| {
                queued_pod.flushed = now;
                queued_pod.was_flushed = true;
                queued_pod.pod.uid.clone()
            })
            .collect();
        for uid in uids {
            let gating_plugin = self
                .pods
                .get(&uid)
                .and_then(|queued_pod| gating_plugin(&queued_pod.pod));
            self.requeue(&uid, gating_plugin, UNSCHEDULABLE_TIMEOUT);
        }
    }

    fn first_expired(&self, error_backoff: bool) -> Option<Str> {
        let set = if error_backoff {
            &self.error_backoff
        } else {
            &self.backoff
        };
        set.first()
            .filter(|(until, _)| !self.is_backing_off(*until))
            .map(|(_, order)| order.uid.clone())
    }

    /// When [`flush`](SchedulingQueue::flush) is to be called next.
    pub(crate) fn next_deadline(&self) -> Instant {
        let ends = [self.backoff.first(), self.error_backoff.first()]
            .into_iter()
            .flatten();
        ends.map(|(until, _)| *until + BACKOFF_WINDOW)
            .min()
            .map_or(self.next_flush, |end| end.min(self.next_flush))
    }

    /// The sub-queue in which a pod backs off.
    fn backoff_queue(&self, queued_pod: &QueuedPodInfo) -> SubQueue {
        let count = if queued_pod.n_errors > 0 {
            queued_pod.n_errors
        } else {
            queued_pod.n_failures
        };
        let Some(doublings) = count.checked_sub(1) else {
            return SubQueue::Active;
        };
        if self.delays.max.is_zero() {
            return SubQueue::Active;
        }
        let factor = 1u32
            .checked_shl(doublings)
            .filter(|factor| *factor > 0)
            .unwrap_or(u32::MAX);
        let until = self.align(
            queued_pod.since
                + self
                    .delays
                    .initial
                    .saturating_mul(factor)
                    .min(self.delays.max),
        );
        if queued_pod.unschedulable_plugins.is_empty() {
            SubQueue::ErrorBackoff(until)
        } else {
            SubQueue::Backoff(until)
        }
    }

    fn is_backing_off(&self, until: Instant) -> bool {
        until >= self.align(Instant::now())
    }

    /// The start of the window that contains `at`.
    fn align(&self, at: Instant) -> Instant {
        let since = at.saturating_duration_since(self.origin);
        self.origin
            + Duration::from_secs(
                since.as_secs() / BACKOFF_WINDOW.as_secs() * BACKOFF_WINDOW.as_secs(),
            )
    }

    /// Inserts a pod that enters a sub-queue because of `event`.
    fn insert_incoming(
        &mut self,
        queued_pod: QueuedPodInfo,
        queue_name: SubQueue,
        event: &'static str,
    ) {
        let label = match queue_name {
            SubQueue::Active => "active",
            SubQueue::Backoff(_) | SubQueue::ErrorBackoff(_) => "backoff",
            SubQueue::Unschedulable => "unschedulable",
        };
        self.count_incoming(label, event);
        self.insert_entry(queued_pod, queue_name);
    }

    fn count_incoming(&mut self, queue: &'static str, event: &'static str) {
        *self.incoming.entry((queue, event)).or_default() += 1;
    }

    fn insert_entry(&mut self, mut queued_pod: QueuedPodInfo, queue_name: SubQueue) {
        queued_pod.queue_name = queue_name;
        let order = queued_pod.order();
        match queue_name {
            SubQueue::Active => drop(self.active.insert(order)),
            SubQueue::Backoff(until) => {
                report_retry(until + BACKOFF_WINDOW);
                self.backoff.insert((until, order));
            }
            SubQueue::ErrorBackoff(until) => {
                report_retry(until + BACKOFF_WINDOW);
                self.error_backoff.insert((until, order));
            }
            SubQueue::Unschedulable => {
                let uid = queued_pod.pod.uid.clone();
                self.unschedulable
                    .entry(queued_pod.unschedulable_plugins)
                    .or_default()
                    .insert(uid);
            }
        }
        self.pods.insert(queued_pod.pod.uid.clone(), queued_pod);
    }

    fn remove_entry(&mut self, uid: &str) -> Option<QueuedPodInfo> {
        let queued_pod = self.pods.remove(uid)?;
        let order = queued_pod.order();
        match queued_pod.queue_name {
            SubQueue::Active => drop(self.active.remove(&order)),
            SubQueue::Backoff(until) => drop(self.backoff.remove(&(until, order))),
            SubQueue::ErrorBackoff(until) => drop(self.error_backoff.remove(&(until, order))),
            SubQueue::Unschedulable => {
                if let Some(uids) = self
                    .unschedulable
                    .get_mut(&queued_pod.unschedulable_plugins)
                {
                    uids.remove(&queued_pod.pod.uid);
                    if uids.is_empty() {
                        self.unschedulable.remove(&queued_pod.unschedulable_plugins);
                    }
                }
            }
        }
        Some(queued_pod)
    }
}

#[cfg(test)]
mod tests;
