//! Deletion of a cluster's data. Only files that a server writes are deleted, and only in a directory that has a record.
//! Other files of the user, and the clusters in the directory of the default one, are kept.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::directory::{CONTEXTS, ClusterDirectory, ClusterDirectoryError, LOCK, LOG, RECORD};
use super::running::{BusyCluster, RunningCluster};

/// The files of a server besides its record and lock, which are deleted last.
const FILES: [&str; 11] = [
    "admin.kubeconfig",
    "ca.crt",
    "ca.key",
    "front-proxy-ca.crt",
    "front-proxy-ca.key",
    "lock",
    "reserve",
    "sa.key",
    "tip",
    CONTEXTS,
    LOG,
];

/// Why data was not deleted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PurgeError {
    /// It may be a directory of the user.
    #[error("{} has no {RECORD} of Mizzen, so nothing in it was deleted", .0.display())]
    Foreign(PathBuf),
    /// The cluster was started again.
    #[error(transparent)]
    Busy(#[from] BusyCluster),
    /// A file cannot be deleted.
    #[error(transparent)]
    Delete(#[from] ClusterDirectoryError),
}

impl ClusterDirectory {
    /// Deletes the data of a cluster that does not run, and returns whether the directory remains, with other files.
    pub(crate) fn purge(&self) -> Result<bool, PurgeError> {
        if self.record().is_none() {
            return Err(PurgeError::Foreign(self.path.clone()));
        }
        // The lock excludes a server that starts meanwhile.
        let _cluster = RunningCluster::lock(self.clone())?;
        let entries = fs::read_dir(&self.path).map_err(ClusterDirectoryError::at(&self.path))?;
        for entry in entries {
            let entry = entry.map_err(ClusterDirectoryError::at(&self.path))?;
            let is_file = entry.file_type().is_ok_and(|kind| !kind.is_dir());
            if is_file && is_of_server(&entry.file_name()) {
                delete(&entry.path())?;
            }
        }
        // The record goes last but one: an interrupted purge can be repeated.
        delete(&self.path.join(RECORD))?;
        delete(&self.path.join(LOCK))?;
        Ok(fs::remove_dir(&self.path).is_err())
    }
}

/// Whether a server writes files of this name. `.new`, or `.PID.new`, is the suffix of a file until it is whole.
fn is_of_server(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else {
        return false;
    };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let name = match name.strip_suffix(".new") {
        Some(name) => match name.rsplit_once('.') {
            Some((name, process)) if is_number(process) => name,
            _ => name,
        },
        None => name,
    };
    let is_generation = name.split_once('.').is_some_and(|(number, extension)| {
        is_number(number) && ["base", "log"].contains(&extension)
    });
    // The logs of earlier runs, and of processes that did not get to rename theirs.
    let is_log = name.strip_prefix("mizzen.log.").is_some_and(is_number);
    FILES.contains(&name) || is_generation || is_log
}

fn delete(path: &Path) -> Result<(), ClusterDirectoryError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        deleted => deleted.map_err(ClusterDirectoryError::at(path)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_a_server_are_deleted() {
        for name in [
            "00000001.base",
            "12.log",
            "ca.key",
            "tip.new",
            "ca.key.4711.new",
            "mizzen.log.1",
            "mizzen.log.4711",
        ] {
            assert!(is_of_server(OsStr::new(name)), "{name}");
        }
        for name in [
            "notes.txt",
            "dev",
            "a.log",
            "ca.key.bak",
            "mizzen.log.gz",
            ".base",
        ] {
            assert!(!is_of_server(OsStr::new(name)), "{name}");
        }
    }

    #[test]
    fn a_directory_without_a_record_is_kept() {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("ca.key"), "mine").unwrap();
        let directory = ClusterDirectory::select(None, Some(home.path()));
        assert!(matches!(directory.purge(), Err(PurgeError::Foreign(_))));
        assert!(home.path().join("ca.key").exists());
    }

    #[test]
    fn files_of_the_user_and_other_clusters_are_kept() {
        let home = tempfile::tempdir().unwrap();
        let directory = ClusterDirectory::select(None, Some(home.path()));
        drop(RunningCluster::lock(directory.clone()).unwrap());
        fs::create_dir(home.path().join("dev")).unwrap();
        for file in ["ca.key", "notes.txt", "dev/ca.key"] {
            fs::write(home.path().join(file), "text").unwrap();
        }
        assert!(directory.purge().unwrap(), "the directory remains");
        let left = |file: &str| home.path().join(file).exists();
        assert!(left("notes.txt") && left("dev/ca.key"));
        assert!(!left("ca.key") && !left(RECORD) && !left(LOCK));
    }
}
