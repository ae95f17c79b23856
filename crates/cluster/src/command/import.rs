//! `mizzen import`: objects of files into a cluster.

use std::path::PathBuf;

use clap::Args;
use mizzen_controlplane::Options;

use super::place_args::{Place, PlaceArgs, PlaceError};
use super::server::ServiceArgs;
use crate::compose::{ComposeError, block_on_large_stack};
use crate::log::{print_error, write_output};
use crate::terminal::Progress;
use crate::transfer::{
    FileContent, FileError, ImportOptions, KeepArgs, OnConflict, Report, SelectionArgs,
    SelectionError, Target, TargetError,
};

/// Create the objects of files in a cluster
#[derive(Args)]
#[command(
    after_help = "Example:\n  mizzen import shop.yaml --dry-run\n  mizzen import shop.yaml --on-conflict overwrite\n  \
                  mizzen import all.jsonl.gz --all --keep all --data-dir ./copy\n  \
                  mizzen import all.jsonl.gz --all --keep all --etcd-servers http://127.0.0.1:2379\n  \
                  kubectl get deployments -A -o json | mizzen import - --context test"
)]
pub(crate) struct ImportCommand {
    /// Read these files of YAML documents or JSON objects, compressed by gzip or not; - is standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    place: PlaceArgs,
    /// Do this if another object has the name; one that has all fields of the file is left alone
    #[arg(long, value_name = "WHAT", default_value = "fail")]
    on_conflict: OnConflict,
    /// Check all objects, and write none
    #[arg(long)]
    dry_run: bool,
    /// Import into etcd although it has objects
    #[arg(long, requires = "etcd_servers")]
    into_existing: bool,
    /// Print failures and the summary only
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    keep: KeepArgs,
    #[command(flatten)]
    selection: SelectionArgs,
    #[command(
        flatten,
        next_help_heading = "Data directories of stopped clusters, and etcd"
    )]
    services: ServiceArgs,
}

/// Why objects were not imported.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ImportError {
    /// An argument is invalid.
    #[error(transparent)]
    Selection(#[from] SelectionError),
    /// An argument is invalid.
    #[error(transparent)]
    Argument(#[from] ComposeError),
    /// The cluster cannot be found.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// A file is invalid. Nothing was written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The target cannot be used.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// No runtime.
    #[error("cannot start")]
    Start(#[from] std::io::Error),
    /// Some objects were not written, or not completely; they are printed.
    #[error("{n_failed} objects were not imported, {n_incomplete} not completely")]
    Incomplete {
        /// Objects that were not written.
        n_failed: usize,
        /// Objects that lack something.
        n_incomplete: usize,
    },
}

impl ImportCommand {
    /// Writes the objects.
    pub(crate) fn run(self) -> Result<(), ImportError> {
        block_on_large_stack(|| self.import())?
    }

    async fn import(self) -> Result<(), ImportError> {
        let selection = self.selection.selection()?;
        let server = Options {
            service_ranges: self.services.ranges()?,
            service_node_ports: self.services.node_ports(),
            ..Options::default()
        };
        let mut content = FileContent::default();
        for file in &self.files {
            content.read(file)?;
        }
        let objects = content.objects;
        let options = ImportOptions {
            keep: self.keep.keep(),
            on_conflict: self.on_conflict,
            is_dry_run: self.dry_run,
            into_existing: self.into_existing,
            revision: content.revision,
        };
        let place = self.place.find("mizzen-import").await?;
        let (target, to) = match &place {
            Place::Server(client, address) => (Target::Server(client.clone()), address.clone()),
            Place::Directory(directory, encryption) => {
                let target = Target::Directory {
                    directory,
                    encryption: encryption.clone(),
                    options: Box::new(server),
                };
                (target, directory.display().to_string())
            }
            Place::Etcd(etcd) => {
                let target = Target::Etcd {
                    objects: etcd.objects(self.dry_run)?,
                    client: etcd.client()?,
                    options: Box::new(server),
                };
                (target, etcd.to_string())
            }
        };
        let mut report = Report::new(self.quiet, self.dry_run);
        let what = || format!("importing {} objects into {to}", objects.len());
        let progress = (!self.quiet).then(|| Progress::start(what()));
        let imported = target
            .import(objects, &selection, options, &mut report)
            .await;
        drop(progress);
        let summary = report.summary();
        let imported = imported.inspect_err(|error| {
            // A directory that is made at the end does not exist.
            if !matches!(error, TargetError::Exact(_)) {
                print_error!("{}", summary[0]);
            }
        })?;
        for line in summary {
            write_output(format_args!("{line}"));
        }
        if imported.n_generated > 0 {
            let n_generated = imported.n_generated;
            print_error!("left out {n_generated} objects that clusters make themselves (--all)");
        }
        if imported.n_deleting > 0 {
            print_error!(
                "left out {} objects that are being deleted",
                imported.n_deleting
            );
        }
        match (report.n_failed(), report.n_incomplete()) {
            (0, 0) => Ok(()),
            (n_failed, n_incomplete) => Err(ImportError::Incomplete {
                n_failed,
                n_incomplete,
            }),
        }
    }
}
