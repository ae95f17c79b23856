//! `mizzen apiserver`: only the API server.

use clap::Args;

use super::{ServerArgs, UpError};
use crate::compose::{self, Topology};

/// Run only the API server, without controllers, scheduler and nodes
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
    /// Serves until it is stopped.
    pub(crate) fn run(mut self) -> Result<(), UpError> {
        self.server.lock_cluster()?;
        Ok(compose::serve(&self.server, Topology::ApiServer)?)
    }
}
