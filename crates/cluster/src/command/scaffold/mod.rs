//! `mizzen init` and `mizzen create`: the files of an operator, from `mizzen_scaffold`.

mod create;
mod init;
mod sdk;

use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use mizzen_scaffold::{
    Change, ChangeError, EditPolicy, NameError, ParseError, Plan, PlanError, Project,
};

use crate::log::{print_error, write_output};

pub(crate) use create::Create;
pub(crate) use init::Init;

/// What happens to files that exist.
#[derive(Args)]
struct WriteArgs {
    /// Print what would be written, and write nothing
    #[arg(long)]
    dry_run: bool,
    /// Leave edited files as they are, and write the others
    #[arg(long, conflicts_with = "force")]
    keep_edited: bool,
    /// Overwrite edited files
    #[arg(long)]
    force: bool,
}

/// Why a project was not written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ScaffoldError {
    /// A name cannot be used.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The change does not fit the project.
    #[error(transparent)]
    Change(#[from] ChangeError),
    /// The file `PROJECT` cannot be used.
    #[error(transparent)]
    Parse(#[from] ParseError),
    /// The files cannot be compared or written.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// There is no project.
    #[error("{} is not a project: it has no file PROJECT; `mizzen init` makes one", .0.display())]
    NoProject(PathBuf),
    /// The file `PROJECT` cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What happened.
        source: io::Error,
    },
    /// The project exists with another setting.
    #[error("{} is a project with {is}, and not {asked}", directory.display())]
    Differs {
        /// Its directory.
        directory: PathBuf,
        /// The setting that it has.
        is: String,
        /// The setting of the command line.
        asked: String,
    },
    /// The directory has no SDK.
    #[error("{} is no checkout of mizzen: it has no crates/sdk/Cargo.toml of the package mizzen-sdk", .0.display())]
    NoSdk(PathBuf),
    /// No webhook was chosen.
    #[error("choose the webhooks: --defaulting, --validating, --conversion, or several of them")]
    NoWebhook,
}

/// The project in a directory; `None` if there is none.
fn read_project(directory: &Path) -> Result<Option<Project>, ScaffoldError> {
    let path = directory.join(Project::FILE);
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok(Some(Project::parse(&text)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(ScaffoldError::Read { path, source }),
    }
}

impl WriteArgs {
    /// Prints what becomes of each file, and writes the project. Edited files that should change are printed as a patch.
    fn write(&self, directory: &Path, project: &Project) -> Result<(), ScaffoldError> {
        let plan = Plan::new(directory, project)?;
        let edits = match (self.keep_edited, self.force) {
            (true, _) => EditPolicy::Keep,
            (_, true) => EditPolicy::Overwrite,
            _ => EditPolicy::Refuse,
        };
        for file in plan.files() {
            let is_overwritten = edits == EditPolicy::Overwrite;
            let word = match file.change {
                Change::Create => "create",
                Change::Update => "change",
                Change::Keep | Change::Conflict if is_overwritten => "overwrite",
                Change::Conflict if edits == EditPolicy::Keep => "keep edited",
                Change::Conflict => "edited",
                Change::Keep => "keep edited",
                Change::Unchanged => continue,
            };
            write_output(format_args!(
                "{word:<12} {}",
                directory.join(&file.path).display()
            ));
            let is_shown = self.dry_run && file.change != Change::Create;
            if file.change == Change::Conflict || is_shown {
                print_error!("{}", file.diff().trim_end());
            }
        }
        if !self.dry_run {
            return Ok(plan.write(edits)?);
        }
        match plan.conflicts().is_empty() || edits != EditPolicy::Refuse {
            true => write_output(format_args!("nothing was written: --dry-run")),
            // The same error as without --dry-run, which writes nothing in this case.
            false => plan.write(edits)?,
        }
        Ok(())
    }
}
