//! `mizzen up`: everything.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use mizzen_controllers::{NodeMasks, RangeError, check_range};
use mizzen_scheduler::Configuration;
use mizzen_value::Value;

use super::load_balancers::LoadBalancerArgs;
use super::node::{Runtime, capacity};
use super::{ServerArgs, scheduler};
use crate::compose::{self, ComposeError, Parts, Whole};
use crate::nodes::Nodes;

/// Run the whole control plane in the foreground: prints one line when it is ready, stops on Ctrl-C.
#[derive(Args)]
#[command(after_help = "Example:\n  mizzen up --data-dir ./data --nodes 3\n  \
                        kubectl --kubeconfig ./data/admin.kubeconfig get nodes")]
pub(crate) struct Up {
    #[command(flatten)]
    server: ServerArgs,
    /// How many nodes to run
    #[arg(long, value_name = "N", default_value_t = 1)]
    nodes: u32,
    /// The addresses of pods, of which every node gets a block; one range per family, or none [default: 10.244.0.0/16,
    /// and more for more than 256 nodes]
    #[arg(long, value_name = "RANGE,…", value_delimiter = ',', value_parser = pod_range)]
    cluster_cidr: Option<Vec<String>>,
    /// How much each node has; what is not named is as usual: cpu=8, memory=32Gi, pods=110
    #[arg(long, value_name = "NAME=AMOUNT,…", default_value = "", value_parser = capacity)]
    node_capacity: Value,
    /// Who runs the containers of nodes
    #[arg(long, value_name = "RUNTIME", default_value = "auto")]
    node_runtime: Runtime,
    /// Profiles, plugins and extenders of the scheduler: a KubeSchedulerConfiguration in YAML or JSON
    #[arg(long, value_name = "FILE")]
    scheduler_config: Option<PathBuf>,
    /// Serve metrics.k8s.io, for kubectl top and HorizontalPodAutoscalers, from what kubelets report [default: true if there are nodes
    /// beside the server]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    metrics_server: Option<bool>,
    #[command(flatten)]
    load_balancers: LoadBalancerArgs,
}

/// A range that can be cut into blocks; empty for none.
fn pod_range(text: &str) -> Result<String, RangeError> {
    if !text.is_empty() {
        check_range(text, NodeMasks::default())?;
    }
    Ok(text.into())
}

/// How pods are placed; as usual if no file says otherwise.
fn configuration(file: Option<&Path>) -> Result<Configuration, ComposeError> {
    let Some(file) = file else {
        return Ok(Configuration::default());
    };
    scheduler::read(file).map_err(|why| ComposeError::Configuration {
        file: file.display().to_string(),
        why,
    })
}

/// What most clusters have, and as much around it as gives every node its block.
fn usual_range(n_nodes: u32) -> String {
    let doublings = n_nodes.div_ceil(256).next_power_of_two().ilog2();
    format!("10.244.0.0/{}", 16 - doublings.min(7))
}

impl Up {
    /// Serves until told to stop.
    pub(crate) fn run(mut self) -> Result<(), ComposeError> {
        self.server.authentication.show_strangers_health_only();
        // Until a container runtime can be found, there is one way only.
        let (Runtime::Auto | Runtime::Simulated) = self.node_runtime;
        let scheduler = Arc::new(configuration(self.scheduler_config.as_deref())?);
        let nodes = Nodes {
            n: self.nodes as usize,
            capacity: self.node_capacity,
        };
        let ranges = self
            .cluster_cidr
            .unwrap_or_else(|| vec![usual_range(self.nodes)]);
        let pod_ranges = ranges
            .into_iter()
            .filter(|range| !range.is_empty())
            .collect();
        let load_balancer_ranges = self.load_balancers.ranges();
        let whole = Whole {
            nodes,
            pod_ranges,
            load_balancer_ranges,
            scheduler,
            serves_metrics: self.metrics_server.unwrap_or(self.nodes > 0),
        };
        compose::serve(&self.server, Parts::Whole(whole))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_node_gets_a_block() {
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
            let range = usual_range(n_nodes);
            assert_eq!(range, format!("10.244.0.0/{prefix}"));
            assert!(pod_range(&range).is_ok());
        }
    }
}
