//! Metrics of the token cache, under upstream's names (authentication/token/cache/stats.go).

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use mizzen_metrics::{Families, Timings};

use super::AuthenticationResult;

const BOUNDS: [f64; 11] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

pub(super) struct CacheMetrics {
    /// Cache hits, and misses.
    requests: [Timings; 2],
    /// Fetches that succeeded, and that failed.
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

/// Increments a gauge until it is dropped.
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
    pub(super) fn observe_request(&self, is_known: bool, took: Duration) {
        self.requests[usize::from(!is_known)].observe(took);
    }

    /// A lookup is blocked on a fetch.
    pub(super) fn enter_blocked(&self) -> GaugeGuard<'_> {
        GaugeGuard::new(&self.blocked)
    }

    /// Runs and counts a fetch.
    pub(super) async fn fetch(
        &self,
        ask: impl Future<Output = AuthenticationResult>,
    ) -> AuthenticationResult {
        let _counted = GaugeGuard::new(&self.fetching);
        let result = ask.await;
        self.fetched[usize::from(result.is_err())].fetch_add(1, Relaxed);
        result
    }

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
