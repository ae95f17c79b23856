//! How is the scheduler doing? In Prometheus' text form, under upstream's names.

use parking_lot::Mutex;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use crate::queue::Depths;

/// What became of trying a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Scheduled,
    Unschedulable,
    Error,
}

const OUTCOMES: [(Outcome, &str); 3] = [
    (Outcome::Scheduled, "scheduled"),
    (Outcome::Unschedulable, "unschedulable"),
    (Outcome::Error, "error"),
];

/// Counts what happens. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Meter(Arc<Mutex<Counts>>);

#[derive(Debug, Default)]
struct Counts {
    attempts: [(u64, Duration); 3],
    depths: Depths,
    n_nodes: usize,
    n_pods: usize,
    n_assumed: usize,
    preemption_attempts: u64,
    victims: u64,
    dropped_events: u64,
}

impl Meter {
    fn change(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.0.lock());
    }

    /// A pod was tried.
    pub(crate) fn attempt(&self, outcome: Outcome, took: Duration) {
        self.change(|counts| {
            let (count, sum) = &mut counts.attempts[outcome as usize];
            *count += 1;
            *sum += took;
        });
    }

    /// Room was looked for, by letting so many pods go.
    pub(crate) fn preemption(&self, n_victims: usize) {
        self.change(|counts| {
            counts.preemption_attempts += 1;
            counts.victims += n_victims as u64;
        });
    }

    /// How much there is of everything.
    pub(crate) fn levels(
        &self,
        depths: Depths,
        [n_nodes, n_pods, n_assumed]: [usize; 3],
        dropped_events: u64,
    ) {
        self.change(|counts| {
            (counts.depths, counts.n_nodes, counts.n_pods) = (depths, n_nodes, n_pods);
            (counts.n_assumed, counts.dropped_events) = (n_assumed, dropped_events);
        });
    }

    /// All of it.
    pub(crate) fn text(&self) -> String {
        let counts = self.0.lock();
        let mut text = String::from("# TYPE scheduler_schedule_attempts_total counter\n");
        for (outcome, name) in OUTCOMES {
            let count = counts.attempts[outcome as usize].0;
            let _ = writeln!(
                text,
                "scheduler_schedule_attempts_total{{result=\"{name}\"}} {count}"
            );
        }
        text += "# TYPE scheduler_scheduling_attempt_duration_seconds summary\n";
        for (outcome, name) in OUTCOMES {
            let (count, sum) = counts.attempts[outcome as usize];
            let metric = "scheduler_scheduling_attempt_duration_seconds";
            let _ = writeln!(
                text,
                "{metric}_sum{{result=\"{name}\"}} {}",
                sum.as_secs_f64()
            );
            let _ = writeln!(text, "{metric}_count{{result=\"{name}\"}} {count}");
        }
        let Depths {
            active,
            backoff,
            unschedulable,
            gated,
        } = counts.depths;
        text += "# TYPE scheduler_pending_pods gauge\n";
        let waiting = unschedulable.saturating_sub(gated);
        for (queue, n) in [
            ("active", active),
            ("backoff", backoff),
            ("unschedulable", waiting),
            ("gated", gated),
        ] {
            let _ = writeln!(text, "scheduler_pending_pods{{queue=\"{queue}\"}} {n}");
        }
        text += "# TYPE scheduler_scheduler_cache_size gauge\n";
        for (what, n) in [
            ("nodes", counts.n_nodes),
            ("pods", counts.n_pods),
            ("assumed_pods", counts.n_assumed),
        ] {
            let _ = writeln!(
                text,
                "scheduler_scheduler_cache_size{{type=\"{what}\"}} {n}"
            );
        }
        let _ = writeln!(
            text,
            "# TYPE scheduler_preemption_attempts_total counter\nscheduler_preemption_attempts_total {}\n\
             # TYPE scheduler_preemption_victims_total counter\nscheduler_preemption_victims_total {}\n\
             # TYPE scheduler_dropped_events_total counter\nscheduler_dropped_events_total {}",
            counts.preemption_attempts, counts.victims, counts.dropped_events
        );
        text
    }
}
