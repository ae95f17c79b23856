//! The arguments that select a cluster of the user.

use std::path::PathBuf;

use clap::Args;

use crate::clusters::{ClusterDirectory, ClusterName};

/// The selection of a cluster by its name or directory.
#[derive(Args, Clone)]
pub(crate) struct ClusterArgs {
    /// Select the cluster with this name, a DNS label [default: default]
    #[arg(long, value_name = "NAME", conflicts_with = "data_dir")]
    pub(super) name: Option<ClusterName>,
    /// Select the cluster in this data directory
    #[arg(long, value_name = "DIR")]
    pub(super) data_dir: Option<PathBuf>,
}

impl ClusterArgs {
    /// Whether a cluster is selected; otherwise a command means the default one or all.
    pub(super) fn is_given(&self) -> bool {
        self.name.is_some() || self.data_dir.is_some()
    }

    /// The directory of the selected cluster.
    pub(super) fn directory(&self) -> ClusterDirectory {
        ClusterDirectory::select(self.name.as_ref(), self.data_dir.as_deref())
    }
}
