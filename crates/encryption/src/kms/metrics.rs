//! What is counted of a plug-in and its keys, under upstream's names (encrypt/envelope/metrics/metrics.go).

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use mizzen_apiserver::metrics::api_server_id_hash;
use mizzen_metrics::{Families, Histogram};

use super::service::hash;
use crate::counts::{Way, lock};

/// Upper bounds in seconds.
const BOUNDS: [f64; 20] = [
    0.0001, 0.0002, 0.0004, 0.0008, 0.0016, 0.0032, 0.0064, 0.0128, 0.0256, 0.0512, 0.1024, 0.2048,
    0.4096, 0.8192, 1.6384, 3.2768, 6.5536, 13.1072, 26.2144, 52.4288,
];
/// How many keys are told apart.
const MAX_KEYS: usize = 100;

/// What is counted of one plug-in.
#[derive(Default)]
pub(crate) struct PluginCounts {
    /// Seeds and keys that are known.
    known: AtomicUsize,
    /// By method and code.
    calls: Mutex<BTreeMap<(&'static str, &'static str), Histogram>>,
    /// By what may be told of a key's name.
    keys: Mutex<BTreeMap<String, Arc<KeyUses>>>,
    /// When the plug-in last said that it uses a key.
    said: Mutex<BTreeMap<String, i64>>,
    /// Names of keys that were none, or too long.
    invalid: [AtomicU64; 2],
}

/// How often, and when last, a key was used: to seal, and to open.
#[derive(Debug, Default)]
pub(super) struct KeyUses {
    uses: [AtomicU64; 2],
    last: [AtomicI64; 2],
}

impl KeyUses {
    pub(super) fn used(&self, way: Way, now: i64) {
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

impl PluginCounts {
    /// So many seeds and keys are known.
    pub(super) fn knows(&self, n: usize) {
        self.known.store(n, Relaxed);
    }

    /// A call ended with this code.
    pub(super) fn called(&self, method: &'static str, code: &'static str, took: Duration) {
        let mut calls = lock(&self.calls);
        let histogram = calls
            .entry((method, code))
            .or_insert_with(|| Histogram::new(&BOUNDS));
        histogram.observe(took.as_secs_f64());
    }

    /// Where it is counted how a key is used. The one that was not used for longest is forgotten for a new one.
    pub(super) fn key(&self, id: &str) -> Arc<KeyUses> {
        let (mut keys, hash) = (lock(&self.keys), hash(id));
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

    /// The plug-in says that it uses a key.
    pub(super) fn said(&self, id: &str, now: i64) {
        let mut said = lock(&self.said);
        let oldest = said
            .iter()
            .min_by_key(|(_, at)| **at)
            .map(|(hash, _)| hash.clone());
        said.insert(hash(id), now);
        if let Some(oldest) = oldest.filter(|_| said.len() > MAX_KEYS) {
            said.remove(&oldest);
        }
    }

    /// The plug-in says that it uses a key with a name that is none.
    pub(super) fn said_nonsense(&self, id: &str) {
        self.invalid[usize::from(!id.is_empty())].fetch_add(1, Relaxed);
    }

    /// Adds the series of the plug-in of this name to a scrape.
    pub(crate) fn collect(&self, provider: &str, out: &mut Families) {
        let name = |what: &str| format!("apiserver_envelope_encryption_{what}");
        let provider = ("provider_name", provider);
        let server = ("apiserver_id_hash", api_server_id_hash());
        for ((method, code), histogram) in &*lock(&self.calls) {
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
        for (hash, uses) in &*lock(&self.keys) {
            let used = Way::ALL
                .into_iter()
                .map(|way| (way, uses.uses[way as usize].load(Relaxed)));
            for (way, n) in used.filter(|(_, n)| *n > 0) {
                let way_label = ("transformation_type", way.word());
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
        for (hash, at) in &*lock(&self.said) {
            out.gauge(
                name("key_id_hash_status_last_timestamp_seconds"),
                "When the plug-in last named a key as current.",
            )
            .add(&[server, ("key_id_hash", &**hash), provider], *at);
        }
        for (error, n) in ["empty", "too_long"].iter().zip(&self.invalid) {
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
            .add(&[provider], self.known.load(Relaxed));
    }
}
