//! `mizzen restore`: a data directory from a backup, or its keys in a directory and its objects in etcd.

use std::path::{Path, PathBuf};

use clap::Args;
use mizzen_controlplane::Options;

use super::backup::BackupCommandError;
use super::cluster_args::ClusterArgs;
use super::place_args::{EtcdPlace, EtcdPlaceArgs};
use crate::backup_file::{self, BackupInfo};
use crate::compose::block_on_large_stack;
use crate::log::write_output;
use crate::transfer::{CopyError, Source, SourceError, Target, copy_exactly};

/// Make a data directory from a file of `mizzen backup`
#[derive(Args)]
#[command(
    after_help = "Example:\n  mizzen restore monday.backup --name monday\n  mizzen up --name monday\n  \
                  mizzen restore monday.backup --data-dir ./certificates --etcd-servers http://127.0.0.1:2379"
)]
pub(crate) struct RestoreCommand {
    /// Read the backup from this file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten, next_help_heading = "Clusters with their objects in etcd")]
    etcd: EtcdPlaceArgs,
}

impl RestoreCommand {
    /// Makes the directory.
    pub(crate) fn run(self) -> Result<(), BackupCommandError> {
        block_on_large_stack(|| self.restore())?
    }

    async fn restore(self) -> Result<(), BackupCommandError> {
        let directory = self.cluster.directory().path;
        let info = match self.etcd.find().await? {
            Some(etcd) => restore_to_etcd(&etcd, &self.file, &directory).await?,
            None => backup_file::restore(&self.file, &directory)?,
        };
        write_output(format_args!(
            "restored {} as of revision {}, backed up at {}",
            directory.display(),
            info.revision,
            info.created
        ));
        Ok(())
    }
}

/// Writes all objects of a backup to an etcd without any, and then its keys to a directory.
async fn restore_to_etcd(
    etcd: &EtcdPlace,
    file: &Path,
    directory: &Path,
) -> Result<BackupInfo, BackupCommandError> {
    backup_file::check_new(directory)?;
    let draft = backup_file::draft_beside(directory)?;
    let restored = draft.path().join("restored");
    let info = backup_file::restore(file, &restored)?;
    let source = Source::directory(&restored, etcd.encryption()).await;
    let source = source.map_err(|error| CopyError::from(SourceError::from(error)))?;
    let target = Target::Etcd {
        objects: etcd.objects(false)?,
        client: etcd.client()?,
        options: Box::new(Options::default()),
    };
    copy_exactly(source, target).await?;
    backup_file::place_keys(&restored, directory)?;
    Ok(info)
}
