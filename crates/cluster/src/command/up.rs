//! `mizzen up`: the whole control plane.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use mizzen_controllers::{NodeMasks, RangeError, check_range};
use mizzen_scheduler::Configuration;
use mizzen_value::Value;

use super::load_balancers::LoadBalancerArgs;
use super::node::{Runtime, capacity};
use super::{ServerArgs, scheduler};
use crate::compose::{self, ComposeError, ControlPlane, EnabledControllers, Topology};
use crate::simulated_nodes::SimulatedNodes;

/// Run the control plane with simulated nodes in the foreground; print a line when it is ready, and stop on Ctrl-C
#[derive(Args)]
#[command(after_help = "Example:\n  mizzen up --data-dir ./data --nodes 3\n  \
                        kubectl --kubeconfig ./data/admin.kubeconfig get nodes")]
pub(crate) struct Up {
    #[command(flatten)]
    server: ServerArgs,
    /// Run this many simulated nodes
    #[arg(long, value_name = "N", default_value_t = 1)]
    nodes: u32,
    /// Allocate pod CIDRs of nodes from these ranges, at most one per IP family; empty allocates none [default:
    /// 10.244.0.0/16, or a larger one for more than 256 nodes]
    #[arg(long, value_name = "RANGE,…", value_delimiter = ',', value_parser = pod_range)]
    cluster_cidr: Option<Vec<String>>,
    /// Set the capacity of each node; other resources keep the defaults cpu=8, memory=32Gi, pods=110
    #[arg(long, value_name = "NAME=AMOUNT,…", default_value = "", value_parser = capacity)]
    node_capacity: Value,
    /// Run containers with this runtime
    #[arg(long, value_name = "RUNTIME", default_value = "auto")]
    node_runtime: Runtime,
    /// Configure the scheduler by this KubeSchedulerConfiguration in YAML or JSON
    #[arg(long, value_name = "FILE")]
    scheduler_config: Option<PathBuf>,
    /// Serve metrics.k8s.io for kubectl top and HorizontalPodAutoscalers from the metrics of kubelets [default: true if
    /// --nodes is not 0]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    metrics_server: Option<bool>,
    #[command(flatten)]
    load_balancers: LoadBalancerArgs,
}

/// Parses a range from which node CIDRs can be allocated; empty for none.
fn pod_range(text: &str) -> Result<String, RangeError> {
    if !text.is_empty() {
        check_range(text, NodeMasks::default())?;
    }
    Ok(text.into())
}

/// The usual pod CIDR, or a larger one that has a block for every node.
pub(crate) fn default_pod_range(n_nodes: u32) -> String {
    let doublings = n_nodes.div_ceil(256).next_power_of_two().ilog2();
    format!("10.244.0.0/{}", 16 - doublings.min(7))
}

impl Up {
    /// Serves until it is stopped.
    pub(crate) fn run(mut self) -> Result<(), ComposeError> {
        self.server.authentication.limit_anonymous_to_health();
        // There is only the simulated runtime.
        let (Runtime::Auto | Runtime::Simulated) = self.node_runtime;
        let scheduler = match &self.scheduler_config {
            Some(file) => {
                scheduler::read_configuration(file).map_err(|why| ComposeError::Configuration {
                    file: file.display().to_string(),
                    why,
                })?
            }
            None => Configuration::default(),
        };
        let nodes = SimulatedNodes {
            n: self.nodes as usize,
            capacity: self.node_capacity,
        };
        let ranges = self
            .cluster_cidr
            .unwrap_or_else(|| vec![default_pod_range(self.nodes)]);
        let pod_ranges = ranges
            .into_iter()
            .filter(|range| !range.is_empty())
            .collect();
        let load_balancer_ranges = self.load_balancers.ranges();
        let control_plane = ControlPlane {
            nodes,
            pod_ranges,
            load_balancer_ranges,
            controllers: EnabledControllers::All,
            scheduler: Some(Arc::new(scheduler)),
            serves_metrics: self.metrics_server.unwrap_or(self.nodes > 0),
        };
        compose::serve(&self.server, Topology::ControlPlane(control_plane))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_pod_range_has_a_block_for_every_node() {
        let cases = [
            (0, 16),
            (1, 16),
            (256, 16),
            (257, 15),
            (1000, 14),
            (5000, 11),
            (1_000_000, 9),
        ];
        for (n_nodes, prefix) in cases {
            let range = default_pod_range(n_nodes);
            assert_eq!(range, format!("10.244.0.0/{prefix}"));
            assert!(pod_range(&range).is_ok());
        }
    }
}
