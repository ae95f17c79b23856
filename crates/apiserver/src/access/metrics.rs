//! What is counted of decisions, under upstream's names.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mizzen_object::Str;
use tokio::time::Instant;

use super::Decision;
use crate::metrics::{Histogram, Reloads, head, lock};
use crate::outgoing::PostError;

/// Upper bounds of how long webhooks take, in seconds, as upstream has them.
const CALLS: [f64; 11] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];
/// The same of conditions.
const CONDITIONS: [f64; 7] = [0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25];

/// All that is counted.
pub(crate) struct Counts {
    decisions: Mutex<BTreeMap<(&'static str, Str), Arc<Decisions>>>,
    calls: Mutex<BTreeMap<(Str, &'static str), Histogram>>,
    failed_open: Mutex<BTreeMap<(Str, &'static str), u64>>,
    conditions: Mutex<BTreeMap<Str, Conditions>>,
    pub(super) reloads: Reloads,
}

impl Default for Counts {
    fn default() -> Counts {
        Counts {
            decisions: Mutex::default(),
            calls: Mutex::default(),
            failed_open: Mutex::default(),
            conditions: Mutex::default(),
            reloads: Reloads::new("authorization"),
        }
    }
}

/// Decisions of one authorizer.
#[derive(Debug, Default)]
pub(crate) struct Decisions {
    allowed: AtomicU64,
    denied: AtomicU64,
}

struct Conditions {
    took: Histogram,
    errors: u64,
    exclusions: u64,
}

/// What became of a call to a webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Success,
    Error,
    Timeout,
    /// The asker went away.
    Canceled,
}

impl Outcome {
    /// What became of a call that failed.
    pub(super) fn of(error: &PostError) -> Outcome {
        if error.is_late() {
            Outcome::Timeout
        } else {
            Outcome::Error
        }
    }

    fn word(self) -> &'static str {
        match self {
            Outcome::Success => "success",
            Outcome::Error => "error",
            Outcome::Timeout => "timeout",
            Outcome::Canceled => "canceled",
        }
    }
}

impl Decisions {
    /// Kubernetes: only a decision that ends the matter is counted.
    pub(super) fn count(&self, decision: &Decision) {
        match decision {
            Decision::Allow(_) => self.allowed.fetch_add(1, Ordering::Relaxed),
            Decision::Deny(_) => self.denied.fetch_add(1, Ordering::Relaxed),
            Decision::NoOpinion(_) => 0,
        };
    }
}

/// A call to a webhook under way. If it is dropped before it ends, the asker went away.
pub(super) struct Evaluation<'a> {
    counts: &'a Counts,
    name: &'a Str,
    started: Instant,
    outcome: Outcome,
}

impl Evaluation<'_> {
    pub(super) fn end(mut self, outcome: Outcome) {
        self.outcome = outcome;
    }
}

impl Drop for Evaluation<'_> {
    fn drop(&mut self) {
        let mut calls = lock(&self.counts.calls);
        let histogram = calls.entry((self.name.clone(), self.outcome.word()));
        histogram
            .or_insert_with(|| Histogram::new(&CALLS))
            .observe(self.started.elapsed().as_secs_f64());
    }
}

impl Counts {
    /// Where the decisions of an authorizer are counted.
    pub(super) fn decisions(&self, mode: &'static str, name: &Str) -> Arc<Decisions> {
        lock(&self.decisions)
            .entry((mode, name.clone()))
            .or_default()
            .clone()
    }

    /// A call begins.
    pub(super) fn evaluation<'a>(&'a self, name: &'a Str) -> Evaluation<'a> {
        Evaluation {
            counts: self,
            name,
            started: Instant::now(),
            outcome: Outcome::Canceled,
        }
    }

    /// A webhook did not answer, and others were asked.
    pub(super) fn failed_open(&self, name: &Str, outcome: Outcome) {
        *lock(&self.failed_open)
            .entry((name.clone(), outcome.word()))
            .or_default() += 1;
    }

    /// The conditions of a webhook were evaluated.
    pub(super) fn conditions(&self, name: &Str, started: Instant, outcome: &Result<bool, String>) {
        let mut all = lock(&self.conditions);
        let fresh = || Conditions {
            took: Histogram::new(&CONDITIONS),
            errors: 0,
            exclusions: 0,
        };
        let own = all.entry(name.clone()).or_insert_with(fresh);
        own.took.observe(started.elapsed().as_secs_f64());
        own.errors += u64::from(outcome.is_err());
        own.exclusions += u64::from(matches!(outcome, Ok(false)));
    }

    /// All of it in Prometheus' text form.
    pub(crate) fn write(&self, out: &mut String) {
        self.write_decisions(out);
        self.write_calls(out);
        self.write_conditions(out);
        self.reloads.write(out);
    }

    fn write_decisions(&self, out: &mut String) {
        const NAME: &str = "apiserver_authorization_decisions_total";
        head(
            out,
            NAME,
            "counter",
            "Decisions that ended the matter, by authorizer.",
        );
        for ((mode, name), decisions) in lock(&self.decisions).iter() {
            for (word, count) in [
                ("allowed", &decisions.allowed),
                ("denied", &decisions.denied),
            ] {
                let count = count.load(Ordering::Relaxed);
                if count > 0 {
                    let labels = format!("decision=\"{word}\",name=\"{name}\",type=\"{mode}\"");
                    let _ = writeln!(out, "{NAME}{{{labels}}} {count}");
                }
            }
        }
    }

    fn write_calls(&self, out: &mut String) {
        const CALLED: &str = "apiserver_authorization_webhook_evaluations_total";
        const TOOK: &str = "apiserver_authorization_webhook_duration_seconds";
        const OPEN: &str = "apiserver_authorization_webhook_evaluations_fail_open_total";
        let labels = |(name, result): &(Str, &str)| format!("name=\"{name}\",result=\"{result}\"");
        let calls = lock(&self.calls);
        head(out, CALLED, "counter", "Calls to authorization webhooks.");
        for (key, histogram) in calls.iter() {
            let _ = writeln!(out, "{CALLED}{{{}}} {}", labels(key), histogram.count());
        }
        head(
            out,
            TOOK,
            "histogram",
            "How long calls to authorization webhooks took.",
        );
        for (key, histogram) in calls.iter() {
            histogram.write(out, TOOK, &labels(key));
        }
        head(
            out,
            OPEN,
            "counter",
            "Webhooks that did not answer and so had no opinion.",
        );
        for (key, count) in lock(&self.failed_open).iter() {
            let _ = writeln!(out, "{OPEN}{{{}}} {count}", labels(key));
        }
    }

    fn write_conditions(&self, out: &mut String) {
        const TOOK: &str = "apiserver_authorization_match_condition_evaluation_seconds";
        const ERRORS: &str = "apiserver_authorization_match_condition_evaluation_errors_total";
        const EXCLUSIONS: &str = "apiserver_authorization_match_condition_exclusions_total";
        let labels = |name: &Str| format!("name=\"{name}\",type=\"Webhook\"");
        let conditions = lock(&self.conditions);
        head(
            out,
            TOOK,
            "histogram",
            "How long the conditions of webhooks took.",
        );
        conditions
            .iter()
            .for_each(|(name, own)| own.took.write(out, TOOK, &labels(name)));
        head(
            out,
            ERRORS,
            "counter",
            "Conditions of webhooks that could not be evaluated.",
        );
        for (name, own) in conditions.iter().filter(|(_, own)| own.errors > 0) {
            let _ = writeln!(out, "{ERRORS}{{{}}} {}", labels(name), own.errors);
        }
        head(
            out,
            EXCLUSIONS,
            "counter",
            "Webhooks that were not asked because of their conditions.",
        );
        for (name, own) in conditions.iter().filter(|(_, own)| own.exclusions > 0) {
            let _ = writeln!(out, "{EXCLUSIONS}{{{}}} {}", labels(name), own.exclusions);
        }
    }
}
