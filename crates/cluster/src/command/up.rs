//! `mizzen up`: everything.

use clap::Args;
use mizzen_apiserver::Plugins;

use super::ServerArgs;
use crate::compose::{self, ComposeError};

/// Run the whole control plane in the foreground: prints one line when it is ready, stops on Ctrl-C.
///
/// For now this is the API server; the loops join it later.
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
        // Until a loop makes service accounts, asking for them would refuse every pod.
        compose::serve(&self.server, Plugins::alone(), false)
    }
}
