//! The user namespaces of pods with `hostUsers: false`: root and all other users of such a pod are users
//! of the machine that nothing else has.
//!
//! Each pod has a range of IDs, which is recorded in its directory before its sandbox is made. The range
//! is free again once that directory is removed, which is after the sandbox.
//!
//! Kubernetes: pkg/kubelet/userns. The range of all pods is upstream's without subordinate IDs of a user
//! `kubelet`.
//!
//! Invariant: no two pods have an ID in common, and none has one below 65536.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mizzen_cri::messages::{
    ContainerConfig, IdMapping, NamespaceMode, NamespaceOption, PodSandboxConfig, UserNamespace,
};
use mizzen_value::{Value, json, value};
use parking_lot::Mutex;
use tokio::task::spawn_blocking;

use super::CriNode;

/// Kubernetes: the number of IDs of a pod (`userNamespaces.idsPerPod`).
const IDS_PER_POD: u32 = 65_536;
/// The file in the directory of a pod.
const FILE: &str = "userns";
const UNFINISHED: &str = "userns.tmp";

/// Whether a pod has users of its own.
pub(super) fn has_own_users(pod: &Value) -> bool {
    pod["spec"]["hostUsers"].as_bool() == Some(false)
}

/// The ranges of the pods of a node.
pub(super) struct UserNamespaces {
    /// The directory with those of pods.
    pods: PathBuf,
    /// The turns of pods to get a range.
    turn: Mutex<()>,
}

impl UserNamespaces {
    pub(super) fn new(pods: PathBuf) -> UserNamespaces {
        UserNamespaces {
            pods,
            turn: Mutex::default(),
        }
    }

    /// The first ID of a pod, whose directory is there. It is recorded.
    fn ensure(&self, uid: &str) -> io::Result<u32> {
        let _turn = self.turn.lock();
        let dir = self.pods.join(uid);
        if let Some(known) = read(&dir)? {
            return Ok(known);
        }
        let mut used = BTreeSet::new();
        for entry in fs::read_dir(&self.pods)? {
            used.extend(read(&entry?.path())?);
        }
        let mut all = (1..=u32::MAX / IDS_PER_POD).map(|nth| nth * IDS_PER_POD);
        let free = all.find(|first| !used.contains(first));
        let free = free.ok_or_else(|| io::Error::other("all ranges of IDs are in use"))?;
        write(&dir, free)?;
        Ok(free)
    }

    /// The first ID of a pod that has a sandbox.
    fn get(&self, uid: &str) -> io::Result<u32> {
        let known = read(&self.pods.join(uid))?;
        known.ok_or_else(|| io::Error::other("the pod has no range of IDs"))
    }
}

impl CriNode {
    /// Gives the sandbox of a pod its user namespace, if it has one.
    pub(super) async fn set_user_namespace(
        self: &Arc<Self>,
        pod: &Value,
        handler: &str,
        config: &mut PodSandboxConfig,
    ) -> Result<(), String> {
        if !has_own_users(pod) {
            return Ok(());
        }
        if !self.features.lock().user_namespaces(handler) {
            return Err(unable(handler));
        }
        let (node, uid) = (self.clone(), pod["metadata"]["uid"].str().to_owned());
        let ensured = spawn_blocking(move || node.user_namespaces.ensure(&uid)).await;
        let first = ensured
            .unwrap_or_else(|error| Err(io::Error::other(error)))
            .map_err(|error| format!("create user namespace: {error}"))?;
        let linux = config.linux.get_or_insert_default();
        let context = linux.security_context.get_or_insert_default();
        set(&mut context.namespace_options, first);
        Ok(())
    }

    /// Adds the user namespace of a pod that has a sandbox to the configuration of that: runtimes compare it with those of
    /// containers.
    pub(super) fn keep_user_namespace(
        &self,
        pod: &Value,
        config: &mut PodSandboxConfig,
    ) -> Result<(), String> {
        if let Some(first) = self.first_user(pod)? {
            let linux = config.linux.get_or_insert_default();
            let context = linux.security_context.get_or_insert_default();
            set(&mut context.namespace_options, first);
        }
        Ok(())
    }

    /// The first ID of a pod with users of its own, which has a sandbox.
    fn first_user(&self, pod: &Value) -> Result<Option<u32>, String> {
        if !has_own_users(pod) {
            return Ok(None);
        }
        let known = self.user_namespaces.get(pod["metadata"]["uid"].str());
        let first = known.map_err(|error| format!("user namespace: {error}"))?;
        Ok(Some(first))
    }

    /// Puts a container into the user namespace of its pod, if it has one, with its mounts.
    pub(super) fn map_users(
        &self,
        pod: &Value,
        config: &mut ContainerConfig,
    ) -> Result<(), String> {
        let Some(first) = self.first_user(pod)? else {
            return Ok(());
        };
        let linux = config.linux.get_or_insert_default();
        let context = linux.security_context.get_or_insert_default();
        set(&mut context.namespace_options, first);
        for mount in &mut config.mounts {
            mount.uid_mappings = vec![mapping(first)];
            mount.gid_mappings = vec![mapping(first)];
        }
        Ok(())
    }
}

/// Kubernetes: the error of a handler without user namespaces (userns_manager.go).
fn unable(handler: &str) -> String {
    match handler {
        "" => {
            "can't set `spec.hostUsers: false`, runtime does not support user namespaces".to_owned()
        }
        handler => format!(
            "can't set `spec.hostUsers: false`, RuntimeClass handler {handler:?} does not support user namespaces"
        ),
    }
}

fn mapping(first: u32) -> IdMapping {
    IdMapping {
        host_id: first,
        container_id: 0,
        length: IDS_PER_POD,
    }
}

fn set(options: &mut Option<NamespaceOption>, first: u32) {
    options.get_or_insert_default().userns_options = Some(UserNamespace {
        mode: NamespaceMode::Pod as i32,
        uids: vec![mapping(first)],
        gids: vec![mapping(first)],
    });
}

/// The first ID in the directory of a pod; `None` if there is no record.
fn read(dir: &Path) -> io::Result<Option<u32>> {
    let path = dir.join(FILE);
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let record = json::parse(&text).unwrap_or_default();
    let first = first_of(&record["uidMappings"]);
    match first.filter(|first| first_of(&record["gidMappings"]) == Some(*first)) {
        Some(first) => Ok(Some(first)),
        // Its sandbox may have any IDs, so that no range is known to be free.
        None => Err(io::Error::other(format!(
            "{} is no user namespace of a pod",
            path.display()
        ))),
    }
}

/// The first ID of mappings as this node makes them.
fn first_of(mappings: &Value) -> Option<u32> {
    let [one] = mappings.list() else {
        return None;
    };
    let first = u32::try_from(one["hostId"].as_int()?).ok()?;
    let is_ours = one["containerId"].as_int() == Some(0)
        && one["length"].as_int() == Some(IDS_PER_POD.into())
        && first >= IDS_PER_POD
        && first % IDS_PER_POD == 0;
    is_ours.then_some(first)
}

/// Replaces the record of a pod as a whole, so that it survives a crash of the machine.
fn write(dir: &Path, first: u32) -> io::Result<()> {
    let mapping = || value!([{ "hostId": first, "containerId": 0, "length": IDS_PER_POD }]);
    let record = value!({ "uidMappings": (mapping()), "gidMappings": (mapping()) });
    let unfinished = dir.join(UNFINISHED);
    let mut file = File::create(&unfinished)?;
    file.write_all(json::to_string(&record).as_bytes())?;
    file.sync_all()?;
    fs::rename(&unfinished, dir.join(FILE))?;
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pod_has_a_range_that_survives_restarts() {
        let pods = tempfile::tempdir().unwrap();
        let ranges = || UserNamespaces::new(pods.path().to_owned());
        let dir = |uid: &str| pods.path().join(uid);
        for uid in ["a", "b", "c", "without"] {
            fs::create_dir(dir(uid)).unwrap();
        }
        let known = ranges();
        assert_eq!(known.ensure("a").unwrap(), 65_536);
        assert_eq!(known.ensure("b").unwrap(), 2 * 65_536);
        assert_eq!(known.ensure("a").unwrap(), 65_536);
        let text = fs::read_to_string(dir("a").join(FILE)).unwrap();
        assert_eq!(
            text,
            r#"{"uidMappings":[{"hostId":65536,"containerId":0,"length":65536}],"gidMappings":[{"hostId":65536,"containerId":0,"length":65536}]}"#
        );
        // Another agent knows them.
        assert_eq!(ranges().get("b").unwrap(), 2 * 65_536);
        assert_eq!(ranges().ensure("c").unwrap(), 3 * 65_536);
        assert!(ranges().get("without").is_err());
        // The range of a pod that has gone is free.
        fs::remove_dir_all(dir("a")).unwrap();
        assert_eq!(ranges().ensure("without").unwrap(), 65_536);
        assert!(ranges().ensure("unknown").is_err());
    }

    #[test]
    fn a_record_that_is_wrong_is_an_error() {
        let pods = tempfile::tempdir().unwrap();
        let dir = |uid: &str| pods.path().join(uid);
        for uid in ["a", "b"] {
            fs::create_dir(dir(uid)).unwrap();
        }
        let one = |first: u32| format!(r#"[{{"hostId":{first},"containerId":0,"length":65536}}]"#);
        let [low, odd, good, other] = [0, 65_537, 65_536, 131_072].map(one);
        let record =
            |uids: &str, gids: &str| format!(r#"{{"uidMappings":{uids},"gidMappings":{gids}}}"#);
        let ranges = UserNamespaces::new(pods.path().to_owned());
        for text in [
            String::new(),
            "{}".into(),
            record(&low, &low),
            record(&odd, &odd),
            record(&good, &other),
            record("[]", "[]"),
        ] {
            fs::write(dir("a").join(FILE), &text).unwrap();
            let error = ranges.ensure("a").unwrap_err().to_string();
            assert!(error.contains("is no user namespace of a pod"), "{error}");
            assert!(ranges.ensure("b").is_err(), "{text}");
        }
        fs::write(dir("a").join(FILE), record(&good, &good)).unwrap();
        assert_eq!(ranges.ensure("b").unwrap(), 131_072);
    }

    #[test]
    fn a_handler_without_user_namespaces_is_named() {
        assert!(unable("").ends_with("runtime does not support user namespaces"));
        assert!(unable("kata").contains("RuntimeClass handler \"kata\" does not"));
    }
}
