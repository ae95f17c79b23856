//! Watches files for changes: certificates, authorities and configuration files.
//!
//! Files are read every [`POLL_INTERVAL`] and compared by content, so that replaced files, symbolic
//! links and mounted volumes all work. Contents that could not be loaded are retried after
//! [`RETRY_INTERVAL`], or when they change.
//!
//! ```no_run
//! # async fn watch() {
//! use mizzen_file_watcher::FileWatcher;
//!
//! let mut watcher = FileWatcher::new(["limits.json".into()], [b"{}".to_vec()]);
//! loop {
//!     match watcher.changed().await {
//!         Ok(contents) if contents[0].starts_with(b"{") => watcher.accept(),
//!         Ok(_) => eprintln!("limits.json is not JSON"),
//!         Err(error) => eprintln!("{error}"),
//!     }
//! }
//! # }
//! ```
//!
//! Kubernetes: uses inotify, and polls every minute (kubernetes/pkg/util/filesystem, `WatchUntil`).

use std::path::PathBuf;
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// How often files are read.
pub const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// After how long contents that could not be loaded are retried.
pub const RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// A group of files and their contents in use.
#[derive(Debug)]
pub struct FileWatcher {
    files: Vec<PathBuf>,
    loaded: Vec<Vec<u8>>,
    /// The contents that were returned last and not accepted, and when.
    pending: Option<(Contents, Instant)>,
}

/// The contents of the files in order, or the first error.
type Contents = Result<Vec<Vec<u8>>, FileError>;

/// A file that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {why}", .path.display())]
pub struct FileError {
    /// The path of the file.
    pub path: PathBuf,
    /// The error message.
    pub why: String,
}

impl FileWatcher {
    /// Watches files whose contents are `loaded`; without any, they change at once.
    pub fn new(
        files: impl IntoIterator<Item = PathBuf>,
        loaded: impl IntoIterator<Item = Vec<u8>>,
    ) -> FileWatcher {
        FileWatcher {
            files: files.into_iter().collect(),
            loaded: loaded.into_iter().collect(),
            pending: None,
        }
    }

    /// Waits until the contents differ from the accepted ones, and returns them.
    pub async fn changed(&mut self) -> Result<Vec<Vec<u8>>, FileError> {
        loop {
            sleep(POLL_INTERVAL).await;
            let read = |path: &PathBuf| {
                std::fs::read(path).map_err(|error| FileError {
                    path: path.clone(),
                    why: error.to_string(),
                })
            };
            let now: Contents = self.files.iter().map(read).collect();
            if now.as_ref() == Ok(&self.loaded) {
                self.pending = None;
                continue;
            }
            let is_known =
                |(last, at): &(_, Instant)| *last == now && at.elapsed() < RETRY_INTERVAL;
            if !self.pending.as_ref().is_some_and(is_known) {
                self.pending = Some((now.clone(), Instant::now()));
                return now;
            }
        }
    }

    /// Accepts the contents that [`changed`](FileWatcher::changed) returned last.
    pub fn accept(&mut self) {
        if let Some((Ok(contents), _)) = self.pending.take() {
            self.loaded = contents;
        }
    }

    /// Calls `load` with the content of the first file at each change. It is accepted if `load`
    /// returns true.
    pub async fn run(mut self, mut load: impl FnMut(Result<&[u8], FileError>) -> bool) {
        loop {
            let read = self.changed().await;
            let content = read.as_ref().map(|contents| &*contents[0]);
            if load(content.map_err(FileError::clone)) {
                self.accept();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use std::sync::Arc;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn contents_are_loaded_when_they_change_and_again_a_minute_after_they_failed() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, "a").unwrap();
        let (seen, seconds) = (Arc::new(Mutex::new(Vec::new())), Duration::from_secs);
        let log = seen.clone();
        let load = move |content: Result<&[u8], FileError>| {
            let text = content.map(|content| String::from_utf8_lossy(content).into_owned());
            let is_good = text.as_ref().is_ok_and(|text| !text.starts_with("bad"));
            log.lock()
                .push(text.unwrap_or_else(|_| "unreadable".into()));
            is_good
        };
        let task = tokio::spawn(FileWatcher::new([file.clone()], [b"a".to_vec()]).run(load));
        let check = async |content: Option<&str>, wait: Duration, expected: &[&str]| {
            match content {
                Some(text) => std::fs::write(&file, text).unwrap(),
                None => std::fs::remove_file(&file).unwrap(),
            }
            sleep(wait).await;
            assert_eq!(std::mem::take(&mut *seen.lock()), expected, "{content:?}");
        };
        check(Some("a"), seconds(300), &[]).await;
        check(Some("b"), seconds(300), &["b"]).await;
        check(None, seconds(3), &["unreadable"]).await;
        check(Some("b"), seconds(3), &[]).await;
        check(None, seconds(123), &["unreadable"; 3]).await;
        check(Some("bad"), seconds(3), &["bad"]).await;
        check(Some("bad"), seconds(120), &["bad"; 2]).await;
        check(Some("bad 2"), seconds(3), &["bad 2"]).await;
        check(Some("b"), seconds(3), &[]).await;
        check(Some("bad 2"), seconds(3), &["bad 2"]).await;
        check(Some("c"), seconds(300), &["c"]).await;
        task.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn files_that_belong_together_change_together() {
        let directory = tempfile::tempdir().unwrap();
        let files = ["a", "b"].map(|name| directory.path().join(name));
        files
            .iter()
            .for_each(|file| std::fs::write(file, "1").unwrap());
        let mut watcher = FileWatcher::new(files.clone(), []);
        assert_eq!(watcher.changed().await, Ok(vec![b"1".to_vec(); 2]));
        watcher.accept();
        std::fs::write(&files[1], "2").unwrap();
        assert_eq!(
            watcher.changed().await,
            Ok(vec![b"1".to_vec(), b"2".to_vec()])
        );
        std::fs::remove_file(&files[0]).unwrap();
        let error = watcher.changed().await.unwrap_err();
        assert_eq!(error.path, files[0]);
    }
}
