//! Periods and thresholds of controllers: flags of kube-controller-manager.

use std::time::Duration;

use clap::Args;
use mizzen_controllers::{self as controllers, NodeMonitor};

use super::server::duration;

/// The arguments of periods and thresholds.
#[derive(Args)]
pub(super) struct PeriodArgs {
    /// Check the leases of nodes at this interval
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration)]
    node_monitor_period: Duration,
    /// Mark a node unhealthy if it does not renew its lease for this long
    #[arg(long, value_name = "DURATION", default_value = "50s", value_parser = duration)]
    node_monitor_grace_period: Duration,
    /// Mark a new node unhealthy if it does not renew its lease for this long
    #[arg(long, value_name = "DURATION", default_value = "1m0s", value_parser = duration)]
    node_startup_grace_period: Duration,
    /// Delete terminated pods when there are more than this many; 0 or less keeps all
    #[arg(
        long,
        value_name = "N",
        default_value_t = 12_500,
        allow_negative_numbers = true
    )]
    terminated_pod_gc_threshold: i32,
    /// Sync HorizontalPodAutoscalers at this interval
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = duration)]
    horizontal_pod_autoscaler_sync_period: Duration,
    /// Sign certificates that are valid for at most this long
    #[arg(long, value_name = "DURATION", default_value = "8760h0m0s", value_parser = duration)]
    cluster_signing_duration: Duration,
}

impl PeriodArgs {
    /// Sets the options of the controllers.
    pub(super) fn apply_to(&self, options: &mut controllers::Options) {
        // A timer needs a period.
        let at_least = |period: Duration| period.max(Duration::from_millis(1));
        options.node_monitor = NodeMonitor {
            period: at_least(self.node_monitor_period),
            grace_period: self.node_monitor_grace_period,
            startup_grace_period: self.node_startup_grace_period,
        };
        options.terminated_pod_gc_threshold =
            usize::try_from(self.terminated_pod_gc_threshold).unwrap_or_default();
        options.autoscaler_sync_period = at_least(self.horizontal_pod_autoscaler_sync_period);
        options.signing_duration = self.cluster_signing_duration;
    }
}
