//! `mizzen export`: the objects of a cluster in a file.

use std::path::PathBuf;

use clap::Args;

use super::place_args::{Place, PlaceArgs, PlaceError};
use crate::compose::block_on_large_stack;
use crate::log::print_error;
use crate::terminal::Progress;
use crate::transfer::{
    Exported, FileError, Format, KeepArgs, ObjectFile, SelectionArgs, SelectionError, Source,
    SourceError,
};

/// Write the objects of a cluster to a file
#[derive(Args)]
#[command(
    after_help = "Example:\n  mizzen export shop.yaml --namespace shop\n  \
                  mizzen export --context production --exclude secrets | mizzen import - --name copy\n  \
                  mizzen export all.jsonl.gz --all --keep all --data-dir ./data\n  \
                  mizzen export all.jsonl.gz --all --keep all --etcd-servers http://127.0.0.1:2379"
)]
pub(crate) struct ExportCommand {
    /// Write to this file, and compress it if its name ends with .gz; - is standard output
    #[arg(value_name = "FILE", default_value = "-")]
    file: PathBuf,
    #[command(flatten)]
    place: PlaceArgs,
    /// Write this format [default: json for .json and .jsonl, otherwise yaml]
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
    /// Replace the file if it exists
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    keep: KeepArgs,
    #[command(flatten)]
    selection: SelectionArgs,
}

/// Why nothing was exported.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExportError {
    /// An argument is invalid.
    #[error(transparent)]
    Selection(#[from] SelectionError),
    /// The cluster cannot be found.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// The objects cannot be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The file cannot be written.
    #[error(transparent)]
    File(#[from] FileError),
    /// No runtime.
    #[error("cannot start")]
    Start(#[from] std::io::Error),
}

impl ExportCommand {
    /// Writes the file.
    pub(crate) fn run(self) -> Result<(), ExportError> {
        block_on_large_stack(|| self.export())?
    }

    async fn export(self) -> Result<(), ExportError> {
        let (selection, keep) = (self.selection.selection()?, self.keep.keep());
        let mut file = ObjectFile::create(&self.file, self.format, self.force)?;
        let (source, from) = match self.place.find("mizzen-export").await? {
            Place::Server(client, address) => (Source::Server(client), address),
            Place::Directory(directory, encryption) => {
                let source = Source::directory(&directory, encryption).await;
                let source = source.map_err(SourceError::from)?;
                (source, directory.display().to_string())
            }
            Place::Etcd(etcd) => {
                let source = Source::etcd(etcd.objects(true)?).await;
                (source.map_err(SourceError::from)?, etcd.to_string())
            }
        };
        let progress = Progress::start(format!("exporting the objects of {from}"));
        let exported = source.export(&selection, &keep, &mut file).await?;
        file.finish()?;
        drop(progress);
        print_summary(&exported, &from, &self.file.display().to_string());
        Ok(())
    }
}

/// On standard error, for objects may go to standard output.
fn print_summary(exported: &Exported, from: &str, to: &str) {
    let (n_objects, n_types) = (exported.n_objects, exported.n_types);
    let to = if to == "-" { "standard output" } else { to };
    print_error!("exported {n_objects} objects of {n_types} resources from {from} to {to}");
    if exported.n_generated > 0 {
        let n_generated = exported.n_generated;
        print_error!("left out {n_generated} objects that clusters make themselves (--all)");
    }
    if exported.n_deleting > 0 {
        print_error!(
            "left out {} objects that are being deleted",
            exported.n_deleting
        );
    }
    for group in &exported.aggregated {
        let name = group.split('/').next().unwrap_or_default();
        print_error!("left out {group}, which another server serves (--include '*.{name}')");
    }
}
