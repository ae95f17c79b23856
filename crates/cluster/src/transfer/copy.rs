//! All objects of one store in another that has none, as they are: what `mizzen backup` and `mizzen restore` do with etcd.

use super::selection::Selection;
use super::{
    FileContent, ImportOptions, Keep, ObjectFile, OnConflict, Report, Source, SourceError, Target,
    TargetError,
};

/// Why a store cannot be copied.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CopyError {
    /// It cannot be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The target has objects.
    #[error("etcd has objects already; name one without objects, or another --etcd-prefix")]
    NotEmpty,
    /// The target cannot be written.
    #[error(transparent)]
    Target(TargetError),
    /// Some objects cannot be copied; they are printed.
    #[error("{0} objects cannot be copied")]
    Incomplete(usize),
}

/// Writes all objects of `source` to `target`, with their uids and revisions, and the revision of the source.
pub(crate) async fn copy_exactly(source: Source, target: Target<'_>) -> Result<(), CopyError> {
    let (selection, keep) = (Selection::everything(), Keep::ALL);
    let mut file = ObjectFile::in_memory();
    source.export(&selection, &keep, &mut file).await?;
    let FileContent { objects, revision } = file.into_content();
    let options = ImportOptions {
        keep,
        on_conflict: OnConflict::Fail,
        is_dry_run: false,
        into_existing: false,
        revision,
    };
    let mut report = Report::new(true, false);
    let imported = target.import(objects, &selection, options, &mut report);
    imported.await.map_err(|error| match error {
        TargetError::NotEmpty => CopyError::NotEmpty,
        error => CopyError::Target(error),
    })?;
    match report.n_failed() + report.n_incomplete() {
        0 => Ok(()),
        n_missing => Err(CopyError::Incomplete(n_missing)),
    }
}
