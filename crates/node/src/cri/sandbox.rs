//! The sandbox of a pod: created with its volumes, stopped after its containers, removed with the
//! pod.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;
use mizzen_cri::CallError;
use mizzen_cri::messages::{
    PodSandboxState, PodSandboxStatusRequest, RemovePodSandboxRequest, RunPodSandboxRequest,
    StopPodSandboxRequest,
};
use mizzen_sdk::event::Note;
use mizzen_sdk::{Key, ResourceType};
use mizzen_value::{Str, Value};
use parking_lot::Mutex;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::container::ContainerCell;
use super::resolver::MachineResolver;
use super::volumes::{self, VolumeNode, VolumeState};
use super::{CriNode, config, log_links, resolver};
use crate::pod::inputs::VolumeContents;
use crate::pod::spec::SHORTEST_GRACE;
use crate::runtime::SandboxState;

/// Kubernetes: when a pod is synced again after a failure (kubelet.go, `backOffPeriod`).
const RETRY: Duration = Duration::from_secs(10);
/// How often a failed removal is retried before it is left to the next start of the agent.
const REMOVALS: usize = 10;

/// The host names of the machine.
const HOSTS: &str = "/etc/hosts";

const RUNTIME_CLASSES: ResourceType =
    ResourceType::cluster("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass");

/// The state of a pod's sandbox.
#[derive(Debug, Clone, Default)]
pub(super) struct Sandbox {
    /// How many there were.
    pub n_attempts: u32,
    pub phase: SandboxPhase,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum SandboxPhase {
    /// There is none.
    #[default]
    None,
    /// A task creates it, or waits before it tries again. `is_stopped` if the pod ends meanwhile.
    Creating { is_stopped: bool },
    /// Containers can start.
    Ready { id: Str, addresses: Vec<Str> },
    /// It has ended by itself; its containers ended, too.
    Lost { id: Str },
    /// The pod has ended: a task stops the sandbox, if there is one, and tears down the volumes.
    Stopping { id: Option<Str> },
    /// The pod has ended: the sandbox has stopped, and the volumes are gone.
    Stopped { id: Option<Str> },
}

impl SandboxPhase {
    /// Its ID, if there is one.
    pub(super) fn id(&self) -> Option<&Str> {
        match self {
            SandboxPhase::None | SandboxPhase::Creating { .. } => None,
            SandboxPhase::Ready { id, .. } | SandboxPhase::Lost { id } => Some(id),
            SandboxPhase::Stopping { id } | SandboxPhase::Stopped { id } => id.as_ref(),
        }
    }
}

/// Why a sandbox was not created.
enum CreateError {
    Configuration(String),
    Mount(String),
    Cgroup(String),
    Call(CallError),
}

impl CriNode {
    /// The state of a pod's sandbox; starts a task if there is none.
    pub(super) fn ensure_sandbox(
        self: &Arc<Self>,
        pod: &Value,
        volumes: &dyn Fn() -> VolumeContents,
    ) -> SandboxState {
        let attempt = self.with_pod(pod, |record| {
            let sandbox = &mut record.sandbox;
            match &sandbox.phase {
                SandboxPhase::Ready { addresses, .. } => Err(SandboxState::Ready {
                    addresses: Some(addresses.clone()),
                }),
                SandboxPhase::Creating { .. } | SandboxPhase::Stopping { .. } => {
                    Err(SandboxState::Pending)
                }
                SandboxPhase::None | SandboxPhase::Lost { .. } | SandboxPhase::Stopped { .. } => {
                    let old = sandbox.phase.id().cloned();
                    sandbox.phase = SandboxPhase::Creating { is_stopped: false };
                    sandbox.n_attempts += 1;
                    Ok((sandbox.n_attempts - 1, old))
                }
            }
        });
        match attempt {
            Err(state) => state,
            Ok((attempt, old)) => {
                let (node, pod, volumes) = (self.clone(), pod.clone(), volumes());
                tokio::spawn(node.create_sandbox(pod, volumes, attempt, old));
                SandboxState::Pending
            }
        }
    }

    /// Whether a pod has a sandbox, or one is being made.
    pub(super) fn has_sandbox(&self, pod: &Value) -> bool {
        let pods = self.pods.lock();
        let record = pods.get(pod["metadata"]["uid"].str());
        record.is_some_and(|record| match &record.sandbox.phase {
            SandboxPhase::Creating { .. }
            | SandboxPhase::Ready { .. }
            | SandboxPhase::Stopping { .. } => true,
            SandboxPhase::None | SandboxPhase::Lost { .. } | SandboxPhase::Stopped { .. } => false,
        })
    }

    async fn create_sandbox(
        self: Arc<Self>,
        pod: Value,
        volumes: VolumeContents,
        attempt: u32,
        old: Option<Str>,
    ) {
        let uid = pod["metadata"]["uid"].str();
        if let Some(old) = old {
            // Its network must be released before another one is made.
            let _ = self.stop_sandbox_by_id(&old).await;
        }
        match self.try_create_sandbox(&pod, volumes, attempt).await {
            Ok((id, addresses)) => {
                let mut must_stop = false;
                self.update_pod(uid, |record| {
                    let phase = &mut record.sandbox.phase;
                    must_stop = *phase == SandboxPhase::Creating { is_stopped: true };
                    *phase = match must_stop {
                        true => SandboxPhase::Stopping {
                            id: Some(id.clone()),
                        },
                        false => SandboxPhase::Ready {
                            id: id.clone(),
                            addresses,
                        },
                    };
                });
                let is_known = self.pods.lock().contains_key(uid);
                if must_stop {
                    self.finish_stopping(uid, Some(id)).await;
                } else if !is_known {
                    self.remove_sandbox(&id).await;
                }
            }
            Err(error) => {
                let note = match error {
                    CreateError::Mount(message) => Note::warning("FailedMount", "", message),
                    CreateError::Configuration(error) => {
                        let message = format!("Failed to create pod sandbox: {error}");
                        Note::warning("FailedCreatePodSandBox", "", message)
                    }
                    CreateError::Cgroup(message) => {
                        Note::warning("FailedCreatePodContainer", "", message)
                    }
                    CreateError::Call(error) => {
                        let message = format!("Failed to create pod sandbox: {error}");
                        Note::warning("FailedCreatePodSandBox", "", message)
                    }
                };
                self.update_pod(uid, |record| record.events.push(note));
                sleep(RETRY).await;
                self.update_pod(uid, |record| record.sandbox.phase = SandboxPhase::None);
            }
        }
    }

    async fn try_create_sandbox(
        self: &Arc<Self>,
        pod: &Value,
        contents: VolumeContents,
        attempt: u32,
    ) -> Result<(Str, Vec<Str>), CreateError> {
        self.set_up_volumes(pod, contents, true).await?;
        self.set_up_cgroup(pod).await?;
        let failed = CreateError::Configuration;
        let mut config = self.sandbox_config(pod, attempt);
        if !pod["spec"]["hostNetwork"].bool() {
            config.hostname = config::sandbox_hostname(pod).map_err(failed)?;
        }
        let machine = MachineResolver::read(self.resolver.as_deref()).map_err(|error| {
            CreateError::Configuration(format!("cannot read the resolver of the machine: {error}"))
        })?;
        let (dns_config, limits) = resolver::dns(&pod["spec"], &machine);
        config.dns_config = dns_config;
        let notes = limits.into_iter();
        let notes = notes.map(|limit| Note::warning("DNSConfigForming", "", limit));
        self.update_pod(pod["metadata"]["uid"].str(), |record| {
            record.events.extend(notes);
        });
        let runtime_handler = self.runtime_handler(pod).await.map_err(failed)?;
        self.set_user_namespace(pod, &runtime_handler, &mut config)
            .await
            .map_err(failed)?;
        let run = RunPodSandboxRequest {
            config: Some(config),
            runtime_handler,
        };
        let run = self.client.call(run).await.map_err(CreateError::Call)?;
        let id = Str::from(run.pod_sandbox_id);
        match self.complete_sandbox(pod, &id).await {
            Ok(addresses) => Ok((id, addresses)),
            Err(error) => {
                // The next try makes another one.
                self.remove_sandbox(&id).await;
                Err(error)
            }
        }
    }

    /// Reads the addresses of a new sandbox, and writes its hosts.
    async fn complete_sandbox(&self, pod: &Value, id: &Str) -> Result<Vec<Str>, CreateError> {
        let addresses = self.sandbox_addresses(id).await;
        let addresses = addresses.map_err(CreateError::Call)?;
        let path = self.paths.hosts(pod["metadata"]["uid"].str());
        let (pod, own) = (pod.clone(), addresses.clone());
        let written = spawn_blocking(move || {
            let machine = match pod["spec"]["hostNetwork"].bool() {
                true => String::from_utf8_lossy(&fs::read(HOSTS)?).into_owned(),
                false => String::new(),
            };
            fs::write(&path, config::hosts(&pod, &own, &machine))?;
            // All users of the pod read it, whatever the umask of the agent is.
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644))
        })
        .await;
        match written {
            Ok(Ok(())) => Ok(addresses),
            Ok(Err(error)) => Err(CreateError::Mount(format!(
                "cannot write /etc/hosts: {error}"
            ))),
            Err(error) => Err(CreateError::Mount(error.to_string())),
        }
    }

    /// The handler of the RuntimeClass of a pod; empty for the default.
    async fn runtime_handler(&self, pod: &Value) -> Result<String, String> {
        let name = pod["spec"]["runtimeClassName"].str();
        let Some(api) = self.api.get().filter(|_| !name.is_empty()) else {
            return Ok(String::new());
        };
        match api.find(&RUNTIME_CLASSES, &Key::cluster(name)).await {
            Ok(Some(class)) => Ok(class["handler"].str().to_owned()),
            Ok(None) => Err(format!("runtimeclass.node.k8s.io {name:?} not found")),
            Err(error) => Err(format!("failed to lookup RuntimeClass {name}: {error}")),
        }
    }

    /// Sets up the volumes of a pod; `from_scratch` if what was mounted may be gone, as it is after
    /// a restart of the machine.
    async fn set_up_volumes(
        self: &Arc<Self>,
        pod: &Value,
        contents: VolumeContents,
        from_scratch: bool,
    ) -> Result<(), CreateError> {
        let state = {
            let mut pods = self.pods.lock();
            let record = pods.get_mut(pod["metadata"]["uid"].str());
            let record = record.ok_or_else(|| CreateError::Mount("the pod was removed".into()))?;
            record.volumes.clone()
        };
        let (pod, node) = (pod.clone(), self.clone());
        let work = move || {
            let mut state = state.lock();
            if from_scratch {
                state.forget();
            }
            let place = VolumeNode {
                name: &node.node,
                paths: &node.paths,
                memory: node.allocatable_memory.load(Ordering::Relaxed),
            };
            state.set_up(&pod, &contents, place)
        };
        match spawn_blocking(work).await {
            Ok(done) => done.map_err(CreateError::Mount),
            Err(error) => Err(CreateError::Mount(error.to_string())),
        }
    }

    async fn set_up_cgroup(self: &Arc<Self>, pod: &Value) -> Result<(), CreateError> {
        let (node, pod) = (self.clone(), pod.clone());
        let made = spawn_blocking(move || node.cgroups.ensure_pod(&pod)).await;
        let failed = |error: &dyn std::fmt::Display| {
            CreateError::Cgroup(format!("unable to ensure pod container exists: {error}"))
        };
        match made {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(failed(&error)),
            Err(error) => Err(failed(&error)),
        }
    }

    /// Writes the files of volumes that have changed.
    pub(super) fn update_volumes(self: Arc<Self>, pod: &Value, contents: VolumeContents) {
        let pod = pod.clone();
        tokio::spawn(async move {
            if let Err(CreateError::Mount(error)) = self.set_up_volumes(&pod, contents, false).await
            {
                tracing::warn!(
                    pod = pod["metadata"]["name"].str(),
                    error,
                    "cannot update volumes"
                );
            }
        });
    }

    /// The addresses of a sandbox; none on the host network.
    pub(super) async fn sandbox_addresses(&self, id: &str) -> Result<Vec<Str>, CallError> {
        let request = PodSandboxStatusRequest {
            pod_sandbox_id: id.into(),
            verbose: false,
        };
        let status = self.client.call(request).await?.status.unwrap_or_default();
        let network = status.network.unwrap_or_default();
        let others = network.additional_ips.into_iter().map(|it| it.ip);
        let all = std::iter::once(network.ip).chain(others);
        Ok(all.filter(|ip| !ip.is_empty()).map(Str::from).collect())
    }

    /// Whether a sandbox runs.
    pub(super) async fn is_sandbox_ready(&self, id: &str) -> Result<bool, CallError> {
        let request = PodSandboxStatusRequest {
            pod_sandbox_id: id.into(),
            verbose: false,
        };
        match self.client.call(request).await {
            Ok(response) => {
                let status = response.status.unwrap_or_default();
                Ok(status.state() == PodSandboxState::Ready)
            }
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Stops the sandbox of a pod that has ended, and tears down its volumes; true once that is done.
    pub(super) fn stop_sandbox(self: Arc<Self>, pod: &Value) -> bool {
        let uid: Str = pod["metadata"]["uid"].str().into();
        let id = {
            let mut pods = self.pods.lock();
            let Some(record) = pods.get_mut(&uid) else {
                return true;
            };
            // Its container is stopped by the task that creates it.
            if record.containers.iter().any(|cell| cell.is_starting()) {
                return false;
            }
            let phase = &mut record.sandbox.phase;
            match phase {
                SandboxPhase::Stopped { .. } => return true,
                SandboxPhase::Stopping { .. } => return false,
                SandboxPhase::Creating { is_stopped } => {
                    *is_stopped = true;
                    return false;
                }
                // Without a sandbox the pod may have volumes: they are set up before it.
                SandboxPhase::None | SandboxPhase::Ready { .. } | SandboxPhase::Lost { .. } => {
                    let id = phase.id().cloned();
                    *phase = SandboxPhase::Stopping { id: id.clone() };
                    id
                }
            }
        };
        tokio::spawn(async move { self.finish_stopping(&uid, id).await });
        false
    }

    async fn finish_stopping(self: &Arc<Self>, uid: &str, id: Option<Str>) {
        if let Some(id) = &id {
            while let Err(error) = self.stop_sandbox_by_id(id).await {
                tracing::warn!(%error, sandbox = %id, "cannot stop a sandbox, retrying");
                sleep(RETRY).await;
            }
        }
        self.tear_down_volumes(uid).await;
        // What is left is removed with the pod.
        let _ = self.remove_cgroup(uid).await;
        self.update_pod(uid, |record| {
            record.sandbox.phase = SandboxPhase::Stopped { id };
        });
    }

    /// Tears down the volumes of a pod that has ended, until that succeeds or the pod is removed.
    /// Kubernetes: a pod is not terminated before its volumes are unmounted and the data of its
    /// empty directories is removed (kubelet.go, `SyncTerminatedPod`). Logs and termination messages
    /// stay.
    async fn tear_down_volumes(&self, uid: &str) {
        loop {
            let state = {
                let pods = self.pods.lock();
                pods.get(uid).map(|record| record.volumes.clone())
            };
            let Some(state) = state else { return };
            let dir = self.paths.pod(uid);
            // The records of snapshots are beside the volumes.
            let error = match self.remove_snapshots(uid).await {
                Ok(()) => match spawn_blocking(move || state.lock().tear_down(&dir)).await {
                    Ok(Err(error)) => error.to_string(),
                    _ => return,
                },
                Err(error) => error,
            };
            tracing::warn!(error, pod = uid, "cannot tear down volumes, retrying");
            sleep(RETRY).await;
        }
    }

    async fn stop_sandbox_by_id(&self, id: &str) -> Result<(), CallError> {
        let request = StopPodSandboxRequest {
            pod_sandbox_id: id.into(),
        };
        match self.client.call(request).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }

    /// Stops and removes a sandbox with its containers.
    pub(super) async fn remove_sandbox(&self, id: &str) {
        for _ in 0..REMOVALS {
            let request = RemovePodSandboxRequest {
                pod_sandbox_id: id.into(),
            };
            let removed = match self.stop_sandbox_by_id(id).await {
                Ok(()) => self.client.call(request).await.map(drop),
                Err(error) => Err(error),
            };
            match removed {
                Err(error) if !error.is_not_found() => {
                    tracing::warn!(%error, sandbox = %id, "cannot remove a sandbox, retrying");
                }
                _ => return,
            }
            sleep(RETRY).await;
        }
    }

    /// Stops the containers of a pod of which nothing but the runtime knows, and removes it.
    /// Kubernetes: without its specification it has the shortest grace period, and no hooks
    /// (kubelet.go, `SyncTerminatingRuntimePod`).
    pub(super) fn remove_orphan(self: Arc<Self>, uid: &str) {
        let running: Vec<Arc<ContainerCell>> = {
            let pods = self.pods.lock();
            let cells = pods.get(uid).into_iter().flat_map(|it| &it.containers);
            let running = cells.filter(|cell| cell.state.lock().phase.is_running());
            running.cloned().collect()
        };
        let uid = uid.to_owned();
        tokio::spawn(async move {
            let stops = running.into_iter().map(|cell| {
                let node = self.clone();
                async move {
                    let id = cell.state.lock().id.clone();
                    if let Err(error) = node.stop_by_id(&id, SHORTEST_GRACE).await {
                        tracing::warn!(%error, container = %id, "cannot stop an orphan");
                    }
                }
            });
            join_all(stops).await;
            self.remove_pod(&uid);
        });
    }

    /// Removes all that is left of a pod.
    pub(super) fn remove_pod(self: Arc<Self>, uid: &str) {
        let Some(record) = self.pods.lock().remove(uid) else {
            return;
        };
        let (uid, key) = (uid.to_owned(), record.key);
        let sandbox = record.sandbox.phase.id().cloned();
        tokio::spawn(async move {
            // One that is just being created is removed by the task that creates it.
            if let Some(id) = sandbox {
                self.remove_sandbox(&id).await;
            }
            let logs = self.paths.pod_logs(key.namespace(), key.name(), &uid);
            let node = self.clone();
            let _ = spawn_blocking(move || {
                let removed = fs::remove_dir_all(logs);
                log_links::remove_dead(&node.paths.logs);
                removed
            })
            .await;
            self.remove_directory(&uid, record.volumes).await;
            for _ in 0..REMOVALS {
                match self.remove_cgroup(&uid).await {
                    Ok(()) => return,
                    Err(error) => {
                        tracing::warn!(%error, %uid, "cannot remove the cgroup of a pod, retrying");
                    }
                }
                sleep(RETRY).await;
            }
        });
    }

    /// Removes the cgroup of a pod. An error if a process in it has not been reaped yet.
    async fn remove_cgroup(self: &Arc<Self>, uid: &str) -> io::Result<()> {
        let (node, uid) = (self.clone(), uid.to_owned());
        let removed = spawn_blocking(move || node.cgroups.remove_pod(&uid)).await;
        removed.unwrap_or_else(|error| Err(io::Error::other(error)))
    }

    /// Removes the directories of pods that are neither on the node nor in the runtime, which are
    /// `known`: the agent ended before it had made their sandbox, or after it had removed it.
    pub(super) fn remove_directories(self: Arc<Self>, known: Vec<Str>) {
        tokio::spawn(async move {
            let node = self.clone();
            let found = move || volumes::pods_with_directories(&node.paths, &node.node);
            let mut left = spawn_blocking(found).await.unwrap_or_default();
            left.retain(|uid| !known.contains(uid) && !self.pods.lock().contains_key(uid));
            for uid in left {
                self.remove_directory(&uid, Arc::default()).await;
            }
        });
    }

    async fn remove_directory(&self, uid: &str, state: Arc<Mutex<VolumeState>>) {
        for _ in 0..REMOVALS {
            let (dir, state) = (self.paths.pod(uid), state.clone());
            // The directory has the records of its snapshots.
            let error = match self.remove_snapshots(uid).await {
                Ok(()) => match spawn_blocking(move || state.lock().remove(&dir)).await {
                    Ok(Err(error)) => error.to_string(),
                    _ => return,
                },
                Err(error) => error,
            };
            tracing::warn!(
                error,
                pod = uid,
                "cannot remove the directory of a pod, retrying"
            );
            sleep(RETRY).await;
        }
    }
}
