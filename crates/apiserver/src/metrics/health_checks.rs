//! Results of health checks: the service level indicators of `/metrics/slis`, under upstream's names
//! (component-base/metrics/prometheus/slis).

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{head, lock};

/// What is known of a check at an endpoint.
#[derive(Default)]
struct Results {
    passed_last: bool,
    successes: u64,
    errors: u64,
}

/// The results of all checks.
#[derive(Default)]
pub(crate) struct HealthChecks {
    /// By name and endpoint.
    results: Mutex<BTreeMap<(String, &'static str), Results>>,
    /// When the process started, in Unix seconds; none after a reset. Kubernetes: the metric is set once, when it is registered.
    started: Mutex<Option<i64>>,
}

impl HealthChecks {
    /// Results of a process that started at `started`, in Unix seconds.
    pub(crate) fn new(started: i64) -> HealthChecks {
        HealthChecks {
            results: Mutex::default(),
            started: Mutex::new(Some(started)),
        }
    }

    /// Records the result of a check that an endpoint has run.
    pub(crate) fn observe(&self, name: &str, endpoint: &'static str, passed: bool) {
        let mut checks = lock(&self.results);
        let results = checks.entry((name.to_owned(), endpoint)).or_default();
        results.passed_last = passed;
        *if passed {
            &mut results.successes
        } else {
            &mut results.errors
        } += 1;
    }

    /// Forgets all results.
    pub(crate) fn reset(&self) {
        lock(&self.results).clear();
        *lock(&self.started) = None;
    }

    /// All results in Prometheus' text form; nothing at all if no check has run since a reset.
    pub(crate) fn text(&self) -> String {
        const LAST: &str = "kubernetes_healthcheck";
        const TOTAL: &str = "kubernetes_healthchecks_total";
        const STARTED: &str = "process_start_time_seconds";
        let checks = lock(&self.results);
        let mut out = String::new();
        if !checks.is_empty() {
            head(
                &mut out,
                LAST,
                "gauge",
                "Whether a health check passed when it last ran.",
            );
        }
        for ((name, endpoint), results) in checks.iter() {
            let passed = u8::from(results.passed_last);
            let _ = writeln!(
                out,
                "{LAST}{{name=\"{name}\",type=\"{endpoint}\"}} {passed}"
            );
        }
        if !checks.is_empty() {
            head(&mut out, TOTAL, "counter", "Health checks by result.");
        }
        for ((name, endpoint), results) in checks.iter() {
            for (status, count) in [("error", results.errors), ("success", results.successes)] {
                if count > 0 {
                    let labels = format!("name=\"{name}\",status=\"{status}\",type=\"{endpoint}\"");
                    let _ = writeln!(out, "{TOTAL}{{{labels}}} {count}");
                }
            }
        }
        if let Some(started) = *lock(&self.started) {
            let help = "When the process started, in Unix seconds.";
            head(&mut out, STARTED, "gauge", help);
            let _ = writeln!(out, "{STARTED} {started}");
        }
        out
    }
}
