//! Metrics of impersonation, under upstream's names (impersonation/metrics/metrics.go).

use std::time::Duration;

use mizzen_metrics::{Families, Timings, exponential};

use super::mode::ImpersonationMode;

/// Buckets of durations, in seconds.
const BUCKETS: [f64; 15] = exponential(0.001, 2.0);

pub(crate) struct ImpersonationMetrics {
    /// Denied attempts.
    denied: Timings,
    /// Allowed attempts, by mode.
    allowed: [Timings; 5],
    /// Authorization checks by mode: denied, and allowed.
    asked: [[Timings; 2]; 5],
}

impl Default for ImpersonationMetrics {
    fn default() -> ImpersonationMetrics {
        let timings = |()| Timings::new(&BUCKETS);
        ImpersonationMetrics {
            denied: timings(()),
            allowed: [(); 5].map(timings),
            asked: [(); 5].map(|()| [(); 2].map(timings)),
        }
    }
}

impl ImpersonationMetrics {
    pub(super) fn observe_attempt(&self, mode: Option<ImpersonationMode>, took: Duration) {
        mode.map_or(&self.denied, |mode| &self.allowed[mode as usize])
            .observe(took);
    }

    pub(super) fn observe_authorization(
        &self,
        mode: ImpersonationMode,
        is_allowed: bool,
        took: Duration,
    ) {
        self.asked[mode as usize][usize::from(is_allowed)].observe(took);
    }

    pub(crate) fn collect(&self, out: &mut Families) {
        collect(out, "attempts", ["", "denied"], &self.denied);
        for (mode, timings) in ImpersonationMode::ALL.iter().zip(&self.allowed) {
            collect(out, "attempts", [mode.label(), "allowed"], timings);
        }
        for (mode, [denied, allowed]) in ImpersonationMode::ALL.iter().zip(&self.asked) {
            let name = "authorization_attempts";
            collect(out, name, [mode.label(), "denied"], denied);
            collect(out, name, [mode.label(), "allowed"], allowed);
        }
    }
}

fn collect(out: &mut Families, name: &str, [mode, decision]: [&str; 2], timings: &Timings) {
    if timings.count() > 0 {
        let labels: &[_] = &[("decision", decision), ("mode", mode)];
        out.counter(
            format!("apiserver_impersonation_{name}_total"),
            "Impersonations by decision.",
        )
        .add(labels, timings.count());
        out.histogram(
            format!("apiserver_impersonation_{name}_duration_seconds"),
            "How long it took.",
        )
        .add_histogram(labels, &timings.histogram());
    }
}
