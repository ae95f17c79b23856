//! Metrics of an issuer's tokens and keys, under upstream's names (token/oidc/metrics.go).

use parking_lot::Mutex;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::Duration;

use mizzen_metrics::{Families, Timings};

use mizzen_metrics::{api_server_id_hash, hash};

/// Buckets in seconds.
const BOUNDS: [f64; 12] = [
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];
const RESULTS: [&str; 2] = ["success", "failure"];

/// The metrics of one issuer.
pub(super) struct IssuerMetrics {
    /// The hash of its URL.
    hash: String,
    /// Durations of successful and failed authentications.
    took: [Timings; 2],
    /// When the JWKS was last fetched with success, and without, in Unix seconds.
    fetched: [AtomicI64; 2],
    /// The hash of its JWKS.
    keys: Mutex<String>,
}

impl IssuerMetrics {
    pub(super) fn new(issuer: &str) -> IssuerMetrics {
        let took = [Timings::new(&BOUNDS), Timings::new(&BOUNDS)];
        IssuerMetrics {
            hash: hash(issuer.as_bytes()),
            took,
            fetched: Default::default(),
            keys: Mutex::default(),
        }
    }

    pub(super) fn observe_authentication(&self, is_good: bool, took: Duration) {
        self.took[usize::from(!is_good)].observe(took);
    }

    pub(super) fn set_key_set(&self, text: &[u8]) {
        *self.keys.lock() = hash(text);
    }

    pub(super) fn record_fetch(&self, is_good: bool, now: i64) {
        self.fetched[usize::from(!is_good)].store(now, Relaxed);
    }

    pub(super) fn collect(&self, out: &mut Families) {
        let issuer = ("jwt_issuer_hash", &*self.hash);
        let server = ("apiserver_id_hash", api_server_id_hash());
        for ((result, timings), at) in RESULTS.iter().zip(&self.took).zip(&self.fetched) {
            let (result, at) = (("result", *result), at.load(Relaxed));
            if timings.count() > 0 {
                out.histogram(
                    "apiserver_authentication_jwt_authenticator_latency_seconds",
                    "How long it took to authenticate a token.",
                )
                .add_histogram(&[issuer, result], &timings.histogram());
            }
            if at != 0 {
                out.gauge(
                    "apiserver_authentication_jwt_authenticator_jwks_fetch_last_timestamp_seconds",
                    "When the keys of an issuer were last fetched.",
                )
                .add(&[server, issuer, result], at);
            }
        }
        let keys = self.keys.lock();
        if !keys.is_empty() {
            out.gauge(
                "apiserver_authentication_jwt_authenticator_jwks_fetch_last_key_set_info",
                "The keys of an issuer.",
            )
            .add(&[server, ("hash", &**keys), issuer], 1);
        }
    }
}
