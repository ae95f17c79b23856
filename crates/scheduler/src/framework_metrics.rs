//! Metrics of the scheduling framework, under upstream's names (pkg/scheduler/metrics): how long
//! extension points and plugins took, and how often plugins were evaluated. Each profile has its own.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use mizzen_sdk::metrics::{Families, Histogram, exponential};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::configuration::ExtensionPoint;
use crate::plugin::Name;

/// Upper bounds of an extension point, in seconds.
const POINT_BOUNDS: [f64; 12] = exponential(0.0001, 2.0);
/// Upper bounds of a plugin and of a queueing hint, in seconds.
const PLUGIN_BOUNDS: [f64; 20] = exponential(0.00001, 1.5);
/// Upper bounds of the wait for permission, in seconds.
const PERMIT_BOUNDS: [f64; 15] = exponential(0.001, 2.0);
/// Plugins are timed in one of so many cycles (upstream: pluginMetricsSamplePercent).
const SAMPLE_INTERVAL: u64 = 10;

/// The result of a plugin or of an extension point (upstream: fwk.Code).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum StatusCode {
    Success,
    Error,
    Unschedulable,
    UnschedulableAndUnresolvable,
    Skip,
}

impl StatusCode {
    /// Success or an internal error.
    pub(crate) fn of_result<T, E>(result: &Result<T, E>) -> StatusCode {
        match result {
            Ok(_) => StatusCode::Success,
            Err(_) => StatusCode::Error,
        }
    }
}

/// Calls of a plugin, by extension point.
type PluginEvaluations = [AtomicU64; ExtensionPoint::ALL.len()];

/// The metrics of one profile.
#[derive(Debug)]
pub(crate) struct FrameworkMetrics {
    cycles: Sampler,
    hints: Sampler,
    /// By plugin and extension point.
    evaluations: Box<[PluginEvaluations]>,
    durations: Mutex<FrameworkDurations>,
}

#[derive(Debug, Default)]
struct FrameworkDurations {
    points: BTreeMap<(ExtensionPoint, StatusCode), Histogram>,
    plugins: BTreeMap<(Name, ExtensionPoint, StatusCode), Histogram>,
    permit_waits: BTreeMap<StatusCode, Histogram>,
    /// By plugin, event, and whether the hint was Queue.
    hints: BTreeMap<(Name, &'static str, bool), Histogram>,
}

/// Chooses one of [`SAMPLE_INTERVAL`] calls, beginning with the first.
#[derive(Debug, Default)]
struct Sampler(AtomicU64);

impl Sampler {
    fn is_next(&self) -> bool {
        self.0.fetch_add(1, Relaxed).is_multiple_of(SAMPLE_INTERVAL)
    }
}

impl Default for FrameworkMetrics {
    fn default() -> FrameworkMetrics {
        FrameworkMetrics {
            cycles: Sampler::default(),
            hints: Sampler::default(),
            evaluations: (0..Name::MAX)
                .map(|_| PluginEvaluations::default())
                .collect(),
            durations: Mutex::default(),
        }
    }
}

impl FrameworkMetrics {
    /// Whether plugins are timed in the cycle that begins (upstream: ShouldRecordPluginMetrics).
    pub(crate) fn samples_next_cycle(&self) -> bool {
        self.cycles.is_next()
    }

    /// Counts calls of a plugin.
    pub(crate) fn count(&self, plugin: Name, point: ExtensionPoint, n: usize) {
        self.evaluations[plugin.index()][point as usize].fetch_add(n as u64, Relaxed);
    }

    /// Observes how long an extension point took.
    pub(crate) fn observe_point(&self, point: ExtensionPoint, code: StatusCode, took: Duration) {
        let mut durations = self.durations.lock();
        let histogram = durations.points.entry((point, code));
        histogram
            .or_insert_with(|| Histogram::new(&POINT_BOUNDS))
            .observe(took.as_secs_f64());
    }

    /// Observes how long a plugin took.
    pub(crate) fn observe_plugin(
        &self,
        plugin: Name,
        point: ExtensionPoint,
        code: StatusCode,
        took: Duration,
    ) {
        let mut durations = self.durations.lock();
        let histogram = durations.plugins.entry((plugin, point, code));
        histogram
            .or_insert_with(|| Histogram::new(&PLUGIN_BOUNDS))
            .observe(took.as_secs_f64());
    }

    /// Observes how long a pod waited for the permission of plugins.
    pub(crate) fn observe_permit_wait(&self, is_allowed: bool, took: Duration) {
        let code = match is_allowed {
            true => StatusCode::Success,
            false => StatusCode::Unschedulable,
        };
        let mut durations = self.durations.lock();
        let histogram = durations.permit_waits.entry(code);
        histogram
            .or_insert_with(|| Histogram::new(&PERMIT_BOUNDS))
            .observe(took.as_secs_f64());
    }

    /// Evaluates a queueing hint, and observes how long some of them took.
    pub(crate) fn run_hint(
        &self,
        plugin: Name,
        event: &'static str,
        hint: impl FnOnce() -> bool,
    ) -> bool {
        if !self.hints.is_next() {
            return hint();
        }
        let started = Instant::now();
        let queues = hint();
        let took = started.elapsed();
        let mut durations = self.durations.lock();
        let histogram = durations.hints.entry((plugin, event, queues));
        histogram
            .or_insert_with(|| Histogram::new(&PLUGIN_BOUNDS))
            .observe(took.as_secs_f64());
        queues
    }

    /// Adds the series of a profile.
    pub(crate) fn collect(&self, profile: &str, families: &mut Families) {
        let evaluations = families.counter(
            "scheduler_plugin_evaluation_total",
            "Calls of plugins at PreFilter, Filter, PreScore and Score.",
        );
        for plugin in Name::all() {
            for point in ExtensionPoint::ALL {
                let n = self.evaluations[plugin.index()][*point as usize].load(Relaxed);
                if n > 0 {
                    let labels = [
                        ("plugin", plugin.as_str()),
                        ("extension_point", point.as_str()),
                        ("profile", profile),
                    ];
                    evaluations.add(&labels, n);
                }
            }
        }
        let durations = self.durations.lock();
        let points = families.histogram(
            "scheduler_framework_extension_point_duration_seconds",
            "How long all plugins of an extension point took.",
        );
        for ((point, code), took) in &durations.points {
            let labels = [
                ("extension_point", point.as_str()),
                ("status", &*format!("{code:?}")),
                ("profile", profile),
            ];
            points.add_histogram(&labels, took);
        }
        let plugins = families.histogram(
            "scheduler_plugin_execution_duration_seconds",
            "How long a plugin took at an extension point, in one of ten cycles.",
        );
        for ((plugin, point, code), took) in &durations.plugins {
            let labels = [
                ("plugin", plugin.as_str()),
                ("extension_point", point.as_str()),
                ("status", &*format!("{code:?}")),
            ];
            plugins.add_histogram(&labels, took);
        }
        let waits = families.histogram(
            "scheduler_permit_wait_duration_seconds",
            "How long pods waited for the permission of plugins.",
        );
        for (code, took) in &durations.permit_waits {
            waits.add_histogram(&[("result", &*format!("{code:?}"))], took);
        }
        let hints = families.histogram(
            "scheduler_queueing_hint_execution_duration_seconds",
            "How long the queueing hint of a plugin took, for one of ten.",
        );
        for ((plugin, event, queues), took) in &durations.hints {
            let labels = [
                ("plugin", plugin.as_str()),
                ("event", *event),
                ("hint", if *queues { "Queue" } else { "QueueSkip" }),
            ];
            hints.add_histogram(&labels, took);
        }
    }
}
