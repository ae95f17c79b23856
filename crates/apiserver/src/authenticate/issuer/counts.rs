//! What is counted of an issuer's tokens and keys, under upstream's names (token/oidc/metrics.go).

use parking_lot::Mutex;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::Duration;

use super::keys::Keys;
use crate::metrics::{Timings, hash, head, lock};

/// Upper bounds in seconds.
const BOUNDS: [f64; 12] = [
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];
const RESULTS: [&str; 2] = ["success", "failure"];

/// What is counted of one issuer.
pub(super) struct Counts {
    /// All that is told of its name.
    hash: String,
    /// How long it took to let somebody in, and to refuse them.
    took: [Timings; 2],
    /// When its keys were last had, and when they could not be, in seconds since 1970.
    fetched: [AtomicI64; 2],
    /// The hash of its keys as it told them.
    keys: Mutex<String>,
}

impl Counts {
    pub(super) fn new(issuer: &str) -> Counts {
        let took = [Timings::new(&BOUNDS), Timings::new(&BOUNDS)];
        Counts {
            hash: hash(issuer.as_bytes()),
            took,
            fetched: Default::default(),
            keys: Mutex::default(),
        }
    }

    /// A token was looked at.
    pub(super) fn judged(&self, is_good: bool, took: Duration) {
        self.took[usize::from(!is_good)].observe(took);
    }

    /// These are its keys.
    pub(super) fn have(&self, text: &[u8]) {
        *lock(&self.keys) = hash(text);
    }

    /// Its keys were asked for.
    pub(super) fn fetched(&self, is_good: bool, now: i64) {
        self.fetched[usize::from(!is_good)].store(now, Relaxed);
    }
}

/// In Prometheus' text form.
pub(super) fn write<'a>(all: impl Iterator<Item = &'a Arc<Keys>> + Clone, out: &mut String) {
    const TOOK: &str = "apiserver_authentication_jwt_authenticator_latency_seconds";
    const FETCHED: &str =
        "apiserver_authentication_jwt_authenticator_jwks_fetch_last_timestamp_seconds";
    const KEYS: &str = "apiserver_authentication_jwt_authenticator_jwks_fetch_last_key_set_info";
    head(out, TOOK, "histogram", "How long it took to judge a token.");
    for Counts { hash, took, .. } in all.clone().map(|keys| &keys.counts) {
        for (result, timings) in RESULTS.iter().zip(took) {
            timings.write(
                out,
                TOOK,
                &format!("jwt_issuer_hash=\"{hash}\",result=\"{result}\""),
            );
        }
    }
    head(
        out,
        FETCHED,
        "gauge",
        "When the keys of an issuer were last asked for.",
    );
    for Counts { hash, fetched, .. } in all.clone().map(|keys| &keys.counts) {
        let known = RESULTS
            .iter()
            .zip(fetched)
            .map(|(result, at)| (result, at.load(Relaxed)));
        for (result, at) in known.filter(|(_, at)| *at != 0) {
            let labels =
                format!("apiserver_id_hash=\"\",jwt_issuer_hash=\"{hash}\",result=\"{result}\"");
            let _ = writeln!(out, "{FETCHED}{{{labels}}} {at}");
        }
    }
    head(out, KEYS, "gauge", "The keys of an issuer.");
    for Counts { hash, keys, .. } in all.map(|keys| &keys.counts) {
        let keys = lock(keys);
        if !keys.is_empty() {
            let labels =
                format!("apiserver_id_hash=\"\",hash=\"{keys}\",jwt_issuer_hash=\"{hash}\"");
            let _ = writeln!(out, "{KEYS}{{{labels}}} 1");
        }
    }
}
