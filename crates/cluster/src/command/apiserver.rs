//! `mizzen apiserver`: only the API server, or with components that `--loops` names.

use clap::Args;

use super::{ServerArgs, UpError};
use crate::compose::{self, Topology};
use crate::envtest::Loops;

/// Run only the API server, without controllers, scheduler and nodes, or with those of --loops
#[derive(Args)]
#[command(
    after_help = "Example:\n  mizzen apiserver --in-memory --port 0 --kubeconfig ./kubeconfig\n  \
                        kubectl --kubeconfig ./kubeconfig get namespaces"
)]
pub(crate) struct Apiserver {
    #[command(flatten)]
    server: ServerArgs,
    /// Run these components beside it: gc, controllers by upstream's names, scheduler, nodes or nodes=N; or all
    #[arg(long, value_name = "NAME,…", value_parser = Loops::parse)]
    loops: Option<Loops>,
}

impl Apiserver {
    /// Serves until it is stopped.
    pub(crate) fn run(mut self) -> Result<(), UpError> {
        self.server.lock_cluster()?;
        let topology = match self.loops {
            None => Topology::ApiServer,
            Some(loops) => {
                self.server.authorization.authorize_nodes();
                Topology::ControlPlane(loops.control_plane())
            }
        };
        Ok(compose::serve(&self.server, topology)?)
    }
}
