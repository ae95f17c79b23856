//! How often is somebody known already? What is counted of answers about tokens, under upstream's names
//! (authentication/token/cache/stats.go).

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use mizzen_metrics::{Families, Timings};

use super::AuthenticationResult;

/// Upper bounds in seconds.
const BOUNDS: [f64; 11] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// What is counted.
pub(super) struct CacheMetrics {
    /// Questions whose answer was known, and those whose was not.
    requests: [Timings; 2],
    /// Answers of others, and failures to get one.
    fetched: [AtomicU64; 2],
    fetching: AtomicI64,
    blocked: AtomicI64,
}

impl Default for CacheMetrics {
    fn default() -> CacheMetrics {
        CacheMetrics {
            requests: [Timings::new(&BOUNDS), Timings::new(&BOUNDS)],
            fetched: Default::default(),
            fetching: AtomicI64::default(),
            blocked: AtomicI64::default(),
        }
    }
}

/// Counted for as long as it is held.
pub(super) struct GaugeGuard<'a>(&'a AtomicI64);

impl<'a> GaugeGuard<'a> {
    fn new(gauge: &'a AtomicI64) -> GaugeGuard<'a> {
        gauge.fetch_add(1, Relaxed);
        GaugeGuard(gauge)
    }
}

impl Drop for GaugeGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl CacheMetrics {
    /// A question was answered, after so long.
    pub(super) fn observe_request(&self, is_known: bool, took: Duration) {
        self.requests[usize::from(!is_known)].observe(took);
    }

    /// Somebody waits for an answer of others.
    pub(super) fn enter_blocked(&self) -> GaugeGuard<'_> {
        GaugeGuard::new(&self.blocked)
    }

    /// Lets others answer.
    pub(super) async fn fetch(
        &self,
        ask: impl Future<Output = AuthenticationResult>,
    ) -> AuthenticationResult {
        let _counted = GaugeGuard::new(&self.fetching);
        let verdict = ask.await;
        self.fetched[usize::from(verdict.is_err())].fetch_add(1, Relaxed);
        verdict
    }

    /// Adds its series to a scrape.
    pub(super) fn collect(&self, out: &mut Families) {
        for (status, timings) in ["hit", "miss"].into_iter().zip(&self.requests) {
            let labels: &[_] = &[("status", status)];
            if timings.count() > 0 {
                out.histogram(
                    "authentication_token_cache_request_duration_seconds",
                    "How long it took to look a token up.",
                )
                .add_histogram(labels, &timings.histogram());
            }
            out.counter(
                "authentication_token_cache_request_total",
                "Lookups of tokens.",
            )
            .add(labels, timings.count());
        }
        let fetched = out.counter(
            "authentication_token_cache_fetch_total",
            "Tokens that were not cached and had to be reviewed.",
        );
        for (status, count) in ["ok", "error"].into_iter().zip(&self.fetched) {
            fetched.add(&[("status", status)], count.load(Relaxed));
        }
        let active = out.gauge(
            "authentication_token_cache_active_fetch_count",
            "Reviews of tokens that are under way, and lookups that wait for them.",
        );
        for (status, gauge) in [("in_flight", &self.fetching), ("blocked", &self.blocked)] {
            active.add(&[("status", status)], gauge.load(Relaxed));
        }
    }
}
