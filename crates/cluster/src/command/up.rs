//! `mizzen up`: everything.

use clap::Args;
use mizzen_controllers::{RangeError, check_range};

use super::ServerArgs;
use crate::compose::{self, ComposeError, Parts};

/// Run the whole control plane in the foreground: prints one line when it is ready, stops on Ctrl-C.
#[derive(Args)]
#[command(after_help = "Example:\n  mizzen up --data-dir ./data\n  \
                        kubectl --kubeconfig ./data/admin.kubeconfig get namespaces")]
pub struct Up {
    #[command(flatten)]
    server: ServerArgs,
    /// How many simulated nodes to run; only 0 is possible until the loops are here
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=0))]
    nodes: u32,
    /// The addresses of pods, of which every node gets a block; one range per family, or none
    #[arg(long, value_name = "RANGE,…", value_delimiter = ',', default_value = "10.244.0.0/16", value_parser = pod_range)]
    cluster_cidr: Vec<String>,
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
        let pod_ranges = self.cluster_cidr.into_iter().filter(|range| !range.is_empty()).collect();
        compose::serve(&self.server, Parts::Whole, pod_ranges)
    }
}
