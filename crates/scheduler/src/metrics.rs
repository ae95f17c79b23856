//! Metrics of the scheduler, under upstream's names (pkg/scheduler/metrics).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mizzen_sdk::metrics::{Collector, Families, Histogram, exponential};
use mizzen_value::Str;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::plugin::Name;
use crate::queue::{IncomingPods, QueueDepths, QueuedPodInfo};

/// Upper bounds of attempts and of the algorithm, in seconds.
const ATTEMPT_BOUNDS: [f64; 15] = exponential(0.001, 2.0);
/// Upper bounds of the time until a pod was bound, in seconds.
const SLI_BOUNDS: [f64; 20] = exponential(0.01, 2.0);
/// Upper bounds of the number of victims.
const VICTIM_BOUNDS: [f64; 7] = exponential(1.0, 2.0);
/// Upper bounds of the number of attempts.
const COUNT_BOUNDS: [f64; 5] = exponential(1.0, 2.0);
/// Upper bounds of the handling of an event, in seconds.
const EVENT_BOUNDS: [f64; 12] = exponential(0.0001, 2.0);
/// Kubernetes: from this number on all attempts share one label (schedule_one.go,
/// getAttemptsLabel).
const MANY_ATTEMPTS: usize = 15;

/// The result of an attempt to schedule a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AttemptResult {
    Scheduled,
    Unschedulable,
    Error,
}

impl AttemptResult {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            AttemptResult::Scheduled => "scheduled",
            AttemptResult::Unschedulable => "unschedulable",
            AttemptResult::Error => "error",
        }
    }
}

/// The scheduler's metrics. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct SchedulerMetrics(Arc<Mutex<RecordedMetrics>>);

#[derive(Debug)]
struct RecordedMetrics {
    /// By outcome and profile.
    attempts: BTreeMap<(AttemptResult, Str), Histogram>,
    algorithm: Histogram,
    /// The number of attempts until a pod was bound.
    attempts_until_bound: Histogram,
    /// The time from the first attempt until a pod was bound, by number of attempts.
    sli: BTreeMap<usize, Histogram>,
    /// Pods that were bound after their timeout in the unschedulable pods had ended.
    bound_after_flush: u64,
    /// By event.
    events: BTreeMap<&'static str, Histogram>,
    victims: Histogram,
    /// By whether all victims were deleted.
    victim_deletions: BTreeMap<bool, Histogram>,
    preemption_attempts: u64,
    gauges: GaugeValues,
}

/// The current values of all gauges.
#[derive(Debug, Default)]
pub(crate) struct GaugeValues {
    pub depths: QueueDepths,
    pub incoming: IncomingPods,
    pub n_nodes: usize,
    pub n_pods: usize,
    pub n_assumed: usize,
    pub dropped_events: u64,
    /// Unschedulable pods, by the plugin that rejected them and their profile.
    pub rejected: BTreeMap<(Name, Str), usize>,
}

impl Default for RecordedMetrics {
    fn default() -> RecordedMetrics {
        RecordedMetrics {
            attempts: BTreeMap::new(),
            algorithm: Histogram::new(&ATTEMPT_BOUNDS),
            attempts_until_bound: Histogram::new(&COUNT_BOUNDS),
            sli: BTreeMap::new(),
            bound_after_flush: 0,
            events: BTreeMap::new(),
            victims: Histogram::new(&VICTIM_BOUNDS),
            victim_deletions: BTreeMap::new(),
            preemption_attempts: 0,
            gauges: GaugeValues::default(),
        }
    }
}

impl SchedulerMetrics {
    /// Counts an attempt that has ended; a successful one ends when the pod is bound.
    pub(crate) fn observe_attempt(&self, outcome: AttemptResult, profile: &Str, took: Duration) {
        let mut counts = self.0.lock();
        let attempts = counts.attempts.entry((outcome, profile.clone()));
        attempts
            .or_insert_with(|| Histogram::new(&ATTEMPT_BOUNDS))
            .observe(took.as_secs_f64());
    }

    /// Observes how long it took to find a node.
    pub(crate) fn observe_algorithm(&self, took: Duration) {
        self.0.lock().algorithm.observe(took.as_secs_f64());
    }

    /// Observes a pod that was bound by the attempt that began at `attempt_started`.
    pub(crate) fn observe_bound(&self, pod: &QueuedPodInfo, attempt_started: Instant) {
        let took = pod.first_attempt.unwrap_or(attempt_started).elapsed();
        let (mut counts, attempts) = (self.0.lock(), pod.attempts as usize);
        counts.attempts_until_bound.observe(attempts as f64);
        counts.bound_after_flush += u64::from(pod.was_flushed);
        let sli = counts.sli.entry(attempts.min(MANY_ATTEMPTS));
        sli.or_insert_with(|| Histogram::new(&SLI_BOUNDS))
            .observe(took.as_secs_f64());
    }

    /// Observes how long it took to requeue the pods that an event may help.
    pub(crate) fn observe_event(&self, event: &'static str, took: Duration) {
        let mut counts = self.0.lock();
        let events = counts.events.entry(event);
        events
            .or_insert_with(|| Histogram::new(&EVENT_BOUNDS))
            .observe(took.as_secs_f64());
    }

    /// Observes the deletion of all victims of a preemptor.
    pub(crate) fn observe_victims_deleted(&self, is_done: bool, took: Duration) {
        let mut counts = self.0.lock();
        let deletions = counts.victim_deletions.entry(is_done);
        deletions
            .or_insert_with(|| Histogram::new(&SLI_BOUNDS))
            .observe(took.as_secs_f64());
    }

    /// Counts an attempt to preempt.
    pub(crate) fn observe_preemption(&self, n_victims: usize) {
        let mut counts = self.0.lock();
        counts.preemption_attempts += 1;
        if n_victims > 0 {
            counts.victims.observe(n_victims as f64);
        }
    }

    pub(crate) fn set_gauges(&self, gauges: GaugeValues) {
        self.0.lock().gauges = gauges;
    }
}

impl Collector for SchedulerMetrics {
    fn collect(&self, families: &mut Families) {
        let counts = self.0.lock();
        for ((outcome, profile), took) in &counts.attempts {
            let labels: &[_] = &[("profile", &**profile), ("result", outcome.as_str())];
            families
                .counter(
                    "scheduler_schedule_attempts_total",
                    "Attempts to schedule a pod, by result.",
                )
                .add(labels, took.count());
            families
                .histogram(
                    "scheduler_scheduling_attempt_duration_seconds",
                    "How long attempts to schedule a pod took, binding included.",
                )
                .add_histogram(labels, took);
        }
        families
            .histogram(
                "scheduler_scheduling_algorithm_duration_seconds",
                "How long it took to find a node.",
            )
            .add_histogram(&[], &counts.algorithm);
        families
            .histogram(
                "scheduler_pod_scheduling_attempts",
                "Attempts that were needed to schedule a pod.",
            )
            .add_histogram(&[], &counts.attempts_until_bound);
        for (attempts, took) in &counts.sli {
            let label = match *attempts {
                MANY_ATTEMPTS.. => format!("{MANY_ATTEMPTS}+"),
                attempts => attempts.to_string(),
            };
            families
                .histogram(
                    "scheduler_pod_scheduling_sli_duration_seconds",
                    "How long it took to schedule a pod, from its first attempt on.",
                )
                .add_histogram(&[("attempts", &*label)], took);
        }
        families
            .counter(
                "scheduler_preemption_attempts_total",
                "Attempts to find pods that can be preempted.",
            )
            .add(&[], counts.preemption_attempts);
        families
            .histogram(
                "scheduler_preemption_victims",
                "Pods that were preempted at a time.",
            )
            .add_histogram(&[], &counts.victims);
        for (is_done, took) in &counts.victim_deletions {
            let labels = [("result", if *is_done { "success" } else { "error" })];
            families
                .histogram(
                    "scheduler_preemption_goroutines_duration_seconds",
                    "How long it took to delete the victims of a preemptor.",
                )
                .add_histogram(&labels, took);
            families
                .counter(
                    "scheduler_preemption_goroutines_execution_total",
                    "Preemptors whose victims were deleted, by result.",
                )
                .add(&labels, took.count());
        }
        for (event, took) in &counts.events {
            families
                .histogram(
                    "scheduler_event_handling_duration_seconds",
                    "How long it took to requeue the pods that an event may help.",
                )
                .add_histogram(&[("event", event)], took);
        }
        families
            .counter(
                "scheduler_pod_scheduled_after_flush_total",
                "Pods that were scheduled after their timeout as unschedulable pods.",
            )
            .add(&[], counts.bound_after_flush);
        counts.gauges.collect(families);
    }
}

impl GaugeValues {
    fn collect(&self, families: &mut Families) {
        let QueueDepths {
            active,
            backoff,
            unschedulable,
            gated,
        } = self.depths;
        let pending = families.gauge("scheduler_pending_pods", "Pods that wait, by queue.");
        for (queue, n) in [
            ("active", active),
            ("backoff", backoff),
            ("unschedulable", unschedulable.saturating_sub(gated)),
            ("gated", gated),
        ] {
            pending.add(&[("queue", queue)], n);
        }
        let incoming = families.counter(
            "scheduler_queue_incoming_pods_total",
            "Pods that entered a queue, by queue and event.",
        );
        for ((queue, event), n) in &self.incoming {
            incoming.add(&[("queue", queue), ("event", event)], *n);
        }
        families
            .gauge(
                "scheduler_goroutines",
                "Tasks beside the scheduling loop, by operation.",
            )
            .add(&[("operation", "binding")], self.n_assumed);
        let sizes = families.gauge(
            "scheduler_cache_size",
            "Nodes, pods and assumed pods in the scheduler's cache.",
        );
        for (what, n) in [
            ("nodes", self.n_nodes),
            ("pods", self.n_pods),
            ("assumed_pods", self.n_assumed),
        ] {
            sizes.add(&[("type", what)], n);
        }
        let rejected = families.gauge(
            "scheduler_unschedulable_pods",
            "Pods that wait, by the plugin that rejected them; a pod counts for each of its plugins.",
        );
        for ((plugin, profile), n) in &self.rejected {
            rejected.add(&[("plugin", plugin.as_str()), ("profile", profile)], *n);
        }
        families
            .counter(
                "scheduler_dropped_events_total",
                "Events that were not recorded because too many waited.",
            )
            .add(&[], self.dropped_events);
    }
}
