//! `mizzen apiserver`: the API server alone.

use clap::Args;

use super::ServerArgs;
use crate::compose::{self, ComposeError, Parts};

/// Run the API server alone, without the loops that make objects move.
#[derive(Args)]
#[command(
    after_help = "Example:\n  mizzen apiserver --in-memory --port 0 --kubeconfig ./kubeconfig\n  \
                        kubectl --kubeconfig ./kubeconfig get namespaces"
)]
pub(crate) struct Apiserver {
    #[command(flatten)]
    server: ServerArgs,
}

impl Apiserver {
    /// Serves until told to stop.
    pub(crate) fn run(self) -> Result<(), ComposeError> {
        compose::serve(&self.server, Parts::Server)
    }
}
