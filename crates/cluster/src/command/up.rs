//! `mizzen up`: everything.

use clap::Args;
use mizzen_controllers::{RangeError, check_range};
use mizzen_object::Value;

use super::ServerArgs;
use super::node::Runtime;
use crate::compose::{self, ComposeError, Parts, Whole};
use crate::nodes::Nodes;

/// Run the whole control plane in the foreground: prints one line when it is ready, stops on Ctrl-C.
#[derive(Args)]
#[command(after_help = "Example:\n  mizzen up --data-dir ./data --nodes 3\n  \
                        kubectl --kubeconfig ./data/admin.kubeconfig get nodes")]
pub struct Up {
    #[command(flatten)]
    server: ServerArgs,
    /// How many nodes to run
    #[arg(long, value_name = "N", default_value_t = 1)]
    nodes: u32,
    /// The addresses of pods, of which every node gets a block; one range per family, or none
    #[arg(long, value_name = "RANGE,…", value_delimiter = ',', default_value = "10.244.0.0/16", value_parser = pod_range)]
    cluster_cidr: Vec<String>,
    /// How much each node has; what is not named is as usual: cpu=8, memory=32Gi, pods=110
    #[arg(long, value_name = "NAME=AMOUNT,…", default_value = "", value_parser = mizzen_node::parse_capacity)]
    node_capacity: Value,
    /// Who runs the containers of nodes
    #[arg(long, value_name = "RUNTIME", default_value = "auto")]
    node_runtime: Runtime,
}

/// A range that can be cut into blocks; empty for none.
pub(super) fn pod_range(text: &str) -> Result<String, RangeError> {
    if !text.is_empty() {
        check_range(text)?;
    }
    Ok(text.into())
}

impl Up {
    /// Serves until told to stop.
    pub fn run(self) -> Result<(), ComposeError> {
        // Until a container runtime can be found, there is one way only.
        let (Runtime::Auto | Runtime::Simulated) = self.node_runtime;
        let nodes = Nodes { n: self.nodes as usize, capacity: self.node_capacity };
        let pod_ranges = self.cluster_cidr.into_iter().filter(|range| !range.is_empty()).collect();
        compose::serve(&self.server, Parts::Whole(Whole { nodes, pod_ranges }))
    }
}
