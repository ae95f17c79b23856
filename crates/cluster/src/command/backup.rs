//! `mizzen backup`: the data of a cluster in a file.

use std::path::{Path, PathBuf};

use clap::Args;
use mizzen_apiserver::clock::WallClock;
use mizzen_controlplane::Options;
use mizzen_value::clock::Clock as _;

use super::cluster_args::ClusterArgs;
use super::place_args::{EtcdPlace, EtcdPlaceArgs, PlaceError};
use crate::backup_file::{self, BackupError, BackupInfo};
use crate::compose::block_on_large_stack;
use crate::log::write_output;
use crate::transfer::{CopyError, Source, SourceError, Target, copy_exactly};

/// Copy the data of a cluster to a file, while it runs or not
#[derive(Args)]
#[command(
    after_help = "Example:\n  mizzen backup monday.backup\n  mizzen restore monday.backup --name monday\n  mizzen up --name monday\n  \
                  mizzen backup monday.backup --data-dir ./certificates --etcd-servers http://127.0.0.1:2379"
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
    #[command(flatten, next_help_heading = "Clusters with their objects in etcd")]
    etcd: EtcdPlaceArgs,
}

/// Why a cluster was not backed up or restored.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BackupCommandError {
    /// A file or directory cannot be read or written.
    #[error(transparent)]
    File(#[from] BackupError),
    /// The etcd cluster cannot be found.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// The objects in etcd cannot be copied.
    #[error(transparent)]
    Copy(#[from] CopyError),
    /// No runtime.
    #[error("cannot start")]
    Start(#[from] std::io::Error),
}

impl BackupCommand {
    /// Writes the backup.
    pub(crate) fn run(self) -> Result<(), BackupCommandError> {
        block_on_large_stack(|| self.back_up())?
    }

    async fn back_up(self) -> Result<(), BackupCommandError> {
        if self.file.exists() && !self.force {
            let (path, remedy) = (self.file, "name another file, or replace it with --force");
            return Err(BackupError::Exists { path, remedy }.into());
        }
        let directory = self.cluster.directory().path;
        let info = match self.etcd.find().await? {
            Some(etcd) => back_up_etcd(&etcd, &directory, &self.file).await?,
            None => backup_file::write(&directory, &self.file, WallClock.now().0)?,
        };
        write_output(format_args!(
            "backed up {} as of revision {} to {}",
            directory.display(),
            info.revision,
            self.file.display()
        ));
        Ok(())
    }
}

/// Writes the keys of a directory, and all objects in etcd as of one revision.
async fn back_up_etcd(
    etcd: &EtcdPlace,
    directory: &Path,
    file: &Path,
) -> Result<BackupInfo, BackupCommandError> {
    backup_file::check_has_keys(directory)?;
    let draft = backup_file::draft_beside(file)?;
    let objects = draft.path().join("objects");
    let source = Source::etcd(etcd.objects(true)?).await;
    let source = source.map_err(|error| CopyError::from(SourceError::from(error)))?;
    let target = Target::Directory {
        directory: &objects,
        encryption: etcd.encryption(),
        options: Box::new(Options::default()),
    };
    copy_exactly(source, target).await?;
    let now = WallClock.now().0;
    Ok(backup_file::archive(directory, &objects, file, now)?)
}
