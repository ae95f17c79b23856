//! `mizzen up`: everything.

use clap::Args;

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
}

impl Up {
    /// Serves until told to stop.
    pub fn run(self) -> Result<(), ComposeError> {
        compose::serve(&self.server, Parts::Whole)
    }
}
