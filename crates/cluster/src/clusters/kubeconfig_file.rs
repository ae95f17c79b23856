//! Changes of a kubeconfig file: atomic, private, and one at a time.
//!
//! client-go locks a kubeconfig by creating `FILE.lock`; so does this, so that kubectl and Mizzen do not lose each other's
//! changes.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mizzen_bootstrap::pki::{PkiError, write_private};
use mizzen_value::{Value, value, yaml};

use super::kubeconfig_text;
use crate::connect;

/// How often the lock of another program is tried.
const LOCK_INTERVAL: Duration = Duration::from_millis(100);
/// How many times.
const N_LOCK_ATTEMPTS: u32 = 50;

/// A kubeconfig file of the user, which need not exist.
#[derive(Debug, Clone)]
pub(crate) struct KubeconfigFile {
    path: PathBuf,
}

/// Why a kubeconfig file was not changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChangeKubeconfigError {
    /// Its content cannot be understood, and would be lost.
    #[error("{}: {why}; the file was not changed", file.display())]
    Invalid {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Another program has it locked.
    #[error("{} exists: another program changes the kubeconfig; delete it if none does", .0.display())]
    Locked(PathBuf),
    /// The file cannot be read or locked.
    #[error("{}: {source}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// What happened.
        source: io::Error,
    },
    /// The file cannot be written.
    #[error(transparent)]
    Write(#[from] PkiError),
}

impl KubeconfigFile {
    /// The file that kubectl writes to: the first of `$KUBECONFIG`, or else `~/.kube/config`.
    pub(crate) fn of_user() -> KubeconfigFile {
        KubeconfigFile::at(connect::default_file())
    }

    /// The file at `path`. A link is followed, so that it stays a link.
    pub(crate) fn at(path: PathBuf) -> KubeconfigFile {
        let path = std::path::absolute(&path).unwrap_or(path);
        let path = fs::canonicalize(&path).unwrap_or(path);
        KubeconfigFile { path }
    }

    /// The path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The content; none if there is no such file, or it is empty.
    pub(crate) fn read(&self) -> Result<Option<Value>, ChangeKubeconfigError> {
        Ok(self.load()?.map(|(_, config)| config))
    }

    /// The text and its content.
    fn load(&self) -> Result<Option<(String, Value)>, ChangeKubeconfigError> {
        let invalid = |why: String| ChangeKubeconfigError::Invalid {
            file: self.path.clone(),
            why,
        };
        let text = match fs::read(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text.map_err(|source| self.failed(source))?,
        };
        let text = String::from_utf8(text).map_err(|error| invalid(error.to_string()))?;
        let document = yaml::read(text.as_bytes()).map_err(|error| invalid(error.to_string()))?;
        if let Some(complaint) = document.complaint {
            return Err(invalid(complaint.to_string()));
        }
        let config = document.value;
        if config.is_null() {
            return Ok(None);
        }
        let is_list = |key: &&str| matches!(config[*key], Value::Null | Value::List(_));
        match config.as_map() {
            None => Err(invalid("is not a kubeconfig".into())),
            Some(_) if !matches!(config["kind"].str(), "" | "Config") => {
                Err(invalid("its kind is not Config".into()))
            }
            Some(_) => match ["clusters", "users", "contexts"]
                .iter()
                .find(|key| !is_list(key))
            {
                Some(key) => Err(invalid(format!("{key} is not a list"))),
                None => Ok(Some((text, config))),
            },
        }
    }

    /// Changes the content, and returns the path.
    pub(crate) async fn change(
        &self,
        change: impl FnOnce(&mut Value),
    ) -> Result<PathBuf, ChangeKubeconfigError> {
        if let Some(directory) = self.path.parent() {
            fs::create_dir_all(directory).map_err(|source| self.failed(source))?;
        }
        let _lock = self.lock().await?;
        let text = match self.load()? {
            Some((text, before)) => {
                let mut after = before.clone();
                change(&mut after);
                kubeconfig_text::rewrite(&text, &before, &after)
            }
            None => {
                let mut config = value!({"apiVersion": "v1", "kind": "Config"});
                change(&mut config);
                yaml::write(&config)
            }
        };
        write_private(&self.path, &text)?;
        Ok(self.path.clone())
    }

    async fn lock(&self) -> Result<KubeconfigLock, ChangeKubeconfigError> {
        let mut path = self.path.clone().into_os_string();
        path.push(".lock");
        let path = PathBuf::from(path);
        for _ in 0..N_LOCK_ATTEMPTS {
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(_) => return Ok(KubeconfigLock(path)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    tokio::time::sleep(LOCK_INTERVAL).await;
                }
                Err(source) => return Err(self.failed(source)),
            }
        }
        Err(ChangeKubeconfigError::Locked(path))
    }

    fn failed(&self, source: io::Error) -> ChangeKubeconfigError {
        ChangeKubeconfigError::File {
            file: self.path.clone(),
            source,
        }
    }
}

/// `FILE.lock`, which is deleted with it.
struct KubeconfigLock(PathBuf);

impl Drop for KubeconfigLock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_file_that_another_program_changes_is_an_error_after_a_while() {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("config.lock"), "").unwrap();
        let file = KubeconfigFile::at(home.path().join("config"));
        let error = file.change(|_| ()).await.unwrap_err().to_string();
        assert!(error.contains("config.lock exists"), "{error}");
        fs::remove_file(home.path().join("config.lock")).unwrap();
        file.change(|_| ()).await.unwrap();
        assert!(!home.path().join("config.lock").exists());
    }

    #[tokio::test]
    async fn a_file_that_is_no_kubeconfig_is_not_changed() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("config");
        for (text, expected) in [
            ("- a\n", "is not a kubeconfig"),
            ("kind: Pod\n", "its kind is not Config"),
            ("clusters: {}\n", "clusters is not a list"),
            ("a: [\n", "config"),
            ("kind: Config\nkind: Config\n", "config"),
        ] {
            fs::write(&path, text).unwrap();
            let file = KubeconfigFile::at(path.clone());
            let error = file.change(|_| ()).await.unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
            assert!(error.ends_with("the file was not changed"), "{error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }

    #[tokio::test]
    async fn a_link_to_a_kubeconfig_stays_a_link() {
        let home = tempfile::tempdir().unwrap();
        let (link, target) = (home.path().join("config"), home.path().join("real"));
        fs::write(&target, "kind: Config\n").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        let file = KubeconfigFile::at(link.clone());
        file.change(|config| config.set("a", "b")).await.unwrap();
        assert!(link.is_symlink());
        assert!(fs::read_to_string(&target).unwrap().contains("a: b"));
    }
}
