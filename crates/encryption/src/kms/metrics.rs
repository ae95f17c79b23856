//! Metrics of a KMS plug-in and its keys, under upstream's names (encrypt/envelope/metrics/metrics.go).

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use mizzen_metrics::api_server_id_hash;
use mizzen_metrics::{Families, Histogram};

use super::service::key_id_hash;
use crate::metrics::TransformationType;

/// Upper bounds in seconds.
const BOUNDS: [f64; 20] = [
    0.0001, 0.0002, 0.0004, 0.0008, 0.0016, 0.0032, 0.0064, 0.0128, 0.0256, 0.0512, 0.1024, 0.2048,
    0.4096, 0.8192, 1.6384, 3.2768, 6.5536, 13.1072, 26.2144, 52.4288,
];
/// The number of keys with series of their own.
const MAX_KEYS: usize = 100;

/// The metrics of one plug-in.
#[derive(Default)]
pub(crate) struct KmsMetrics {
    /// Cached seeds and keys.
    cache_size: AtomicUsize,
    /// By method and code.
    calls: Mutex<BTreeMap<(&'static str, &'static str), Histogram>>,
    /// By hash of the key ID.
    keys: Mutex<BTreeMap<String, Arc<KeyUses>>>,
    /// When the status of the plug-in last had a key ID, by its hash.
    status_keys: Mutex<BTreeMap<String, i64>>,
    /// Key IDs that were empty, or too long.
    invalid_key_ids: [AtomicU64; 2],
}

/// How often a key was used and when it was last used, by transformation type.
#[derive(Debug, Default)]
pub(super) struct KeyUses {
    uses: [AtomicU64; 2],
    last: [AtomicI64; 2],
}

impl KeyUses {
    pub(super) fn record(&self, way: TransformationType, now: i64) {
        self.uses[way as usize].fetch_add(1, Relaxed);
        self.last[way as usize].store(now, Relaxed);
    }

    fn latest(&self) -> i64 {
        self.last
            .iter()
            .map(|last| last.load(Relaxed))
            .max()
            .unwrap_or_default()
    }
}

impl KmsMetrics {
    pub(super) fn set_cache_size(&self, n: usize) {
        self.cache_size.store(n, Relaxed);
    }

    /// Records a call and its code.
    pub(super) fn record_call(&self, method: &'static str, code: &'static str, took: Duration) {
        let mut calls = self.calls.lock();
        let histogram = calls
            .entry((method, code))
            .or_insert_with(|| Histogram::new(&BOUNDS));
        histogram.observe(took.as_secs_f64());
    }

    /// The uses of a key. A new key replaces the least recently used one.
    pub(super) fn key(&self, id: &str) -> Arc<KeyUses> {
        let (mut keys, hash) = (self.keys.lock(), key_id_hash(id));
        let oldest = keys
            .iter()
            .min_by_key(|(_, uses)| uses.latest())
            .map(|(hash, _)| hash.clone());
        if let Some(oldest) = oldest.filter(|_| keys.len() >= MAX_KEYS && !keys.contains_key(&hash))
        {
            keys.remove(&oldest);
        }
        keys.entry(hash).or_default().clone()
    }

    /// Records the key ID of a status response.
    pub(super) fn record_status_key(&self, id: &str, now: i64) {
        let mut status_keys = self.status_keys.lock();
        let oldest = status_keys
            .iter()
            .min_by_key(|(_, at)| **at)
            .map(|(hash, _)| hash.clone());
        status_keys.insert(key_id_hash(id), now);
        if let Some(oldest) = oldest.filter(|_| status_keys.len() > MAX_KEYS) {
            status_keys.remove(&oldest);
        }
    }

    /// Records an invalid key ID of a status response.
    pub(super) fn record_invalid_key_id(&self, id: &str) {
        self.invalid_key_ids[usize::from(!id.is_empty())].fetch_add(1, Relaxed);
    }

    /// Adds the series of the plug-in of this name to a scrape.
    pub(crate) fn collect(&self, provider: &str, out: &mut Families) {
        let name = |what: &str| format!("apiserver_envelope_encryption_{what}");
        let provider = ("provider_name", provider);
        let server = ("apiserver_id_hash", api_server_id_hash());
        for ((method, code), histogram) in &*self.calls.lock() {
            let labels: &[_] = &[
                ("grpc_status_code", *code),
                ("method_name", *method),
                provider,
            ];
            out.histogram(
                name("kms_operations_latency_seconds"),
                "How long calls took.",
            )
            .add_histogram(labels, histogram);
        }
        for (hash, uses) in &*self.keys.lock() {
            let used = TransformationType::ALL
                .into_iter()
                .map(|way| (way, uses.uses[way as usize].load(Relaxed)));
            for (way, n) in used.filter(|(_, n)| *n > 0) {
                let way_label = ("transformation_type", way.label());
                let labels: &[_] = &[server, ("key_id_hash", &**hash), provider, way_label];
                out.counter(name("key_id_hash_total"), "How often a key was used.")
                    .add(labels, n);
                out.gauge(
                    name("key_id_hash_last_timestamp_seconds"),
                    "When a key was last used.",
                )
                .add(labels, uses.last[way as usize].load(Relaxed));
            }
        }
        for (hash, at) in &*self.status_keys.lock() {
            out.gauge(
                name("key_id_hash_status_last_timestamp_seconds"),
                "When the plug-in last named a key as current.",
            )
            .add(&[server, ("key_id_hash", &**hash), provider], *at);
        }
        for (error, n) in ["empty", "too_long"].iter().zip(&self.invalid_key_ids) {
            let n = n.load(Relaxed);
            if n > 0 {
                out.counter(
                    name("invalid_key_id_from_status_total"),
                    "Invalid key IDs that the plug-in named.",
                )
                .add(&[("error", error), provider], n);
            }
        }
        out.gauge(name("dek_source_cache_size"), "Data keys that are cached.")
            .add(&[provider], self.cache_size.load(Relaxed));
    }
}
