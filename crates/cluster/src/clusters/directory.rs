//! The directory of a cluster: its data, and the files by which other commands find the process that serves it.
//!
//! The default cluster has `~/.local/share/mizzen`, the cluster NAME `~/.local/share/mizzen/NAME`, and `--data-dir` names
//! any other directory.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use super::contexts::AddedContexts;
use super::lock::ClusterLock;
use super::name::ClusterName;
use super::record::RunRecord;
use crate::command::data_home;

/// The record of the last run; it marks the directory as ours.
pub(super) const RECORD: &str = "cluster.json";
/// The file that a running cluster locks.
pub(super) const LOCK: &str = "cluster.lock";
/// The contexts that were added to kubeconfig files.
pub(super) const CONTEXTS: &str = "contexts.json";
/// The log of a cluster in the background.
pub(super) const LOG: &str = "mizzen.log";
/// The log of the run before.
pub(super) const PREVIOUS_LOG: &str = "mizzen.log.1";

/// The directory of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClusterDirectory {
    /// The name; none if `--data-dir` named the directory.
    pub(crate) name: Option<ClusterName>,
    /// The absolute path.
    pub(crate) path: PathBuf,
}

/// Why the directory of a cluster cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", path.display())]
pub(crate) struct ClusterDirectoryError {
    /// The file or directory.
    pub(super) path: PathBuf,
    /// What happened.
    pub(super) source: io::Error,
}

impl ClusterDirectoryError {
    /// The error for `path`, as a function of its cause.
    pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> ClusterDirectoryError + use<> {
        let path = path.to_owned();
        move |source| ClusterDirectoryError { path, source }
    }
}

impl ClusterDirectory {
    /// The directory of a named cluster.
    pub(crate) fn named(name: ClusterName) -> ClusterDirectory {
        let root = root();
        let path = match name.is_default() {
            true => root,
            false => root.join(name.as_str()),
        };
        ClusterDirectory {
            name: Some(name),
            path,
        }
    }

    /// The directory that `--name` or `--data-dir` selects; that of the default cluster without them.
    pub(crate) fn select(name: Option<&ClusterName>, data_dir: Option<&Path>) -> ClusterDirectory {
        let named = ClusterDirectory::named(name.cloned().unwrap_or_default());
        match data_dir {
            Some(path) => {
                let path = std::path::absolute(path).unwrap_or_else(|_| path.into());
                let is_default = name.is_none() && path == named.path;
                let name = is_default.then(ClusterName::default);
                ClusterDirectory { name, path }
            }
            None => named,
        }
    }

    /// The directories of all named clusters: the default one first, then by name.
    pub(crate) fn all() -> Result<Vec<ClusterDirectory>, ClusterDirectoryError> {
        let root = root();
        let entries = match fs::read_dir(&root) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(ClusterDirectoryError::at(&root))?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(ClusterDirectoryError::at(&root))?;
            let name = entry.file_name();
            names.extend(name.to_str().and_then(|name| name.parse().ok()));
        }
        names.retain(|name: &ClusterName| !name.is_default());
        names.sort();
        let directories = [ClusterName::default()].into_iter().chain(names);
        Ok(directories
            .map(ClusterDirectory::named)
            .filter(ClusterDirectory::exists)
            .collect())
    }

    /// Whether a cluster was started here. Versions before the record left only their data.
    pub(crate) fn exists(&self) -> bool {
        [RECORD, LOCK, "tip"]
            .iter()
            .any(|file| self.path.join(file).is_file())
    }

    /// Creates the directory for its owner alone, and makes its name durable.
    pub(crate) fn create(&self) -> Result<(), ClusterDirectoryError> {
        if self.path.is_dir() {
            return Ok(());
        }
        let create = || {
            if self.path.exists() {
                return Err(io::Error::new(
                    io::ErrorKind::NotADirectory,
                    "not a directory",
                ));
            }
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&self.path)?;
            self.path
                .parent()
                .map_or(Ok(()), |parent| File::open(parent)?.sync_all())
        };
        create().map_err(ClusterDirectoryError::at(&self.path))
    }

    /// The name for messages: the name, or else the directory.
    pub(crate) fn title(&self) -> String {
        match &self.name {
            Some(name) => name.to_string(),
            None => self.path.display().to_string(),
        }
    }

    /// The arguments by which other commands select this cluster, with a space before them; none for the default cluster.
    pub(crate) fn arguments(&self) -> String {
        match &self.name {
            Some(name) if name.is_default() => String::new(),
            Some(name) => format!(" --name {name}"),
            None => format!(" --data-dir {}", self.path.display()),
        }
    }

    /// The name of the cluster's context in kubeconfig files.
    pub(crate) fn context_name(&self) -> String {
        match &self.name {
            Some(name) if !name.is_default() => format!("mizzen-{name}"),
            _ => "mizzen".into(),
        }
    }

    /// The pid of the process that runs the cluster.
    pub(crate) fn holder(&self) -> Result<Option<i32>, ClusterDirectoryError> {
        ClusterLock::holder(&self.path.join(LOCK))
    }

    /// The record of the last run.
    pub(crate) fn record(&self) -> Option<RunRecord> {
        RunRecord::read(&self.path.join(RECORD))
    }

    /// The contexts in kubeconfig files.
    pub(crate) fn contexts(&self) -> AddedContexts {
        AddedContexts::read(&self.path.join(CONTEXTS))
    }

    /// The log of the cluster in the background.
    pub(crate) fn log(&self) -> PathBuf {
        self.path.join(LOG)
    }
}

/// The directory of the default cluster, with the directories of the others in it.
fn root() -> PathBuf {
    let root = data_home().join("mizzen");
    std::path::absolute(&root).unwrap_or(root)
}
