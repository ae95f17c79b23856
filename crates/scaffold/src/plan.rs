//! The files of a project compared with a directory: what is created, changed and kept.
//!
//! Nothing is written before everything is known to fit: a plan with conflicts is not written at all, unless the user
//! says what becomes of edited files.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use crate::checksum::{self, Checksums, checksum};
use crate::diff;
use crate::project::{ParseError, Project};
use crate::spoke;

/// What happens to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It does not exist.
    Create,
    /// It is as it was generated, and becomes another; or only gets additional lines.
    Update,
    /// It is as it should be.
    Unchanged,
    /// The user edited or deleted it, and the change leaves it alone.
    Keep,
    /// The user edited it, and it should change.
    Conflict,
}

/// A file of a plan.
#[derive(Debug)]
pub struct PlannedFile {
    /// Its path in the project.
    pub path: String,
    /// What happens to it.
    pub change: Change,
    /// The text that it should have.
    wanted: String,
    /// The text that it has; empty if it does not exist.
    present: String,
}

impl PlannedFile {
    /// The difference between what the file is and what it should be, as a patch.
    pub fn diff(&self) -> String {
        diff::unified(&self.path, &self.present, &self.wanted)
    }
}

/// What becomes of edited files that should change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EditPolicy {
    /// Nothing is written.
    #[default]
    Refuse,
    /// They are left as they are, and the other files are written.
    Keep,
    /// They are overwritten, and so are all other edits.
    Overwrite,
}

/// Why files were not planned or written.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What happened.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What happened.
        source: io::Error,
    },
    /// The file `PROJECT` cannot be used.
    #[error(transparent)]
    Parse(#[from] ParseError),
    /// Edited files should change.
    #[error(
        "nothing was written: {} edited and would change; apply the difference by hand and run it again with \
         --keep-edited, or overwrite the edits with --force", count(.0)
    )]
    Conflict(Vec<String>),
}

fn count(paths: &[String]) -> String {
    match paths {
        [path] => format!("{path} was"),
        paths => format!("{} were", paths.join(", ")),
    }
}

/// The files of a project compared with a directory.
#[derive(Debug)]
pub struct Plan {
    directory: PathBuf,
    files: Vec<PlannedFile>,
    /// The text of `PROJECT`, and of `PROJECT.sum`.
    state: [(&'static str, String); 2],
}

impl Plan {
    /// Compares; writes nothing.
    pub fn new(directory: &Path, project: &Project) -> Result<Plan, PlanError> {
        let read = |path: &str| read_if_exists(&directory.join(path));
        let before = read(Project::FILE)?.map(|text| Project::parse(&text));
        let before = before.transpose()?;
        let recorded = Checksums::parse(&read(checksum::FILE)?.unwrap_or_default());
        let templates = project.files();
        let mut derived = match &before {
            Some(before) => derive_versions(before, project, &read)?,
            None => BTreeMap::new(),
        };
        let mut files = Vec::new();
        for (path, template) in &templates {
            let present = read(path)?;
            let sum = checksum(path, template);
            let is_same_template = recorded.0.get(path) == Some(&sum);
            let derived = derived.remove(path);
            let is_derived = derived.is_some();
            let wanted = derived.unwrap_or_else(|| template.clone());
            let change = match &present {
                None if is_same_template => Change::Keep,
                None => Change::Create,
                Some(text) if *text == wanted => Change::Unchanged,
                Some(_) if is_derived => Change::Update,
                Some(text) if checksum(path, text) == sum => Change::Unchanged,
                Some(text) if recorded.0.get(path) == Some(&checksum(path, text)) => Change::Update,
                Some(_) if is_same_template => Change::Keep,
                Some(_) => Change::Conflict,
            };
            files.push(PlannedFile {
                path: path.clone(),
                change,
                wanted,
                present: present.unwrap_or_default(),
            });
        }
        let sums = templates
            .iter()
            .map(|(path, it)| (path.clone(), checksum(path, it)));
        let sums = Checksums(sums.collect());
        Ok(Plan {
            directory: directory.to_owned(),
            files,
            state: [
                (checksum::FILE, sums.to_text()),
                (Project::FILE, project.to_text()),
            ],
        })
    }

    /// All files, by path.
    pub fn files(&self) -> &[PlannedFile] {
        &self.files
    }

    /// The edited files that should change.
    pub fn conflicts(&self) -> Vec<&PlannedFile> {
        let files = self.files.iter();
        files
            .filter(|file| file.change == Change::Conflict)
            .collect()
    }

    /// Writes what is planned, `PROJECT` last, so that an interrupted run can be repeated.
    pub fn write(&self, edits: EditPolicy) -> Result<(), PlanError> {
        let conflicts = self.conflicts();
        if edits == EditPolicy::Refuse && !conflicts.is_empty() {
            let paths = conflicts.into_iter().map(|file| file.path.clone());
            return Err(PlanError::Conflict(paths.collect()));
        }
        let is_written = |file: &&PlannedFile| match file.change {
            Change::Create | Change::Update => true,
            Change::Unchanged => false,
            Change::Keep | Change::Conflict => edits == EditPolicy::Overwrite,
        };
        let files = self.files.iter().filter(is_written);
        let files = files.map(|file| (file.path.as_str(), &file.wanted));
        let state = self.state.iter().map(|(path, text)| (*path, text));
        for (path, text) in files.chain(state) {
            let path = self.directory.join(path);
            let failed = |source| PlanError::Write {
                path: path.clone(),
                source,
            };
            let parent = path.parent().expect("it is a file in a directory");
            std::fs::create_dir_all(parent).map_err(failed)?;
            std::fs::write(&path, text).map_err(failed)?;
        }
        Ok(())
    }
}

/// The text of a file, if it exists.
fn read_if_exists(path: &Path) -> Result<Option<String>, PlanError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(PlanError::Read {
            path: path.to_owned(),
            source,
        }),
    }
}

/// The sources of versions that follow from those on disk: a new version begins as a copy of the hub, with its edits, and
/// the previous hub becomes a spoke.
fn derive_versions(
    before: &Project,
    after: &Project,
    read: &dyn Fn(&str) -> Result<Option<String>, PlanError>,
) -> Result<BTreeMap<String, String>, PlanError> {
    let mut derived = BTreeMap::new();
    for kind in &after.kinds {
        let Some(old) = before.kinds.iter().find(|old| old.kind == kind.kind) else {
            continue;
        };
        let Some(hub_source) = read(&Project::version_path(kind, &old.storage))? else {
            continue;
        };
        // A run that was interrupted may have made a spoke of it already.
        let hub_source = spoke::remove_conversions(&hub_source);
        let group = format!("{}.{}", kind.group, after.domain);
        let to_spoke = |source: &str| spoke::add_conversions(source, &kind.kind, &kind.storage);
        for version in &kind.versions {
            let path = Project::version_path(kind, version);
            let is_new = !old.versions.contains(version);
            if is_new {
                let copy = spoke::rename_version(&hub_source, &group, &old.storage, version);
                let is_hub = *version == kind.storage;
                derived.insert(path, if is_hub { copy } else { to_spoke(&copy) });
            } else if old.storage != kind.storage
                && let Some(source) = read(&path)?
            {
                let moved = match *version == old.storage {
                    true => to_spoke(&source),
                    false => spoke::move_hub(&source, &old.storage, &kind.storage),
                };
                derived.insert(path, moved);
            }
        }
    }
    Ok(derived)
}
