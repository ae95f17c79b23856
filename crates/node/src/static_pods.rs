//! Static pods: pods whose specifications are files of a directory (upstream: pkg/kubelet/config).
//!
//! The directory is read every [`POLL`]. Its pods are passed to the agent, all of them, whenever they
//! have changed. A file that is no valid pod is logged and left out; the others run.
//!
//! Invariant: the UID of a static pod is a hash of its file's content, its path and its node. So a
//! changed file is another pod, and a restart of the agent finds what runs.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mizzen_component_helpers::references::{MIRROR, api_reference};
use mizzen_sdk::{Key, Object, yaml};
use mizzen_value::{Value, json, value};
use ring::digest::{SHA256, digest};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::agent::AgentHandle;

/// How often the directory is read. Kubernetes: by inotify, and every 20 s (`fileCheckFrequency`).
const POLL: Duration = Duration::from_secs(1);
/// Kubernetes: the largest file (pkg/kubelet/config, `maxConfigLength`).
const MAX_FILE: u64 = 10 << 20;
/// The annotation with the hash of a static pod (pkg/kubelet/types).
const CONFIG_HASH: &str = "kubernetes.io/config.hash";
/// The annotation with the source of a pod.
const CONFIG_SOURCE: &str = "kubernetes.io/config.source";

/// Completes a pod with the defaults of the API and validates it; the error is the violations.
pub type CompletePod = Arc<dyn Fn(Value) -> Result<Value, String> + Send + Sync>;

/// Where static pods come from.
#[derive(Clone)]
pub struct StaticPodSource {
    /// A directory, or one file. It may be missing.
    pub path: PathBuf,
    /// The defaults and the validation of pods.
    pub complete: CompletePod,
}

impl StaticPodSource {
    /// Passes the pods to the agent until the future is dropped.
    pub(crate) async fn run(self, node: String, agent: AgentHandle) {
        let mut known: Option<Vec<Object>> = None;
        let mut problems = HashSet::new();
        loop {
            let (source, name) = (self.clone(), node.clone());
            match spawn_blocking(move || source.read(&name)).await {
                Ok(Ok(read)) => {
                    report(&mut problems, read.problems);
                    if known.as_ref() != Some(&read.pods) {
                        agent.set_static_pods(read.pods.clone()).await;
                        known = Some(read.pods);
                    }
                }
                // The pods that are known run on.
                Ok(Err(error)) => {
                    let problem = format!("{}: {error}", self.path.display());
                    report(&mut problems, vec![problem]);
                }
                Err(error) => tracing::warn!(%error, "cannot read static pods"),
            }
            sleep(POLL).await;
        }
    }

    /// Reads all files. Kubernetes: names that begin with a dot are left out, and directories.
    fn read(&self, node: &str) -> io::Result<ReadPods> {
        let mut read = ReadPods::default();
        let files = match fs::metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(read),
            Err(error) => return Err(error),
            Ok(metadata) if metadata.is_dir() => files_of(&self.path)?,
            Ok(_) => vec![self.path.clone()],
        };
        let mut by_key: BTreeMap<Key, Object> = BTreeMap::new();
        for file in files {
            let pod = match self.read_file(&file, node) {
                Ok(pod) => pod,
                Err(error) => {
                    read.problems.push(format!("{}: {error}", file.display()));
                    continue;
                }
            };
            let key = Key::new(pod.namespace(), pod.name());
            if by_key.contains_key(&key) {
                let problem = format!("{}: pod {key} is in another file, too", file.display());
                read.problems.push(problem);
                continue;
            }
            by_key.insert(key, pod);
        }
        read.pods = by_key.into_values().collect();
        Ok(read)
    }

    fn read_file(&self, file: &Path, node: &str) -> Result<Object, String> {
        let size = fs::metadata(file).map_err(|error| error.to_string())?.len();
        if size > MAX_FILE {
            return Err(format!("the file is larger than {MAX_FILE} bytes"));
        }
        let text = fs::read(file).map_err(|error| error.to_string())?;
        let mut pod: Object = yaml::read(&text).map_err(|error| error.to_string())?;
        prepare(&mut pod, file, node)?;
        let complete = (self.complete)(pod.0)?;
        match api_reference(&complete)? {
            Some(resource) => Err(format!("static pods may not reference {resource}")),
            None => Ok(Object(complete)),
        }
    }
}

/// What was read.
#[derive(Default)]
struct ReadPods {
    pods: Vec<Object>,
    problems: Vec<String>,
}

/// Logs each problem once.
fn report(known: &mut HashSet<String>, problems: Vec<String>) {
    for problem in &problems {
        if !known.contains(problem) {
            tracing::warn!(problem, "cannot run a static pod");
        }
    }
    *known = problems.into_iter().collect();
}

fn files_of(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if !name.starts_with('.') && path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Kubernetes: name, namespace, UID and tolerations of a static pod (pkg/kubelet/config,
/// `applyDefaults`).
fn prepare(pod: &mut Object, file: &Path, node: &str) -> Result<(), String> {
    if (pod["apiVersion"].str(), pod["kind"].str()) != ("v1", "Pod") {
        return Err(format!(
            "invalid pod: apiVersion {:?}, kind {:?}",
            pod["apiVersion"].str(),
            pod["kind"].str()
        ));
    }
    let name = pod["metadata"]["name"].str().to_owned();
    if name.is_empty() {
        return Err("invalid pod: name is needed for the pod".into());
    }
    let uid = match pod["metadata"]["uid"].str() {
        "" => {
            let text = format!(
                "{} host:{node} file:{}",
                json::to_string(pod),
                file.display()
            );
            let hash = digest(&SHA256, text.as_bytes());
            let hex = hash.as_ref().iter().take(16);
            hex.map(|byte| format!("{byte:02x}")).collect()
        }
        own => own.to_owned(),
    };
    let metadata = pod.entry("metadata");
    metadata.set("name", format!("{name}-{}", node.to_lowercase()));
    if metadata["namespace"].str().is_empty() {
        metadata.set("namespace", "default");
    }
    metadata.set("uid", uid.as_str());
    let annotations = metadata.entry("annotations");
    annotations.set(CONFIG_HASH, uid.as_str());
    annotations.set(CONFIG_SOURCE, "file");
    let spec = pod.entry("spec");
    spec.set("nodeName", node);
    let all = value!({ "operator": "Exists", "effect": "NoExecute" });
    let mut tolerations = spec["tolerations"].list().to_vec();
    if !tolerations.contains(&all) {
        tolerations.push(all);
    }
    spec.set("tolerations", tolerations);
    pod.set("status", value!({ "phase": "Pending" }));
    Ok(())
}

/// The mirror pod: what the API has of a static pod. Kubernetes: its owner is the node
/// (pkg/kubelet/pod, `CreateMirrorPod`).
pub(crate) fn mirror_pod(pod: &Object, node: &Object) -> Object {
    let mut mirror = pod.clone();
    let metadata = mirror.entry("metadata");
    let hash = metadata["annotations"][CONFIG_HASH].clone();
    metadata.entry("annotations").set(MIRROR, hash);
    metadata.remove("uid");
    let owner = value!({
        "apiVersion": "v1", "kind": "Node", "name": (node.name()), "uid": (node.uid()), "controller": true,
    });
    metadata.set("ownerReferences", vec![owner]);
    mirror
}

/// Whether an object is a mirror pod.
pub(crate) fn is_mirror(pod: &Value) -> bool {
    !pod["metadata"]["annotations"][MIRROR].is_null()
}

/// Whether an object is the mirror pod of this static pod.
pub(crate) fn is_mirror_of(mirror: &Value, pod: &Value) -> bool {
    let hash = &pod["metadata"]["annotations"][CONFIG_HASH];
    mirror["metadata"]["annotations"][MIRROR] == *hash
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(dir: &Path) -> StaticPodSource {
        StaticPodSource {
            path: dir.into(),
            complete: Arc::new(|pod| match pod["spec"]["containers"].list() {
                [] => Err("spec.containers: Required value".into()),
                _ => Ok(pod),
            }),
        }
    }

    const WEB: &str =
        "{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: c}]}}";

    #[test]
    fn a_file_is_a_pod_of_its_node_and_another_content_is_another_pod() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("web.yaml");
        fs::write(&file, WEB).unwrap();
        fs::write(dir.path().join(".hidden"), "{").unwrap();
        fs::create_dir(dir.path().join("sub")).unwrap();
        let read = source(dir.path()).read("Node-A").unwrap();
        assert!(read.problems.is_empty(), "{:?}", read.problems);
        let [pod] = &read.pods[..] else {
            panic!("{:?}", read.pods)
        };
        assert_eq!((pod.namespace(), pod.name()), ("default", "web-node-a"));
        assert_eq!(pod["spec"]["nodeName"].str(), "Node-A");
        assert_eq!(pod["metadata"]["annotations"][CONFIG_HASH].str(), pod.uid());
        assert_eq!(pod["spec"]["tolerations"][0]["effect"].str(), "NoExecute");
        assert_eq!(source(dir.path()).read("Node-A").unwrap().pods, read.pods);
        fs::write(&file, WEB.replace("{name: c}", "{name: d}")).unwrap();
        let changed = source(dir.path()).read("Node-A").unwrap();
        assert_ne!(changed.pods[0].uid(), pod.uid());
        let node = value!({ "metadata": { "name": "Node-A", "uid": "u" } });
        let mirror = mirror_pod(pod, &Object(node));
        assert!(is_mirror_of(&mirror, pod) && !is_mirror_of(&mirror, &changed.pods[0]));
        assert!(is_mirror(&mirror) && !is_mirror(pod) && mirror.uid().is_empty());
    }

    #[test]
    fn a_bad_file_is_named_and_the_others_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        write("1.yaml", WEB);
        write("2.yaml", "{");
        write("3.yaml", WEB);
        write("4.yaml", &WEB.replace("containers", "other"));
        write("5.yaml", &WEB.replace("name: web", "labels: {}"));
        write("6.yaml", "{apiVersion: v1, kind: Secret}");
        let account = "spec: {serviceAccountName: a, volumes: [{hostPath: {path: /}}], ";
        write(
            "7.yaml",
            &WEB.replace("web", "own").replace("spec: {", account),
        );
        let read = source(dir.path()).read("n").unwrap();
        assert_eq!(read.pods.len(), 1);
        let problems = read.problems.join("\n");
        for expected in [
            "3.yaml: pod default/web-n is in another file, too",
            "4.yaml: spec.containers: Required value",
            "5.yaml: invalid pod: name is needed for the pod",
            "6.yaml: invalid pod: apiVersion \"v1\", kind \"Secret\"",
            "static pods may not reference serviceaccounts",
        ] {
            assert!(problems.contains(expected), "{problems}");
        }
        assert_eq!(read.problems.len(), 6);
        assert!(
            source(&dir.path().join("none"))
                .read("n")
                .unwrap()
                .pods
                .is_empty()
        );
    }
}
