//! Logs of containers are rotated by size. Kubernetes: pkg/kubelet/logs/container_log_manager.go.
//!
//! The log `0.log` is renamed to `0.log.20060102-150405`, and the runtime opens another one. At the
//! next rotation that file is compressed, to `….gz`: until then a reader may still be at it.
//!
//! Invariant: at every moment a log can be read from the files that are there: a file is removed
//! only once it is compressed, or because there are too many.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use mizzen_cri::messages::ReopenContainerLogRequest;
use mizzen_value::Str;
use mizzen_value::time::from_unix;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::{CriNode, config};

/// The suffixes of compressed and of unfinished files.
const COMPRESSED: &str = ".gz";
const UNFINISHED: &str = ".tmp";

/// When logs are rotated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerLogPolicy {
    /// A log of at least this size is rotated (`containerLogMaxSize`); `None` for never.
    pub max_size: Option<u64>,
    /// The most files of a container, with the current one (`containerLogMaxFiles`).
    pub max_files: usize,
    /// How often sizes are read (`containerLogMonitorInterval`).
    pub interval: Duration,
}

impl Default for ContainerLogPolicy {
    fn default() -> ContainerLogPolicy {
        ContainerLogPolicy {
            max_size: Some(10 << 20),
            max_files: 5,
            interval: Duration::from_secs(10),
        }
    }
}

/// What is done with the rotated files of a log before the next rotation.
#[derive(Debug, Default, PartialEq, Eq)]
struct RotationPlan {
    remove: Vec<String>,
    compress: Vec<String>,
}

impl RotationPlan {
    /// Pure. `names` are the rotated files of a log.
    fn new(names: &[String], max_files: usize) -> RotationPlan {
        let (mut kept, mut remove): (Vec<&String>, Vec<&String>) =
            names.iter().partition(|name| is_whole(name, names));
        kept.sort();
        // The current file and the one that it becomes count as well.
        let n_excess = kept.len().saturating_sub(max_files.saturating_sub(2));
        remove.extend(kept.drain(..n_excess));
        let compress = kept.into_iter().filter(|name| !name.ends_with(COMPRESSED));
        RotationPlan {
            compress: compress.cloned().collect(),
            remove: remove.into_iter().cloned().collect(),
        }
    }
}

/// Whether a file is part of the log. A rotation that was interrupted leaves others.
fn is_whole(name: &str, names: &[String]) -> bool {
    let is_compressed = || {
        names
            .iter()
            .any(|other| *other == format!("{name}{COMPRESSED}"))
    };
    !name.ends_with(UNFINISHED) && (name.ends_with(COMPRESSED) || !is_compressed())
}

/// The names of all files beside a log that begin with its name and a dot.
fn names_beside(log: &Path) -> io::Result<Vec<String>> {
    let (Some(dir), Some(name)) = (log.parent(), log.file_name()) else {
        return Ok(Vec::new());
    };
    let prefix = format!("{}.", name.to_string_lossy());
    let mut names = Vec::new();
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.starts_with(&prefix) {
            names.push(name);
        }
    }
    Ok(names)
}

/// The rotated files of a log, oldest first.
pub(crate) fn rotated(log: &Path) -> io::Result<Vec<PathBuf>> {
    let names = match names_beside(log) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        names => names?,
    };
    let mut whole: Vec<&String> = names.iter().filter(|name| is_whole(name, &names)).collect();
    whole.sort();
    Ok(whole
        .into_iter()
        .map(|name| log.with_file_name(name))
        .collect())
}

/// Removes and compresses the rotated files of a log.
fn tidy(log: &Path, max_files: usize) -> io::Result<()> {
    let plan = RotationPlan::new(&names_beside(log)?, max_files);
    for name in plan.remove {
        fs::remove_file(log.with_file_name(name))?;
    }
    for name in plan.compress {
        compress(&log.with_file_name(name))?;
    }
    Ok(())
}

fn compress(file: &Path) -> io::Result<()> {
    let with = |suffix: &str| PathBuf::from(format!("{}{suffix}", file.display()));
    let (unfinished, compressed) = (with(UNFINISHED), with(COMPRESSED));
    let mut from = File::open(file)?;
    let to = File::create(&unfinished)?;
    to.set_permissions(from.metadata()?.permissions())?;
    let mut to = GzEncoder::new(to, Compression::default());
    io::copy(&mut from, &mut to)?;
    to.finish()?;
    fs::rename(unfinished, compressed)?;
    fs::remove_file(file)
}

/// `20060102-150405` in UTC.
fn timestamp(seconds: i64) -> String {
    let text = from_unix(seconds);
    let digits = text
        .chars()
        .filter(|letter| !matches!(letter, '-' | ':' | 'Z'));
    digits
        .map(|letter| if letter == 'T' { '-' } else { letter })
        .collect()
}

impl CriNode {
    /// Rotates logs of running containers until the future is dropped.
    pub(super) async fn rotate_logs(self: &Arc<Self>) {
        let policy = &self.housekeeping.container_log;
        let Some(max_size) = policy.max_size else {
            return;
        };
        loop {
            sleep(policy.interval).await;
            for (id, log) in self.running_logs() {
                if let Err(error) = self.rotate_log(&id, &log, max_size).await {
                    tracing::warn!(error, log = %log.display(), "cannot rotate a log");
                }
            }
        }
    }

    /// The IDs of running containers, and their logs.
    fn running_logs(&self) -> Vec<(Str, PathBuf)> {
        let pods = self.pods.lock();
        let mut logs = Vec::new();
        for (uid, record) in pods.iter() {
            let (namespace, name) = (record.key.namespace(), record.key.name());
            let dir = self.paths.pod_logs(namespace, name, uid);
            for cell in &record.containers {
                let state = cell.state.lock();
                if state.phase.is_running() {
                    let log = dir.join(config::log_name(&cell.name, cell.attempt));
                    logs.push((state.id.clone(), log));
                }
            }
        }
        logs
    }

    async fn rotate_log(&self, id: &str, log: &Path, max_size: u64) -> Result<(), String> {
        let reopen = async || {
            let container_id = id.to_owned();
            let reopened = self.client.call(ReopenContainerLogRequest { container_id });
            reopened.await.map(drop).map_err(|error| error.to_string())
        };
        match fs::metadata(log) {
            // A rotation was interrupted.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return reopen().await,
            Err(error) => return Err(error.to_string()),
            Ok(metadata) if metadata.len() < max_size => return Ok(()),
            Ok(_) => {}
        }
        let seconds = (self.housekeeping.clock)().as_second();
        let rotated = PathBuf::from(format!("{}.{}", log.display(), timestamp(seconds)));
        let compressed = PathBuf::from(format!("{}{COMPRESSED}", rotated.display()));
        if rotated.exists() || compressed.exists() {
            // The last rotation was in this second, and has the name.
            return Ok(());
        }
        let (file, max_files) = (log.to_owned(), self.housekeeping.container_log.max_files);
        let tidied = spawn_blocking(move || tidy(&file, max_files)).await;
        tidied
            .map_err(|error| error.to_string())?
            .map_err(|error| error.to_string())?;
        fs::rename(log, &rotated).map_err(|error| error.to_string())?;
        let reopened = reopen().await;
        if reopened.is_err() && !log.exists() {
            // The container still writes to it: it is rotated again later.
            fs::rename(&rotated, log).map_err(|error| error.to_string())?;
        }
        reopened
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    #[track_caller]
    fn check(names: &str, max_files: usize, remove: &str, compress: &str) {
        let names: Vec<String> = names.split_whitespace().map(String::from).collect();
        let plan = RotationPlan::new(&names, max_files);
        assert_eq!(
            [plan.remove.join(" "), plan.compress.join(" ")],
            [remove, compress]
        );
    }

    #[test]
    fn rotated_files_are_compressed_and_the_oldest_removed() {
        check("", 5, "", "");
        check("l.1", 5, "", "l.1");
        check("l.2 l.1.gz", 5, "", "l.2");
        check("l.4 l.3.gz l.2.gz l.1.gz", 5, "l.1.gz", "l.4");
        check("l.3 l.2.gz l.1.gz", 2, "l.1.gz l.2.gz l.3", "");
        // What an interrupted rotation left.
        check("l.2.tmp l.2 l.1 l.1.gz", 5, "l.2.tmp l.1", "l.2");
    }

    #[test]
    fn files_are_named_by_time() {
        assert_eq!(timestamp(1_136_214_245), "20060102-150405");
    }

    #[test]
    fn a_compressed_file_has_the_whole_log() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("0.log");
        for (name, text) in [
            ("0.log", "now"),
            ("0.log.2", "before"),
            ("0.log.1.gz", "old"),
            ("0.log.2.tmp", ""),
        ] {
            fs::write(dir.path().join(name), text).unwrap();
        }
        tidy(&log, 5).unwrap();
        let names = |files: Vec<PathBuf>| -> Vec<String> {
            let name = |file: &PathBuf| file.file_name().unwrap().to_string_lossy().into_owned();
            files.iter().map(name).collect()
        };
        let files = rotated(&log).unwrap();
        assert_eq!(names(files.clone()), ["0.log.1.gz", "0.log.2.gz"]);
        let mut text = String::new();
        let file = File::open(&files[1]).unwrap();
        flate2::read::GzDecoder::new(file)
            .read_to_string(&mut text)
            .unwrap();
        assert_eq!(text, "before");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3);
        assert_eq!(
            rotated(Path::new("/nowhere/0.log")).unwrap(),
            [""; 0].map(PathBuf::from)
        );
    }
}
