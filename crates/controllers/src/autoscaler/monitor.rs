//! Metrics of the autoscaler controller, under upstream's names (podautoscaler/monitor).

use std::time::Duration;

use mizzen_sdk::metrics::{Collector, Families, GaugeVec, HistogramVec, exponential};

/// Upper bounds of durations, in seconds.
const BOUNDS: [f64; 15] = exponential(0.001, 2.0);

#[derive(Debug)]
pub(super) struct AutoscalerMetrics {
    reconciliations: HistogramVec<2>,
    computations: HistogramVec<3>,
    desired_replicas: GaugeVec<2>,
}

/// The label of a change of replicas.
pub(super) fn scale_action(current: i64, desired: i64) -> &'static str {
    match desired.cmp(&current) {
        std::cmp::Ordering::Greater => "scale_up",
        std::cmp::Ordering::Less => "scale_down",
        std::cmp::Ordering::Equal => "none",
    }
}

impl Default for AutoscalerMetrics {
    fn default() -> AutoscalerMetrics {
        AutoscalerMetrics {
            reconciliations: HistogramVec::new(
                "horizontal_pod_autoscaler_controller_reconciliation_duration_seconds",
                "How long syncs of autoscalers took.",
                ["action", "error"],
                &BOUNDS,
            ),
            computations: HistogramVec::new(
                "horizontal_pod_autoscaler_controller_metric_computation_duration_seconds",
                "How long it took to compute the replicas for one metric.",
                ["action", "error", "metric_type"],
                &BOUNDS,
            ),
            desired_replicas: GaugeVec::new(
                "horizontal_pod_autoscaler_controller_desired_replicas",
                "Replicas that an autoscaler wants.",
                ["namespace", "hpa_name"],
            ),
        }
    }
}

impl AutoscalerMetrics {
    pub(super) fn observe_sync(&self, action: &'static str, error: &'static str, took: Duration) {
        let labels = [action.into(), error.into()];
        self.reconciliations.observe(labels, took.as_secs_f64());
    }

    pub(super) fn observe_metric(
        &self,
        action: &'static str,
        error: &'static str,
        metric_type: &str,
        took: Duration,
    ) {
        let labels = [action.into(), error.into(), metric_type.to_owned().into()];
        self.computations.observe(labels, took.as_secs_f64());
    }

    pub(super) fn set_desired(&self, namespace: &str, name: &str, desired: i64) {
        let labels = [namespace.to_owned().into(), name.to_owned().into()];
        self.desired_replicas.set(labels, desired as f64);
    }

    pub(super) fn forget(&self, namespace: &str, name: &str) {
        let labels = [namespace.to_owned().into(), name.to_owned().into()];
        self.desired_replicas.remove(&labels);
    }
}

impl Collector for AutoscalerMetrics {
    fn collect(&self, families: &mut Families) {
        self.reconciliations.collect(families);
        self.reconciliations.collect_counts(
            "horizontal_pod_autoscaler_controller_reconciliations_total",
            "Syncs of autoscalers.",
            families,
        );
        self.computations.collect(families);
        self.computations.collect_counts(
            "horizontal_pod_autoscaler_controller_metric_computation_total",
            "Computations of the replicas for one metric.",
            families,
        );
        self.desired_replicas.collect(families);
    }
}
