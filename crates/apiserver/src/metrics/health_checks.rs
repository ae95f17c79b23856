//! Results of health checks: the service level indicators of `/metrics/slis`, under upstream's names
//! (component-base/metrics/prometheus/slis).

use parking_lot::Mutex;
use std::collections::BTreeMap;

use mizzen_metrics::Families;

/// The results of a check at an endpoint.
#[derive(Default)]
struct CheckResults {
    passed_last: bool,
    successes: u64,
    errors: u64,
}

#[derive(Default)]
pub(crate) struct HealthChecks {
    /// By name and endpoint.
    results: Mutex<BTreeMap<(String, &'static str), CheckResults>>,
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
        let mut checks = self.results.lock();
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
        self.results.lock().clear();
        *self.started.lock() = None;
    }

    /// All results as a scrape shows them; no text at all if no check has run.
    pub(crate) fn text(&self) -> String {
        let mut families = Families::default();
        for ((name, endpoint), results) in self.results.lock().iter() {
            let labels = [("name", &**name), ("type", *endpoint)];
            families
                .gauge(
                    "kubernetes_healthcheck",
                    "Whether a health check passed when it last ran.",
                )
                .add(&labels, u8::from(results.passed_last));
            let total =
                families.counter("kubernetes_healthchecks_total", "Health checks by result.");
            for (status, count) in [("error", results.errors), ("success", results.successes)] {
                if count > 0 {
                    let [name, endpoint] = labels;
                    total.add(&[name, ("status", status), endpoint], count);
                }
            }
        }
        if let Some(started) = *self.started.lock() {
            families
                .gauge(
                    "process_start_time_seconds",
                    "When the process started, in Unix seconds.",
                )
                .add(&[], started);
        }
        families.to_string()
    }
}
