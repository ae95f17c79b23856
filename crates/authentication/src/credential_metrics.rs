//! Metrics of client certificates and service account tokens, under upstream's names
//! (authentication/request/x509/x509.go, pkg/serviceaccount/metrics.go).

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use mizzen_metrics::{Families, Histogram};
use parking_lot::Mutex;

const HOUR: f64 = 3600.0;
const DAY: f64 = 24.0 * HOUR;
/// Buckets of the time until a certificate expires, in seconds.
const EXPIRATIONS: [f64; 14] = [
    0.0,
    HOUR / 2.0,
    HOUR,
    2.0 * HOUR,
    6.0 * HOUR,
    12.0 * HOUR,
    DAY,
    2.0 * DAY,
    4.0 * DAY,
    7.0 * DAY,
    30.0 * DAY,
    90.0 * DAY,
    180.0 * DAY,
    360.0 * DAY,
];

pub(crate) struct CredentialCounts {
    certificates: Mutex<Histogram>,
    tokens: [AtomicU64; TOKENS.len()],
}

/// A use of a service account token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenUse {
    /// A bound token before its `warnafter`.
    Valid,
    /// A bound token after its `warnafter`.
    Stale,
    /// Any secret-based token.
    Legacy,
    /// A token whose secret was generated for its account.
    LegacyAuto,
    /// A token whose secret was created manually.
    LegacyManual,
    /// A token whose secret is marked as invalid.
    LegacyInvalid,
}

/// The metrics in the order of [`TokenUse`].
const TOKENS: [(&str, &str); 6] = [
    (
        "serviceaccount_valid_tokens_total",
        "Uses of bound tokens before the time of their warning.",
    ),
    (
        "serviceaccount_stale_tokens_total",
        "Uses of bound tokens after the time of their warning.",
    ),
    (
        "serviceaccount_legacy_tokens_total",
        "Uses of tokens that are kept in secrets.",
    ),
    (
        "serviceaccount_legacy_auto_token_uses_total",
        "Uses of tokens in secrets that were generated for their accounts.",
    ),
    (
        "serviceaccount_legacy_manual_token_uses_total",
        "Uses of tokens in secrets that were created manually.",
    ),
    (
        "serviceaccount_invalid_legacy_auto_token_uses_total",
        "Uses of tokens in secrets that are marked as invalid.",
    ),
];

impl Default for CredentialCounts {
    fn default() -> CredentialCounts {
        CredentialCounts {
            certificates: Mutex::new(Histogram::new(&EXPIRATIONS)),
            tokens: Default::default(),
        }
    }
}

impl CredentialCounts {
    /// Records a request with a client certificate.
    pub(crate) fn certificate(&self, expires_in: i64) {
        self.certificates.lock().observe(expires_in as f64);
    }

    pub(crate) fn token(&self, token: TokenUse) {
        self.tokens[token as usize].fetch_add(1, Relaxed);
    }

    pub(crate) fn collect(&self, out: &mut Families) {
        out.histogram(
            "apiserver_client_certificate_expiration_seconds",
            "The time until the client certificates of requests expire.",
        )
        .add_histogram(&[], &self.certificates.lock());
        for ((name, help), count) in TOKENS.into_iter().zip(&self.tokens) {
            out.counter(name, help).add(&[], count.load(Relaxed));
        }
    }
}
