//! Dead containers, sandboxes and directories that are no longer needed. Kubernetes:
//! pkg/kubelet/kuberuntime/kuberuntime_gc.go.
//!
//! Of the dead instances of a container the latest is kept, for its log and its status. A sandbox
//! stays as long as it is the pod's latest one, runs, or has containers; one that runs and is not the
//! agent's goes: the response to the call that had made it was lost. The directories of a pod
//! are removed once no sandbox has its UID: other agents may share the runtime and the directories.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use mizzen_cri::CallError;
use mizzen_cri::messages::{
    Container, ContainerState, ListPodSandboxRequest, PodSandbox, PodSandboxState,
};
use tokio::task::spawn_blocking;

use super::config::{POD_UID, log_name};
use super::container::ContainerCell;
use super::sandbox::SandboxPhase;
use super::{CriNode, log_links, log_rotation, volumes};

/// Kubernetes: the most dead instances of a container (`MaxPerPodContainerCount`).
const MAX_DEAD: usize = 1;
/// The directory of a pod may be made before its sandbox is.
const MIN_AGE: Duration = Duration::from_secs(600);

/// What is removed from the runtime, by ID.
#[derive(Debug, Default, PartialEq, Eq)]
struct Garbage {
    containers: Vec<String>,
    sandboxes: Vec<String>,
}

impl Garbage {
    /// Pure. `is_known` says of a UID whether the agent has the pod, and `is_stray` of a UID and the
    /// ID of a sandbox that runs whether the agent uses another one, or none.
    fn find(
        sandboxes: &[PodSandbox],
        containers: &[Container],
        is_known: impl Fn(&str) -> bool,
        is_stray: impl Fn(&str, &str) -> bool,
    ) -> Garbage {
        let uid =
            |labels: &BTreeMap<String, String>| labels.get(POD_UID).cloned().unwrap_or_default();
        let mut dead: BTreeMap<(String, &str), Vec<&Container>> = BTreeMap::new();
        for container in containers {
            // One that was created is about to start.
            let has_ended = !matches!(
                container.state(),
                ContainerState::Running | ContainerState::Created
            );
            if let Some(metadata) = container.metadata.as_ref().filter(|_| has_ended) {
                let unit = (uid(&container.labels), metadata.name.as_str());
                dead.entry(unit).or_default().push(container);
            }
        }
        let mut garbage = Garbage::default();
        for ((uid, _), mut instances) in dead {
            instances.sort_by_key(|container| std::cmp::Reverse(container.created_at));
            let n_kept = if is_known(&uid) { MAX_DEAD } else { 0 };
            let excess = instances.iter().skip(n_kept);
            garbage
                .containers
                .extend(excess.map(|container| container.id.clone()));
        }
        let active: HashSet<&str> = containers
            .iter()
            .map(|container| container.pod_sandbox_id.as_str())
            .collect();
        let mut of_pods: HashMap<String, Vec<&PodSandbox>> = HashMap::new();
        for sandbox in sandboxes {
            of_pods
                .entry(uid(&sandbox.labels))
                .or_default()
                .push(sandbox);
        }
        for (uid, mut sandboxes) in of_pods {
            sandboxes.sort_by_key(|sandbox| std::cmp::Reverse(sandbox.created_at));
            let n_kept = usize::from(is_known(&uid));
            let old = sandboxes.into_iter().enumerate().filter(|(at, sandbox)| {
                let is_over = match sandbox.state() {
                    PodSandboxState::Ready => is_stray(&uid, &sandbox.id),
                    PodSandboxState::NotReady => *at >= n_kept,
                };
                is_over && !active.contains(sandbox.id.as_str())
            });
            garbage
                .sandboxes
                .extend(old.map(|(_, sandbox)| sandbox.id.clone()));
        }
        garbage
    }
}

impl CriNode {
    /// Removes what is not needed now. With `is_short_of_disk`, also what is kept of pods that have
    /// ended and were not deleted, such as their logs.
    pub(super) async fn collect_containers_once(
        self: &Arc<Self>,
        is_short_of_disk: bool,
    ) -> Result<(), CallError> {
        let (sandboxes, containers) = (self.list_sandboxes().await?, self.list_containers().await?);
        let is_known = |uid: &str| {
            let pods = self.pods.lock();
            pods.get(uid)
                .is_some_and(|pod| !is_short_of_disk || !pod.has_ended())
        };
        let is_stray = |uid: &str, id: &str| {
            let pods = self.pods.lock();
            match pods.get(uid).map(|pod| &pod.sandbox.phase) {
                // It may be the one that is being made.
                Some(SandboxPhase::Creating { .. }) => false,
                Some(phase) => phase.id().is_none_or(|own| own.as_str() != id),
                None => true,
            }
        };
        let garbage = Garbage::find(&sandboxes, &containers, is_known, is_stray);
        for id in &garbage.containers {
            self.forget_instance(id);
            self.remove_container(id).await;
        }
        for id in &garbage.sandboxes {
            self.remove_sandbox(id).await;
        }
        // Those of other agents count, too.
        let all = self.client.call(ListPodSandboxRequest::default()).await?;
        let uids = all.items.into_iter();
        let uids = uids
            .filter_map(|sandbox| Some(sandbox.metadata?.uid))
            .collect();
        self.collect_directories(uids).await;
        Ok(())
    }

    /// Removes an instance from the table, with its log.
    fn forget_instance(&self, id: &str) {
        let mut gone = Vec::new();
        for record in self.pods.lock().values_mut() {
            record.containers.retain(|cell| {
                let is_gone = cell.state.lock().id == id;
                if is_gone {
                    gone.push((record.key.clone(), cell.clone()));
                }
                !is_gone
            });
        }
        for (key, cell) in gone {
            let dir = self.paths.pod_logs(key.namespace(), key.name(), &cell.uid);
            remove_log(&dir, &cell);
        }
    }

    /// Removes the directories of pods of which there is neither a record nor a sandbox.
    async fn collect_directories(self: &Arc<Self>, in_runtime: HashSet<String>) {
        let (node, now) = (self.clone(), self.now());
        let collected = spawn_blocking(move || {
            for dir in directories(&node.paths.root.join("pods")) {
                let Some(uid) = dir.file_name().and_then(|name| name.to_str()) else {
                    continue;
                };
                let is_known = in_runtime.contains(uid) || node.pods.lock().contains_key(uid);
                if is_known || age(&dir, now).is_none_or(|age| age < MIN_AGE) {
                    continue;
                }
                for logs in directories(&node.paths.logs) {
                    let name = logs.file_name().and_then(|name| name.to_str());
                    if name.is_some_and(|name| name.rsplit('_').next() == Some(uid)) {
                        let _ = fs::remove_dir_all(&logs);
                    }
                }
                match volumes::tear_down(&dir) {
                    Ok(()) => tracing::info!(pod = uid, "directory of a pod that has gone removed"),
                    Err(error) => {
                        tracing::warn!(%error, pod = uid, "cannot remove the directory of a pod");
                    }
                }
            }
            log_links::remove_dead(&node.paths.logs);
        });
        if let Err(error) = collected.await {
            tracing::warn!(%error, "cannot collect directories of pods");
        }
    }
}

/// Removes the log of an instance, with its rotated files.
pub(super) fn remove_log(dir: &Path, cell: &ContainerCell) {
    let log = dir.join(log_name(&cell.name, cell.attempt));
    for file in log_rotation::rotated(&log).unwrap_or_default() {
        let _ = fs::remove_file(file);
    }
    let _ = fs::remove_file(log);
}

fn directories(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|it| it.is_dir()));
    directories.map(|entry| entry.path()).collect()
}

/// How long ago a directory was changed.
fn age(dir: &Path, now: Duration) -> Option<Duration> {
    let changed = fs::metadata(dir).ok()?.modified().ok()?;
    now.checked_sub(changed.duration_since(SystemTime::UNIX_EPOCH).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_cri::messages::ContainerMetadata;

    fn labels(uid: &str) -> BTreeMap<String, String> {
        [(POD_UID.to_owned(), uid.to_owned())].into()
    }

    /// `ID SANDBOX POD NAME STATE`, oldest first.
    fn containers(lines: &[&str]) -> Vec<Container> {
        let read = |(at, line): (usize, &&str)| {
            let words: Vec<&str> = line.split(' ').collect();
            let state = match words[4] {
                "runs" => ContainerState::Running,
                "new" => ContainerState::Created,
                _ => ContainerState::Exited,
            };
            Container {
                id: words[0].into(),
                pod_sandbox_id: words[1].into(),
                metadata: Some(ContainerMetadata {
                    name: words[3].into(),
                    attempt: 0,
                }),
                labels: labels(words[2]),
                created_at: at as i64,
                state: state as i32,
                ..Container::default()
            }
        };
        lines.iter().enumerate().map(read).collect()
    }

    /// `ID POD STATE`, oldest first.
    fn sandboxes(lines: &[&str]) -> Vec<PodSandbox> {
        let read = |(at, line): (usize, &&str)| {
            let words: Vec<&str> = line.split(' ').collect();
            let state = match words[2] {
                "ready" => PodSandboxState::Ready,
                _ => PodSandboxState::NotReady,
            };
            PodSandbox {
                id: words[0].into(),
                labels: labels(words[1]),
                created_at: at as i64,
                state: state as i32,
                ..PodSandbox::default()
            }
        };
        lines.iter().enumerate().map(read).collect()
    }

    /// The pod `here` is known, with its sandbox `s` or `t`.
    #[track_caller]
    fn check(sandbox_lines: &[&str], container_lines: &[&str], expected: [&str; 2]) {
        let (sandboxes, containers) = (sandboxes(sandbox_lines), containers(container_lines));
        let is_known = |uid: &str| uid == "here";
        let is_stray = |uid: &str, id: &str| !is_known(uid) || !matches!(id, "s" | "t");
        let garbage = Garbage::find(&sandboxes, &containers, is_known, is_stray);
        assert_eq!(
            [garbage.containers.join(" "), garbage.sandboxes.join(" ")],
            expected
        );
    }

    #[test]
    fn the_latest_dead_instance_of_a_container_is_kept() {
        check(
            &["s here ready"],
            &["a s here c dead", "b s here c runs"],
            ["", ""],
        );
        let lines = [
            "a s here c dead",
            "b s here c dead",
            "x s here d dead",
            "c s here c runs",
        ];
        check(&["s here ready"], &lines, ["a", ""]);
        // One that is about to start is not dead.
        let lines = ["a s here c dead", "b s here c new"];
        check(&["s here ready"], &lines, ["", ""]);
    }

    #[test]
    fn a_pod_that_has_gone_leaves_no_containers() {
        let lines = ["a s gone c dead", "b s gone c dead", "c s gone d runs"];
        check(&["s gone dead"], &lines, ["b a", ""]);
        check(&["s gone dead"], &[], ["", "s"]);
    }

    #[test]
    fn the_latest_sandbox_and_those_in_use_are_kept() {
        check(&["s here dead"], &[], ["", ""]);
        check(&["s here dead", "t here ready"], &[], ["", "s"]);
        check(
            &["s here dead", "t here ready"],
            &["a s here c dead"],
            ["", ""],
        );
        check(&["s here ready", "t here ready"], &[], ["", ""]);
    }

    #[test]
    fn a_sandbox_that_runs_and_is_not_the_agents_is_removed() {
        check(&["u here ready", "t here ready"], &[], ["", "u"]);
        check(&["t here ready", "u here ready"], &[], ["", "u"]);
        check(&["t gone ready"], &[], ["", "t"]);
        check(&["u here ready"], &["a u here c runs"], ["", ""]);
    }
}
