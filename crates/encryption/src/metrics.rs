//! What is counted of sealing and opening, under upstream's names (storage/value/metrics.go).

use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use mizzen_apiserver::metrics::Reloads;
use mizzen_metrics::{Families, Timings, exponential};
use mizzen_store::SealError;

use super::kms::PluginCounts;

/// Upper bounds in seconds, of sealing and of making keys.
const BOUNDS: [f64; 25] = exponential(5e-6, 2.0);
const KEY_BOUNDS: [f64; 14] = exponential(5e-6, 2.0);

/// To disk, or back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Way {
    To,
    From,
}

impl Way {
    pub(super) const ALL: [Way; 2] = [Way::To, Way::From];

    pub(super) fn word(self) -> &'static str {
        match self {
            Way::To => "to_storage",
            Way::From => "from_storage",
        }
    }
}

/// All that is counted.
pub(super) struct Counts {
    /// By what things begin with that are sealed so.
    prefixes: Mutex<BTreeMap<String, Arc<Transformations>>>,
    plugins: Mutex<BTreeMap<String, Arc<PluginCounts>>>,
    /// How long it took to make seeds.
    generated: Timings,
    /// Seeds that a plug-in had to open.
    misses: AtomicU64,
    pub(super) reloads: Reloads,
}

impl Default for Counts {
    fn default() -> Counts {
        Counts {
            prefixes: Mutex::default(),
            plugins: Mutex::default(),
            generated: Timings::new(&KEY_BOUNDS),
            misses: AtomicU64::default(),
            reloads: Reloads::new("encryption"),
        }
    }
}

/// What was sealed and opened in one way.
pub(super) struct Transformations {
    took: [Timings; 2],
    /// Successes by space.
    spaces: RwLock<HashMap<String, [AtomicU64; 2]>>,
    /// Failures by space and code.
    failures: Mutex<BTreeMap<(Way, String, String), u64>>,
}

impl Default for Transformations {
    fn default() -> Transformations {
        let took = [Timings::new(&BOUNDS), Timings::new(&BOUNDS)];
        Transformations {
            took,
            spaces: RwLock::default(),
            failures: Mutex::default(),
        }
    }
}

impl Transformations {
    /// Something of `space` was sealed or opened, or could not be.
    pub(super) fn record<T>(
        &self,
        space: &str,
        way: Way,
        outcome: &Result<T, SealError>,
        took: Duration,
    ) {
        if let Err(error) = outcome {
            let key = (way, space.to_string(), code(&error.0).to_string());
            *lock(&self.failures).entry(key).or_default() += 1;
            return;
        }
        self.took[way as usize].observe(took);
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
            let (resource, way) = (resource(&space), ("transformation_type", way.word()));
            total.add(
                &[("resource", &resource), ("status", &code), way, prefix],
                n,
            );
        }
        for (way, took) in Way::ALL.iter().zip(&self.took) {
            if took.count() > 0 {
                out.histogram(
                    "apiserver_storage_transformation_duration_seconds",
                    "How long it took to encrypt or decrypt an object.",
                )
                .add_histogram(
                    &[("transformation_type", way.word()), prefix],
                    &took.histogram(),
                );
            }
        }
    }

    /// How often, by space, way and code.
    fn operations(&self) -> Vec<(String, Way, String, u64)> {
        let mut all = Vec::new();
        for (space, counts) in &*self.spaces.read() {
            let known = Way::ALL
                .iter()
                .map(|way| (*way, counts[*way as usize].load(Relaxed)));
            all.extend(
                known
                    .filter(|(_, n)| *n > 0)
                    .map(|(way, n)| (space.clone(), way, "OK".into(), n)),
            );
        }
        for ((way, space, code), n) in &*lock(&self.failures) {
            all.push((space.clone(), *way, code.clone(), *n));
        }
        all.sort();
        all
    }
}

/// The code of a plug-in's refusal. Kubernetes: whatever else goes wrong has one in common.
fn code(problem: &str) -> &str {
    let said = problem
        .split_once("rpc error: code = ")
        .map(|(_, rest)| rest);
    said.and_then(|rest| rest.split(' ').next())
        .unwrap_or("unknown-non-grpc")
}

/// A space as Kubernetes calls its resource: `apps/deployments` is `deployments.apps`.
fn resource(space: &str) -> String {
    space.split_once('/').map_or_else(
        || space.into(),
        |(group, resource)| format!("{resource}.{group}"),
    )
}

impl Counts {
    /// Where it is counted what is sealed so that it begins with `prefix`.
    pub(super) fn of(&self, prefix: &str) -> Arc<Transformations> {
        lock(&self.prefixes)
            .entry(prefix.into())
            .or_default()
            .clone()
    }

    /// Where it is counted what a plug-in does.
    pub(super) fn plugin(&self, name: &str) -> Arc<PluginCounts> {
        lock(&self.plugins).entry(name.into()).or_default().clone()
    }

    /// A seed was made.
    pub(super) fn generated(&self, took: Duration) {
        self.generated.observe(took);
    }

    /// A plug-in has to open a seed.
    pub(super) fn missed(&self) {
        self.misses.fetch_add(1, Relaxed);
    }

    /// Adds its series to a scrape.
    pub(super) fn collect(&self, out: &mut Families) {
        for (prefix, counts) in lock(&self.prefixes).iter() {
            counts.collect(prefix, out);
        }
        out.counter(
            "apiserver_storage_envelope_transformation_cache_misses_total",
            "Data keys that a KMS plug-in had to decrypt.",
        )
        .add(&[], self.misses.load(Relaxed));
        if self.generated.count() > 0 {
            out.histogram(
                "apiserver_storage_data_key_generation_duration_seconds",
                "How long it took to generate data keys.",
            )
            .add_histogram(&[], &self.generated.histogram());
        }
        for (provider, counts) in lock(&self.plugins).iter() {
            counts.collect(provider, out);
        }
        self.reloads.collect(out);
    }
}

/// What is counted stays good even if somebody who counted fell over.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> parking_lot::MutexGuard<'_, T> {
    mutex.lock()
}
