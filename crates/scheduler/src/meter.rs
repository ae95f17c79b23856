//! How is the scheduler doing? Under upstream's names (pkg/scheduler/metrics).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mizzen_sdk::metrics::{Collector, Families, Histogram, exponential};
use mizzen_value::Str;
use parking_lot::Mutex;

use crate::plugin::Name;
use crate::queue::Depths;

/// Upper bounds of attempts and of the algorithm, in seconds.
const ATTEMPT_BOUNDS: [f64; 15] = exponential(0.001, 2.0);
/// Upper bounds of the time until a pod was bound, in seconds.
const SLI_BOUNDS: [f64; 20] = exponential(0.01, 2.0);
/// Upper bounds of the number of victims.
const VICTIM_BOUNDS: [f64; 7] = exponential(1.0, 2.0);
/// Upper bounds of the number of attempts.
const COUNT_BOUNDS: [f64; 5] = exponential(1.0, 2.0);
/// Kubernetes: as many attempts and more have one label (schedule_one.go, getAttemptsLabel).
const MANY_ATTEMPTS: usize = 15;

/// What became of an attempt to schedule a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outcome {
    Scheduled,
    Unschedulable,
    Error,
}

impl Outcome {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Outcome::Scheduled => "scheduled",
            Outcome::Unschedulable => "unschedulable",
            Outcome::Error => "error",
        }
    }
}

/// Counts what happens. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Meter(Arc<Mutex<Counts>>);

#[derive(Debug)]
struct Counts {
    /// By outcome and profile.
    attempts: BTreeMap<(Outcome, Str), Histogram>,
    algorithm: Histogram,
    /// How often pods were tried until they were bound.
    tries: Histogram,
    /// The time from the first attempt until a pod was bound, by the number of attempts.
    sli: BTreeMap<usize, Histogram>,
    victims: Histogram,
    preemption_attempts: u64,
    levels: Levels,
}

/// How much there is of everything.
#[derive(Debug, Default)]
pub(crate) struct Levels {
    pub depths: Depths,
    pub n_nodes: usize,
    pub n_pods: usize,
    pub n_assumed: usize,
    pub dropped_events: u64,
    /// Pods that wait, by the plugin that rejected them and their profile.
    pub rejected: BTreeMap<(Name, Str), usize>,
}

impl Default for Counts {
    fn default() -> Counts {
        Counts {
            attempts: BTreeMap::new(),
            algorithm: Histogram::new(&ATTEMPT_BOUNDS),
            tries: Histogram::new(&COUNT_BOUNDS),
            sli: BTreeMap::new(),
            victims: Histogram::new(&VICTIM_BOUNDS),
            preemption_attempts: 0,
            levels: Levels::default(),
        }
    }
}

impl Meter {
    /// An attempt is over; of one that succeeded, when the pod was bound.
    pub(crate) fn attempt(&self, outcome: Outcome, profile: &Str, took: Duration) {
        let mut counts = self.0.lock();
        let attempts = counts.attempts.entry((outcome, profile.clone()));
        attempts
            .or_insert_with(|| Histogram::new(&ATTEMPT_BOUNDS))
            .observe(took.as_secs_f64());
    }

    /// A node was found, after so long.
    pub(crate) fn algorithm(&self, took: Duration) {
        self.0.lock().algorithm.observe(took.as_secs_f64());
    }

    /// A pod was bound with its so many-th attempt, so long after the first one began.
    pub(crate) fn bound(&self, attempts: u32, took: Duration) {
        let (mut counts, attempts) = (self.0.lock(), attempts as usize);
        counts.tries.observe(attempts as f64);
        let sli = counts.sli.entry(attempts.min(MANY_ATTEMPTS));
        sli.or_insert_with(|| Histogram::new(&SLI_BOUNDS))
            .observe(took.as_secs_f64());
    }

    /// Victims were looked for, and so many were found.
    pub(crate) fn preemption(&self, n_victims: usize) {
        let mut counts = self.0.lock();
        counts.preemption_attempts += 1;
        if n_victims > 0 {
            counts.victims.observe(n_victims as f64);
        }
    }

    /// How much there is of everything.
    pub(crate) fn levels(&self, levels: Levels) {
        self.0.lock().levels = levels;
    }
}

impl Collector for Meter {
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
            .add_histogram(&[], &counts.tries);
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
        counts.levels.collect(families);
    }
}

impl Levels {
    fn collect(&self, families: &mut Families) {
        let Depths {
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
