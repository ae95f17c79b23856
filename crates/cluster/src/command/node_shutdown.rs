//! The flags about how a node with real containers ends its pods before its machine shuts down.

use std::time::Duration;

use clap::Args;
use mizzen_node::shutdown::{
    ShutdownConfig, ShutdownGracePeriod, parse_shutdown_grace_periods, shutdown_grace_periods,
};

use super::server::duration;

/// Graceful node shutdown, with the names, rules and defaults of the kubelet's configuration.
#[derive(Debug, Clone, Args)]
pub(crate) struct NodeShutdownArgs {
    /// Delay a shutdown of this machine by at most this long, to end pods with real containers; 0s for never
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    shutdown_grace_period: Duration,
    /// Keep this much at the end of --shutdown-grace-period for critical pods
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    shutdown_grace_period_critical_pods: Duration,
    /// Delay a shutdown of this machine by so many seconds for pods of these priorities and higher ones, low priorities
    /// first, instead of --shutdown-grace-period
    #[arg(
        long,
        value_name = "PRIORITY:SECONDS,…",
        default_value = "",
        value_parser = by_priority,
        allow_hyphen_values = true
    )]
    shutdown_grace_period_by_pod_priority: ByPriority,
}

/// Grace periods by priority, perhaps none.
#[derive(Debug, Clone)]
struct ByPriority(Vec<ShutdownGracePeriod>);

fn by_priority(text: &str) -> Result<ByPriority, String> {
    parse_shutdown_grace_periods(text).map(ByPriority)
}

impl NodeShutdownArgs {
    pub(crate) fn config(&self) -> Result<ShutdownConfig, String> {
        Ok(ShutdownConfig {
            grace_periods: shutdown_grace_periods(
                self.shutdown_grace_period,
                self.shutdown_grace_period_critical_pods,
                self.shutdown_grace_period_by_pod_priority.0.clone(),
            )?,
            ..ShutdownConfig::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Node {
        #[command(flatten)]
        shutdown: NodeShutdownArgs,
    }

    fn config(flags: &str) -> Result<ShutdownConfig, String> {
        let words = ["node"].into_iter().chain(flags.split_whitespace());
        let node = Node::try_parse_from(words).map_err(|error| error.to_string())?;
        node.shutdown.config()
    }

    #[track_caller]
    fn check(flags: &str, expected: &[(i32, u32)]) {
        let periods = config(flags).unwrap().grace_periods;
        let periods: Vec<(i32, u32)> = periods
            .iter()
            .map(|period| (period.priority, period.seconds))
            .collect();
        assert_eq!(periods, expected, "{flags}");
    }

    #[test]
    fn grace_periods_have_the_flags_and_defaults_of_the_kubelet() {
        assert_eq!(config(""), Ok(ShutdownConfig::default()));
        check(
            "--shutdown-grace-period 30s --shutdown-grace-period-critical-pods 10s",
            &[(0, 20), (2_000_000_000, 10)],
        );
        check(
            "--shutdown-grace-period-by-pod-priority -5:60,1000:30",
            &[(-5, 60), (1000, 30)],
        );
    }

    #[test]
    fn grace_periods_that_exclude_each_other_are_refused() {
        for (flags, why) in [
            (
                "--shutdown-grace-period 5s --shutdown-grace-period-critical-pods 10s",
                "must be at most",
            ),
            (
                "--shutdown-grace-period-critical-pods 10s",
                "must be at most",
            ),
            ("--shutdown-grace-period 500ms", "0s or at least 1s"),
            (
                "--shutdown-grace-period 5s --shutdown-grace-period-by-pod-priority 0:5",
                "exclude",
            ),
            (
                "--shutdown-grace-period-by-pod-priority 0=5",
                "is not PRIORITY:SECONDS",
            ),
            ("--shutdown-grace-period=-1s", "must not be negative"),
        ] {
            let error = config(flags).unwrap_err();
            assert!(error.contains(why), "{flags}: {error}");
        }
    }
}
