//! What is counted of an issuer's tokens and keys, under upstream's names (token/oidc/metrics.go).

use parking_lot::Mutex;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::Duration;

use mizzen_metrics::{Families, Timings};

use crate::metrics::{api_server_id_hash, hash, lock};

/// Upper bounds in seconds.
const BOUNDS: [f64; 12] = [
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];
const RESULTS: [&str; 2] = ["success", "failure"];

/// What is counted of one issuer.
pub(super) struct IssuerMetrics {
    /// All that is told of its name.
    hash: String,
    /// How long it took to let somebody in, and to refuse them.
    took: [Timings; 2],
    /// When its keys were last had, and when they could not be, in seconds since 1970.
    fetched: [AtomicI64; 2],
    /// The hash of its keys as it told them.
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

    /// A token was looked at.
    pub(super) fn observe_authentication(&self, is_good: bool, took: Duration) {
        self.took[usize::from(!is_good)].observe(took);
    }

    /// These are its keys.
    pub(super) fn set_key_set(&self, text: &[u8]) {
        *lock(&self.keys) = hash(text);
    }

    /// Its keys were asked for.
    pub(super) fn record_fetch(&self, is_good: bool, now: i64) {
        self.fetched[usize::from(!is_good)].store(now, Relaxed);
    }

    /// Adds its series to a scrape.
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
        let keys = lock(&self.keys);
        if !keys.is_empty() {
            out.gauge(
                "apiserver_authentication_jwt_authenticator_jwks_fetch_last_key_set_info",
                "The keys of an issuer.",
            )
            .add(&[server, ("hash", &**keys), issuer], 1);
        }
    }
}
