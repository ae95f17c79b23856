//! Metrics of encryption and decryption, under upstream's names (storage/value/metrics.go).

use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use mizzen_metrics::Reloads;
use mizzen_metrics::{Families, Timings, exponential};
use mizzen_store::EncryptionError;

use super::kms::KmsMetrics;

/// Upper bounds in seconds, of transformations and of generating keys.
const BOUNDS: [f64; 25] = exponential(5e-6, 2.0);
const KEY_BOUNDS: [f64; 14] = exponential(5e-6, 2.0);

/// The label `transformation_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TransformationType {
    ToStorage,
    FromStorage,
}

impl TransformationType {
    pub(super) const ALL: [TransformationType; 2] = [
        TransformationType::ToStorage,
        TransformationType::FromStorage,
    ];

    pub(super) fn label(self) -> &'static str {
        match self {
            TransformationType::ToStorage => "to_storage",
            TransformationType::FromStorage => "from_storage",
        }
    }
}

/// All metrics of encryption.
pub(super) struct EncryptionMetrics {
    /// By prefix of records.
    prefixes: Mutex<BTreeMap<String, Arc<Transformations>>>,
    plugins: Mutex<BTreeMap<String, Arc<KmsMetrics>>>,
    /// The time to generate seeds.
    key_generation: Timings,
    /// Seeds that a plug-in had to decrypt.
    misses: AtomicU64,
    pub(super) reloads: Reloads,
}

impl Default for EncryptionMetrics {
    fn default() -> EncryptionMetrics {
        EncryptionMetrics {
            prefixes: Mutex::default(),
            plugins: Mutex::default(),
            key_generation: Timings::new(&KEY_BOUNDS),
            misses: AtomicU64::default(),
            reloads: Reloads::new("encryption"),
        }
    }
}

/// The encryptions and decryptions of records with one prefix.
pub(super) struct Transformations {
    durations: [Timings; 2],
    /// Successes by keyspace.
    spaces: RwLock<HashMap<String, [AtomicU64; 2]>>,
    /// Failures by keyspace and code.
    failures: Mutex<BTreeMap<(TransformationType, String, String), u64>>,
}

impl Default for Transformations {
    fn default() -> Transformations {
        Transformations {
            durations: [Timings::new(&BOUNDS), Timings::new(&BOUNDS)],
            spaces: RwLock::default(),
            failures: Mutex::default(),
        }
    }
}

impl Transformations {
    /// Records a transformation of a record of `space`.
    pub(super) fn record<T>(
        &self,
        space: &str,
        way: TransformationType,
        outcome: &Result<T, EncryptionError>,
        took: Duration,
    ) {
        if let Err(error) = outcome {
            let key = (way, space.to_string(), code(&error.0).to_string());
            *self.failures.lock().entry(key).or_default() += 1;
            return;
        }
        self.durations[way as usize].observe(took);
        if let Some(counts) = self.spaces.read().get(space) {
            counts[way as usize].fetch_add(1, Relaxed);
            return;
        }
        let mut spaces = self.spaces.write();
        spaces.entry(space.into()).or_default()[way as usize].fetch_add(1, Relaxed);
    }

    fn collect(&self, prefix: &str, out: &mut Families) {
        let prefix = ("transformer_prefix", prefix);
        let total = out.counter(
            "apiserver_storage_transformation_operations_total",
            "Encryptions and decryptions of stored objects.",
        );
        for (space, way, code, n) in self.operations() {
            let (resource, way) = (resource(&space), ("transformation_type", way.label()));
            total.add(
                &[("resource", &resource), ("status", &code), way, prefix],
                n,
            );
        }
        for (way, took) in TransformationType::ALL.iter().zip(&self.durations) {
            if took.count() > 0 {
                out.histogram(
                    "apiserver_storage_transformation_duration_seconds",
                    "How long it took to encrypt or decrypt an object.",
                )
                .add_histogram(
                    &[("transformation_type", way.label()), prefix],
                    &took.histogram(),
                );
            }
        }
    }

    /// The number of operations by keyspace, type and code.
    fn operations(&self) -> Vec<(String, TransformationType, String, u64)> {
        let mut all = Vec::new();
        for (space, counts) in &*self.spaces.read() {
            let known = TransformationType::ALL
                .iter()
                .map(|way| (*way, counts[*way as usize].load(Relaxed)));
            all.extend(
                known
                    .filter(|(_, n)| *n > 0)
                    .map(|(way, n)| (space.clone(), way, "OK".into(), n)),
            );
        }
        for ((way, space, code), n) in &*self.failures.lock() {
            all.push((space.clone(), *way, code.clone(), *n));
        }
        all.sort();
        all
    }
}

/// The gRPC code of an error. Kubernetes: all other errors have the same code.
fn code(problem: &str) -> &str {
    let code = problem.split_once("rpc error: code = ");
    code.and_then(|(_, rest)| rest.split(' ').next())
        .unwrap_or("unknown-non-grpc")
}

/// The resource of a keyspace: `apps/deployments` is `deployments.apps`.
fn resource(space: &str) -> String {
    space.split_once('/').map_or_else(
        || space.into(),
        |(group, resource)| format!("{resource}.{group}"),
    )
}

impl EncryptionMetrics {
    /// The metrics of records that begin with `prefix`.
    pub(super) fn transformations(&self, prefix: &str) -> Arc<Transformations> {
        self.prefixes
            .lock()
            .entry(prefix.into())
            .or_default()
            .clone()
    }

    /// The metrics of a KMS plug-in.
    pub(super) fn plugin(&self, name: &str) -> Arc<KmsMetrics> {
        self.plugins.lock().entry(name.into()).or_default().clone()
    }

    /// Records that a seed was generated.
    pub(super) fn record_key_generation(&self, took: Duration) {
        self.key_generation.observe(took);
    }

    /// Records that a plug-in has to decrypt a seed.
    pub(super) fn record_cache_miss(&self) {
        self.misses.fetch_add(1, Relaxed);
    }

    /// Adds its series to a scrape.
    pub(super) fn collect(&self, out: &mut Families) {
        for (prefix, counts) in self.prefixes.lock().iter() {
            counts.collect(prefix, out);
        }
        out.counter(
            "apiserver_storage_envelope_transformation_cache_misses_total",
            "Data keys that a KMS plug-in had to decrypt.",
        )
        .add(&[], self.misses.load(Relaxed));
        if self.key_generation.count() > 0 {
            out.histogram(
                "apiserver_storage_data_key_generation_duration_seconds",
                "How long it took to generate data keys.",
            )
            .add_histogram(&[], &self.key_generation.histogram());
        }
        for (provider, counts) in self.plugins.lock().iter() {
            counts.collect(provider, out);
        }
        self.reloads.collect(out);
    }
}
