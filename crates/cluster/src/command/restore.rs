//! `mizzen restore`: a data directory from a backup.

use std::path::PathBuf;

use clap::Args;

use super::cluster_args::ClusterArgs;
use crate::backup_file::{self, BackupError};
use crate::log::write_output;

/// Make a data directory from a file of `mizzen backup`
#[derive(Args)]
#[command(
    after_help = "Example:\n  mizzen restore monday.backup --name monday\n  mizzen up --name monday"
)]
pub(crate) struct RestoreCommand {
    /// Read the backup from this file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    cluster: ClusterArgs,
}

impl RestoreCommand {
    /// Makes the directory.
    pub(crate) fn run(self) -> Result<(), BackupError> {
        let directory = self.cluster.directory().path;
        let info = backup_file::restore(&self.file, &directory)?;
        write_output(format_args!(
            "restored {} as of revision {}, backed up at {}",
            directory.display(),
            info.revision,
            info.created
        ));
        Ok(())
    }
}
