//! Metrics of authorization, under upstream's names.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mizzen_metrics::{Families, Histogram, Reloads, Timings, exponential};
use mizzen_outgoing::PostError;
use mizzen_value::Str;
use tokio::time::Instant;

use super::Decision;

/// Buckets of webhook durations, in seconds, as upstream has them.
const CALLS: [f64; 11] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];
/// Buckets of match condition durations, in seconds.
const CONDITIONS: [f64; 7] = [0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25];

/// Buckets of the duration of a decision, in seconds.
const DECISIONS: [f64; 15] = exponential(0.001, 2.0);

pub(crate) struct AuthorizationMetrics {
    attempts: [Timings; 4],
    decisions: Mutex<BTreeMap<(&'static str, Str), Arc<Decisions>>>,
    calls: Mutex<BTreeMap<(Str, &'static str), Histogram>>,
    failed_open: Mutex<BTreeMap<(Str, &'static str), u64>>,
    conditions: Mutex<BTreeMap<Str, MatchConditionMetrics>>,
    pub(super) reloads: Reloads,
}

impl Default for AuthorizationMetrics {
    fn default() -> AuthorizationMetrics {
        AuthorizationMetrics {
            attempts: [(); 4].map(|()| Timings::new(&DECISIONS)),
            decisions: Mutex::default(),
            calls: Mutex::default(),
            failed_open: Mutex::default(),
            conditions: Mutex::default(),
            reloads: Reloads::new("authorization"),
        }
    }
}

/// The outcome of the authorization of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AuthorizationOutcome {
    Allowed,
    Denied,
    NoOpinion,
    Error,
}

/// The final decisions of one authorizer.
#[derive(Debug, Default)]
pub(crate) struct Decisions {
    allowed: AtomicU64,
    denied: AtomicU64,
}

struct MatchConditionMetrics {
    took: Histogram,
    errors: u64,
    exclusions: u64,
}

/// The outcome of a webhook call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WebhookOutcome {
    Success,
    Error,
    Timeout,
    /// The request was cancelled.
    Canceled,
}

impl WebhookOutcome {
    pub(super) fn from_error(error: &PostError) -> WebhookOutcome {
        if error.is_timeout() {
            WebhookOutcome::Timeout
        } else {
            WebhookOutcome::Error
        }
    }

    fn label(self) -> &'static str {
        match self {
            WebhookOutcome::Success => "success",
            WebhookOutcome::Error => "error",
            WebhookOutcome::Timeout => "timeout",
            WebhookOutcome::Canceled => "canceled",
        }
    }
}

impl Decisions {
    /// Kubernetes: only final decisions are counted.
    pub(super) fn record(&self, decision: &Decision) {
        match decision {
            Decision::Allow(_) => self.allowed.fetch_add(1, Ordering::Relaxed),
            Decision::Deny(_) => self.denied.fetch_add(1, Ordering::Relaxed),
            Decision::NoOpinion(_) => 0,
        };
    }
}

/// Times a webhook call. If it is dropped early, the request was cancelled.
pub(super) struct WebhookTimer<'a> {
    counts: &'a AuthorizationMetrics,
    name: &'a Str,
    started: Instant,
    outcome: WebhookOutcome,
}

impl WebhookTimer<'_> {
    pub(super) fn end(mut self, outcome: WebhookOutcome) {
        self.outcome = outcome;
    }
}

impl Drop for WebhookTimer<'_> {
    fn drop(&mut self) {
        let mut calls = self.counts.calls.lock();
        let histogram = calls.entry((self.name.clone(), self.outcome.label()));
        histogram
            .or_insert_with(|| Histogram::new(&CALLS))
            .observe(self.started.elapsed().as_secs_f64());
    }
}

impl AuthorizationMetrics {
    /// Records the authorization of a request.
    pub(super) fn record_attempt(&self, outcome: AuthorizationOutcome, took: Duration) {
        self.attempts[outcome as usize].observe(took);
    }

    /// The counts of an authorizer.
    pub(super) fn decisions_of(&self, mode: &'static str, name: &Str) -> Arc<Decisions> {
        self.decisions
            .lock()
            .entry((mode, name.clone()))
            .or_default()
            .clone()
    }

    pub(super) fn start_webhook_timer<'a>(&'a self, name: &'a Str) -> WebhookTimer<'a> {
        WebhookTimer {
            counts: self,
            name,
            started: Instant::now(),
            outcome: WebhookOutcome::Canceled,
        }
    }

    /// A webhook failed with the failure policy NoOpinion.
    pub(super) fn record_fail_open(&self, name: &Str, outcome: WebhookOutcome) {
        *self
            .failed_open
            .lock()
            .entry((name.clone(), outcome.label()))
            .or_default() += 1;
    }

    pub(super) fn record_match_conditions(
        &self,
        name: &Str,
        started: Instant,
        outcome: &Result<bool, String>,
    ) {
        let mut all = self.conditions.lock();
        let fresh = || MatchConditionMetrics {
            took: Histogram::new(&CONDITIONS),
            errors: 0,
            exclusions: 0,
        };
        let own = all.entry(name.clone()).or_insert_with(fresh);
        own.took.observe(started.elapsed().as_secs_f64());
        own.errors += u64::from(outcome.is_err());
        own.exclusions += u64::from(matches!(outcome, Ok(false)));
    }

    pub(crate) fn collect(&self, out: &mut Families) {
        let words = ["allowed", "denied", "no-opinion", "error"];
        for (word, timings) in words.into_iter().zip(&self.attempts) {
            if timings.count() > 0 {
                let labels: &[_] = &[("result", word)];
                out.counter("authorization_attempts_total", "Requests by result.")
                    .add(labels, timings.count());
                out.histogram("authorization_duration_seconds", "How long it took.")
                    .add_histogram(labels, &timings.histogram());
            }
        }
        let total = out.counter(
            "apiserver_authorization_decisions_total",
            "Final decisions, by authorizer.",
        );
        for ((mode, name), decisions) in self.decisions.lock().iter() {
            for (word, count) in [
                ("allowed", &decisions.allowed),
                ("denied", &decisions.denied),
            ] {
                let count = count.load(Ordering::Relaxed);
                if count > 0 {
                    total.add(&[("decision", word), ("name", name), ("type", mode)], count);
                }
            }
        }
        self.collect_calls(out);
        self.collect_conditions(out);
        self.reloads.collect(out);
    }

    fn collect_calls(&self, out: &mut Families) {
        for ((name, result), histogram) in self.calls.lock().iter() {
            let labels: &[_] = &[("name", &**name), ("result", *result)];
            out.counter(
                "apiserver_authorization_webhook_evaluations_total",
                "Calls to authorization webhooks.",
            )
            .add(labels, histogram.count());
            out.histogram(
                "apiserver_authorization_webhook_duration_seconds",
                "How long calls to authorization webhooks took.",
            )
            .add_histogram(labels, histogram);
        }
        let open = out.counter(
            "apiserver_authorization_webhook_evaluations_fail_open_total",
            "Authorization webhooks that failed and so had no opinion.",
        );
        for ((name, result), count) in self.failed_open.lock().iter() {
            open.add(&[("name", name), ("result", result)], *count);
        }
    }

    fn collect_conditions(&self, out: &mut Families) {
        for (name, own) in self.conditions.lock().iter() {
            let labels: &[_] = &[("name", &**name), ("type", "Webhook")];
            out.histogram(
                "apiserver_authorization_match_condition_evaluation_seconds",
                "How long match conditions of webhooks took.",
            )
            .add_histogram(labels, &own.took);
            if own.errors > 0 {
                out.counter(
                    "apiserver_authorization_match_condition_evaluation_errors_total",
                    "Match conditions of webhooks that could not be evaluated.",
                )
                .add(labels, own.errors);
            }
            if own.exclusions > 0 {
                out.counter(
                    "apiserver_authorization_match_condition_exclusions_total",
                    "Webhooks that were not called because of their match conditions.",
                )
                .add(labels, own.exclusions);
            }
        }
    }
}
