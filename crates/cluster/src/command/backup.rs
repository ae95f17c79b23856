//! `mizzen backup`: the data of a cluster in a file.

use std::path::PathBuf;

use clap::Args;
use mizzen_apiserver::clock::WallClock;
use mizzen_value::clock::Clock as _;

use super::cluster_args::ClusterArgs;
use crate::backup_file::{self, BackupError};
use crate::log::write_output;

/// Copy the data of a cluster to a file, while it runs or not
#[derive(Args)]
#[command(
    after_help = "Example:\n  mizzen backup monday.backup\n  mizzen restore monday.backup --name monday\n  mizzen up --name monday"
)]
pub(crate) struct BackupCommand {
    /// Write the backup to this file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Replace the file if it exists
    #[arg(long)]
    force: bool,
}

impl BackupCommand {
    /// Writes the backup.
    pub(crate) fn run(self) -> Result<(), BackupError> {
        if self.file.exists() && !self.force {
            return Err(BackupError::Exists {
                path: self.file,
                remedy: "name another file, or replace it with --force",
            });
        }
        let directory = self.cluster.directory().path;
        let info = backup_file::write(&directory, &self.file, WallClock.now().0)?;
        write_output(format_args!(
            "backed up {} as of revision {} to {}",
            directory.display(),
            info.revision,
            self.file.display()
        ));
        Ok(())
    }
}
