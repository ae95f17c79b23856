//! Links to the logs of containers, by which collectors of logs find them:
//! `/var/log/containers/POD_NAMESPACE_CONTAINER-ID.log`.
//!
//! Kubernetes: pkg/kubelet/kuberuntime/legacy.go. The directory is beside that of pods.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use mizzen_value::Value;

use super::config::{NodePaths, log_name};

/// Kubernetes: the most bytes of a name without `.log` (`maxFileNameLength`).
const MAX_NAME: usize = 251;

fn directory(logs: &Path) -> PathBuf {
    logs.with_file_name("containers")
}

/// Makes the link of an instance.
pub(super) fn link(
    paths: &NodePaths,
    pod: &Value,
    (container, id, attempt): (&str, &str, u32),
) -> io::Result<()> {
    let metadata = &pod["metadata"];
    let [namespace, name, uid] = ["namespace", "name", "uid"].map(|field| metadata[field].str());
    let mut link = format!("{name}_{namespace}_{container}-{id}");
    link.truncate(MAX_NAME);
    let dir = directory(&paths.logs);
    let log = paths.pod_logs(namespace, name, uid);
    fs::create_dir_all(&dir)?;
    match symlink(
        log.join(log_name(container, attempt)),
        dir.join(link + ".log"),
    ) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Removes the links to logs that have gone from the directory `logs`, and their directory once it is
/// empty.
pub(super) fn remove_dead(logs: &Path) {
    let dir = directory(logs);
    let entries = fs::read_dir(&dir).into_iter().flatten();
    for link in entries.flatten().map(|entry| entry.path()) {
        let target = fs::read_link(&link);
        let is_dead =
            |target: &Path| target.starts_with(logs) && fs::symlink_metadata(target).is_err();
        if target.is_ok_and(|target| is_dead(&target)) {
            // The next turn removes what is left.
            let _ = fs::remove_file(link);
        }
    }
    // It fails while another link is there.
    let _ = fs::remove_dir(dir);
}

#[cfg(test)]
mod tests {
    use mizzen_value::value;

    use super::*;

    #[test]
    fn a_link_lives_as_long_as_its_log() {
        let dir = tempfile::tempdir().unwrap();
        let paths = NodePaths {
            root: dir.path().join("node"),
            logs: dir.path().join("pods"),
        };
        let pod = value!({ "metadata": { "name": "web", "namespace": "shop", "uid": "u" } });
        let log = dir.path().join("pods/shop_web_u/c/1.log");
        fs::create_dir_all(log.parent().unwrap()).unwrap();
        fs::write(&log, "text").unwrap();
        let other = dir.path().join("containers/other.log");
        for _ in 0..2 {
            link(&paths, &pod, ("c", "abc", 1)).unwrap();
        }
        symlink("/of/another/program", &other).unwrap();
        let made = dir.path().join("containers/web_shop_c-abc.log");
        assert_eq!(fs::read_to_string(&made).unwrap(), "text");
        remove_dead(&paths.logs);
        assert!(made.exists());
        fs::remove_file(&log).unwrap();
        remove_dead(&paths.logs);
        assert!(fs::symlink_metadata(&made).is_err());
        assert!(fs::symlink_metadata(&other).is_ok());
    }
}
