//! One instance of a container: created, started and stopped by tasks, with its hooks.

use std::collections::HashSet;
use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use mizzen_cri::CallError;
use mizzen_cri::messages::{
    Container, ContainerConfig as CriContainerConfig, ContainerState, ContainerStatus as CriStatus,
    ContainerStatusRequest, CreateContainerRequest, ExecSyncRequest, ImageSpec, ImageStatusRequest,
    Int64Value, LinuxContainerSecurityContext, NamespaceMode, RemoveContainerRequest,
    StartContainerRequest, StopContainerRequest,
};
use mizzen_sdk::event::Note;
use mizzen_value::{Str, Value, value};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, sleep_until};

use super::container_gc::remove_log;
use super::image::PullUser;
use super::prober::{ProbeRuns, http_hook};
use super::resize::LatestResize;
use super::sandbox::SandboxPhase;
use super::service_address::{needs_host_address, service_address, use_host_address};
use super::volumes::MountFeatures;
use super::{CriNode, bare_id, config, log_links, volumes};
use crate::moment::{Moment, past_wall, seconds};
use crate::pod::inputs::{Inputs, NodeContext};
use crate::pod::spec::{self, SHORTEST_GRACE};
use crate::runtime::{
    ContainerConfig, ContainerHandle, ContainerPhase, ContainerRole, ContainerStatus,
    FoundContainer, ProbeResult, ProbeType, ResizeProgress, StopTimes, Termination,
};

/// How long a failed stop waits before it is tried again.
const RETRY: Duration = Duration::from_secs(2);
/// Kubernetes: the most of a termination message, and of a log that replaces it, from the end
/// (pkg/kubelet/container/runtime.go, pkg/util/tail).
const MAX_MESSAGE: u64 = 4096;
const MAX_LOG_BYTES: u64 = 2048;
const MAX_LOG_LINES: usize = 80;

/// An instance of a container, shared by its handle and its tasks.
pub(super) struct ContainerCell {
    pub uid: Str,
    pub name: Str,
    /// The restart count.
    pub attempt: u32,
    pub state: Mutex<CellState>,
    pub probes: ProbeRuns,
    pub resize: LatestResize,
    /// Ends the postStart hook of an instance whose pod ends.
    cancelled: Notify,
    /// Whether it may be stopped now, after its preStop hook.
    turn: watch::Sender<bool>,
    /// When it is killed, once a stop was requested; it only becomes sooner.
    kill: watch::Sender<Option<KillTime>>,
}

/// When an instance is killed: by the clock of the agent, and by that of timers.
#[derive(Debug, Clone, Copy)]
struct KillTime {
    moment: Moment,
    instant: Instant,
}

/// What is known of an instance.
#[derive(Default)]
pub(super) struct CellState {
    /// Its ID, once it was created.
    pub id: Str,
    /// The ID of its sandbox, once it was created.
    pub sandbox: Str,
    pub image_id: Str,
    /// Its user, as a status has it; null if the runtime does not say.
    user: Value,
    pub phase: CellPhase,
    events: Vec<Note>,
    /// Whether it was stopped while it was being started.
    has_stopped: bool,
    is_cancelled: bool,
    /// Whether it is stopped because its postStart hook has failed.
    has_failed_hook: bool,
}

#[derive(Debug, Clone, Default)]
pub(super) enum CellPhase {
    #[default]
    Creating,
    Running {
        started: Duration,
    },
    Ended(CellEnd),
    Failed {
        reason: Str,
        message: String,
    },
}

/// The end of an instance; times are by the wall clock.
#[derive(Debug, Clone)]
pub(super) struct CellEnd {
    pub started: Option<Duration>,
    pub finished: Option<Duration>,
    pub code: i64,
    pub reason: Str,
    pub message: Str,
}

impl CellEnd {
    /// An instance that the runtime has lost.
    pub(super) fn unknown() -> CellEnd {
        CellEnd {
            started: None,
            finished: None,
            code: 137,
            reason: Str::new_static("ContainerStatusUnknown"),
            message: Str::new_static(
                "The container could not be located when the pod was terminated",
            ),
        }
    }

    fn at(&self, now: Moment) -> Termination {
        let moment = |wall: Option<Duration>| wall.map(|wall| past_wall(wall, now));
        Termination {
            started: moment(self.started),
            finished: moment(self.finished),
            code: self.code,
            reason: self.reason.clone(),
            message: self.message.clone(),
        }
    }
}

impl CellPhase {
    fn at(&self, now: Moment) -> ContainerPhase {
        match self {
            CellPhase::Creating => ContainerPhase::Creating,
            CellPhase::Running { started } => ContainerPhase::Running {
                since: past_wall(*started, now),
            },
            CellPhase::Ended(end) => ContainerPhase::Ended(end.at(now)),
            CellPhase::Failed { reason, message } => ContainerPhase::Failed {
                reason: reason.clone(),
                message: message.clone(),
            },
        }
    }

    pub(super) fn is_running(&self) -> bool {
        matches!(self, CellPhase::Running { .. })
    }
}

impl ContainerCell {
    pub(super) fn new(uid: &str, name: &str, attempt: u32) -> ContainerCell {
        ContainerCell {
            uid: uid.into(),
            name: name.into(),
            attempt,
            state: Mutex::default(),
            probes: ProbeRuns::default(),
            resize: LatestResize::default(),
            cancelled: Notify::new(),
            turn: watch::Sender::new(false),
            kill: watch::Sender::new(None),
        }
    }

    /// Kills it at a time at the latest. True if that is the first stop of a running instance.
    fn request_kill(&self, time: KillTime) -> bool {
        if !self.state.lock().phase.is_running() {
            return false;
        }
        let mut is_first = false;
        self.kill.send_if_modified(|known| {
            is_first = known.is_none();
            let is_sooner = known.is_none_or(|known| time.moment < known.moment);
            if is_sooner {
                *known = Some(time);
            }
            is_sooner
        });
        is_first
    }

    /// Whether a task creates it.
    pub(super) fn is_starting(&self) -> bool {
        matches!(self.state.lock().phase, CellPhase::Creating)
    }

    /// Notes that it is among the IDs of what has stopped. True if it must be looked at; an instance
    /// that is just being started is looked at by the task that starts it.
    pub(super) fn note_stop(&self, stopped: &HashSet<Str>) -> bool {
        let mut state = self.state.lock();
        let has_stopped = stopped.contains(&state.id);
        state.has_stopped |= has_stopped && matches!(state.phase, CellPhase::Creating);
        has_stopped && state.phase.is_running()
    }

    pub(super) fn record(&self, note: Note) {
        self.state.lock().events.push(note);
    }

    /// An error if it was given up.
    fn check_cancelled(&self) -> Result<(), StartError> {
        match self.state.lock().is_cancelled {
            true => Err(StartError::new("CreateContainerError", "cancelled".into())),
            false => Ok(()),
        }
    }
}

/// What a [`ContainerConfig`] says of a container, for its task.
struct WantedContainer {
    pod: Value,
    spec: Value,
    role: ContainerRole,
    attempt: u32,
    inputs: Inputs,
}

/// The wall-clock time of nanoseconds since 1970; `None` if it is not set.
fn wall(nanos: i64) -> Option<Duration> {
    let nanos = u64::try_from(nanos).ok().filter(|nanos| *nanos > 0)?;
    Some(Duration::from_nanos(nanos))
}

/// The handle of the agent.
pub(super) struct CriContainer {
    node: Arc<CriNode>,
    cell: Arc<ContainerCell>,
    /// The pod and the specification of the last call, for hooks.
    spec: Arc<(Value, Value)>,
}

impl CriContainer {
    pub(super) fn new(
        node: Arc<CriNode>,
        cell: Arc<ContainerCell>,
        config: &ContainerConfig,
    ) -> CriContainer {
        CriContainer {
            node,
            cell,
            spec: Arc::new((config.pod.clone(), config.container.clone())),
        }
    }

    /// Stops the container once its turn has come, at `kill` at the latest.
    fn stop_in_turn(&mut self, StopTimes { now, kill, .. }: StopTimes) {
        let time = KillTime {
            moment: kill,
            instant: Instant::now() + kill.saturating_since(now),
        };
        if self.cell.request_kill(time) {
            let (node, cell, spec) = (self.node.clone(), self.cell.clone(), self.spec.clone());
            tokio::spawn(async move { node.stop_container(cell, &spec).await });
        }
    }
}

impl ContainerHandle for CriContainer {
    fn status(&self, now: Moment) -> ContainerStatus {
        let state = self.cell.state.lock();
        ContainerStatus {
            state: state.phase.at(now),
            usable: state.phase.is_running(),
            has_failed_hook: state.has_failed_hook,
            changes_at: None,
            id: match state.id.is_empty() {
                true => Str::default(),
                false => self.node.full_id(&state.id),
            },
            image_id: state.image_id.clone(),
            user: Some(state.user.clone()),
        }
    }

    fn stop(&mut self, stop: StopTimes) {
        self.cell.turn.send_replace(true);
        self.stop_in_turn(stop);
    }

    fn prepare_stop(&mut self, stop: StopTimes) {
        self.stop_in_turn(stop);
    }

    fn update(&mut self, config: &ContainerConfig) {
        self.spec = Arc::new((config.pod.clone(), config.container.clone()));
    }

    fn resize(&mut self, config: &ContainerConfig) -> ResizeProgress {
        self.node
            .resize_container(&self.cell, config.pod, config.container)
    }

    fn cancel(&mut self) -> bool {
        self.cell.state.lock().is_cancelled = true;
        self.cell.cancelled.notify_one();
        false
    }

    fn take_events(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.cell.state.lock().events)
    }

    fn probe(&self, probe: ProbeType, config: &ContainerConfig, at: Moment) -> Option<ProbeResult> {
        self.node.clone().probe(&self.cell, probe, config, at)
    }
}

impl CriNode {
    /// Starts a new instance.
    pub(super) fn start_container(
        self: Arc<Self>,
        config: &ContainerConfig,
        now: Moment,
    ) -> Arc<ContainerCell> {
        let began = Instant::now();
        let (pod, spec) = (config.pod, config.container);
        let (uid, name) = (pod["metadata"]["uid"].str(), spec["name"].str());
        let cell = Arc::new(ContainerCell::new(uid, name, config.n_restarts));
        self.with_pod(pod, |record| {
            // Images of volumes are looked for again when another container starts.
            let is_own = |user: &PullUser| match user {
                PullUser::Container(own) => own == name,
                PullUser::Volume(_) => true,
            };
            record.pulls.retain(|user, _| !is_own(user));
            record.containers.push(cell.clone());
        });
        let service = service_address(config.node.services());
        let wanted = WantedContainer {
            pod: pod.clone(),
            spec: spec.clone(),
            role: config.role,
            attempt: config.n_restarts,
            inputs: config.inputs.clone(),
        };
        let (pod, spec, started) = (pod.clone(), spec.clone(), cell.clone());
        let variables = config.inputs.variables.clone();
        tokio::spawn(async move {
            let is_served = self.serve_api(service).await;
            let made = match self.prepare_container(wanted).await {
                Ok(mut made) => {
                    if let (Some(service), Some(api)) = (service, &self.api_server)
                        && needs_host_address(&pod, is_served, api)
                    {
                        use_host_address(&mut made.envs, service, api);
                    }
                    let mounted = self.mount_images(&pod, &spec, variables.as_ref(), &mut made);
                    match mounted.await {
                        Ok(()) => Ok(made),
                        Err(message) => Err(StartError::new("CreateContainerError", message)),
                    }
                }
                Err(message) => Err(StartError::new("CreateContainerConfigError", message)),
            };
            let failed = match made {
                Ok(made) => self.run_in_pod(&pod, &spec, made, &started).await,
                Err(error) => Err(error),
            };
            if let Err(StartError { reason, message }) = failed {
                started.state.lock().phase = CellPhase::Failed { reason, message };
            }
            self.remove_old_instances(&started).await;
            self.wake_pod(&started.uid);
            if started.state.lock().has_failed_hook {
                let now = now + began.elapsed();
                self.stop_after_hook(started, &(pod, spec), now).await;
            }
        });
        cell
    }

    /// Mounts the parts of volumes, and makes the configuration of a container with them.
    async fn prepare_container(
        self: &Arc<Self>,
        wanted: WantedContainer,
    ) -> Result<CriContainerConfig, String> {
        let node = self.clone();
        let prepared = spawn_blocking(move || -> Result<CriContainerConfig, String> {
            let WantedContainer {
                pod, spec, inputs, ..
            } = &wanted;
            let features = MountFeatures {
                recursive_read_only: node.features.lock().recursive_read_only(),
            };
            let variables = inputs.variables.as_ref();
            let mounts = volumes::mounts(pod, spec, variables, (features, &node.paths));
            let mounts = mounts.map_err(|error| error.to_string())?;
            let config = ContainerConfig {
                pod,
                container: spec,
                role: wanted.role,
                n_restarts: wanted.attempt,
                since: None,
                inputs,
                node: NodeContext::NONE,
            };
            let mut made = node.container_config(&config, mounts);
            node.share_target(pod, spec, &mut made)?;
            node.map_users(pod, &mut made)?;
            Ok(made)
        });
        prepared
            .await
            .unwrap_or_else(|error| Err(error.to_string()))
    }

    /// Stops a container whose postStart hook has failed. Kubernetes: as any other one, with its
    /// preStop hook (kuberuntime_container.go, `startContainer`). When the pod ends, the shorter grace
    /// period counts.
    async fn stop_after_hook(
        self: Arc<Self>,
        cell: Arc<ContainerCell>,
        spec: &(Value, Value),
        now: Moment,
    ) {
        let grace = spec::grace(&spec.0);
        let time = KillTime {
            moment: now + grace,
            instant: Instant::now() + grace,
        };
        cell.turn.send_replace(true);
        if cell.request_kill(time) {
            self.stop_container(cell, spec).await;
        }
    }

    /// Runs a container in the cgroup of its pod, which has the limits of a resize then.
    async fn run_in_pod(
        self: &Arc<Self>,
        pod: &Value,
        spec: &Value,
        made: CriContainerConfig,
        cell: &ContainerCell,
    ) -> Result<(), StartError> {
        let failed = |message: String| StartError::new("CreateContainerError", message);
        self.limit_pod(pod, true).await.map_err(failed)?;
        let started = self.run_container(pod, spec, made, cell).await;
        if let Err(error) = self.limit_pod(pod, false).await {
            tracing::warn!(error, container = %cell.name, "cannot lower the limits of a pod");
        }
        started
    }

    /// Creates and starts a container, and runs its postStart hook.
    async fn run_container(
        &self,
        pod: &Value,
        spec: &Value,
        mut made: CriContainerConfig,
        cell: &ContainerCell,
    ) -> Result<(), StartError> {
        let context = made
            .linux
            .as_mut()
            .and_then(|it| it.security_context.as_mut());
        let image = match context.filter(|it| it.run_as_user.is_none()) {
            Some(context) => {
                let user = self.image_user(spec["image"].str()).await?;
                user.apply(context);
                Some(user)
            }
            None => None,
        };
        check_non_root(pod, spec, image.as_ref())?;
        cell.check_cancelled()?;
        let id = self.create_container(pod, made, cell).await?;
        if let Err(error) = cell.check_cancelled() {
            self.remove_container(&id).await;
            return Err(error);
        }
        let start = StartContainerRequest {
            container_id: id.as_str().into(),
        };
        // A start that the runtime gives up with its client may have run a process.
        if let Err(error) = self.client.call_to_the_end(start).await {
            let phase = self.settle_start(cell).await;
            // If it runs, the response was lost.
            if !phase.as_ref().is_some_and(CellPhase::is_running) {
                let message = format!("Error: {}", error.message);
                cell.record(Note::warning("Failed", "", message));
                let Some(phase) = phase else {
                    return Err(StartError::new("RunContainerError", error.message));
                };
                // The runtime has it as exited with code 128.
                cell.state.lock().phase = phase;
                return Ok(());
            }
        }
        self.link_log(pod, cell, &id).await;
        let hook = tokio::select! {
            ended = self.run_hook(pod, spec, "postStart", cell) => ended,
            () = cell.cancelled.notified() => Ok(()),
        };
        if let Err(error) = hook {
            tracing::info!(container = %cell.name, error, "a postStart hook has failed");
            let message = "PostStartHook failed";
            cell.record(Note::warning("FailedPostStartHook", "", message));
            cell.record(Note::normal("Killing", "", "FailedPostStartHook"));
            cell.state.lock().has_failed_hook = true;
        }
        // A pod that ends meanwhile stops it as any other one.
        while let Err(error) = self.refresh(cell).await {
            tracing::warn!(%error, container = %id, "cannot read the status of a container, retrying");
            sleep(RETRY).await;
        }
        Ok(())
    }

    /// What has become of an instance whose start has failed, as soon as the runtime says it: `None` if
    /// it has not started, and is removed.
    async fn settle_start(&self, cell: &ContainerCell) -> Option<CellPhase> {
        let id = cell.state.lock().id.clone();
        loop {
            let settled: Result<Option<CellPhase>, CallError> = async {
                match self.remove_unstarted(&id).await? {
                    true => Ok(None),
                    false => self.read_phase(cell).await.map(Some),
                }
            }
            .await;
            match settled {
                Ok(phase) => return phase,
                Err(error) => {
                    tracing::warn!(%error, container = %id, "cannot find out whether a container runs, retrying");
                }
            }
            sleep(RETRY).await;
        }
    }

    /// Makes the link to the log of an instance. A container runs without it.
    async fn link_log(&self, pod: &Value, cell: &ContainerCell, id: &str) {
        let (paths, pod, id) = (self.paths.clone(), pod.clone(), id.to_owned());
        let (name, attempt) = (cell.name.clone(), cell.attempt);
        let linked =
            spawn_blocking(move || log_links::link(&paths, &pod, (&name, &id, attempt))).await;
        if let Ok(Err(error)) = linked {
            tracing::warn!(%error, container = %cell.name, "cannot link the log of a container");
        }
    }

    /// The user of an image. Kubernetes: root if it names none (pkg/kubelet/kuberuntime/helpers.go,
    /// `getImageUser`).
    async fn image_user(&self, image: &str) -> Result<ImageUser, StartError> {
        let request = ImageStatusRequest {
            image: Some(ImageSpec {
                image: image.into(),
                ..ImageSpec::default()
            }),
            verbose: false,
        };
        let image = self.client.call(request).await;
        let image =
            image.map_err(|error| StartError::new("CreateContainerConfigError", error.message))?;
        let image = image.image.unwrap_or_default();
        Ok(match (image.uid, image.username) {
            (Some(uid), _) => ImageUser::Id(uid.value),
            (None, name) if name.is_empty() => ImageUser::Id(0),
            (None, name) => ImageUser::Name(name),
        })
    }

    /// An ephemeral container shares the process namespace of its target. Kubernetes: it does not
    /// start before that (kuberuntime_manager.go, `getTargetID`).
    fn share_target(
        &self,
        pod: &Value,
        spec: &Value,
        made: &mut CriContainerConfig,
    ) -> Result<(), String> {
        let target = spec["targetContainerName"].str();
        if target.is_empty() {
            return Ok(());
        }
        let id = {
            let pods = self.pods.lock();
            let record = pods.get(pod["metadata"]["uid"].str());
            let mut instances = record.into_iter().flat_map(|it| it.containers.iter().rev());
            instances.find_map(|cell| {
                let id = cell.state.lock().id.clone();
                (cell.name == target && !id.is_empty()).then_some(id)
            })
        };
        let id = id.ok_or_else(|| format!("unable to find target container {target}"))?;
        let context = made
            .linux
            .as_mut()
            .and_then(|it| it.security_context.as_mut());
        if let Some(namespaces) = context.and_then(|it| it.namespace_options.as_mut())
            && namespaces.pid == NamespaceMode::Container as i32
        {
            namespaces.pid = NamespaceMode::Target as i32;
            namespaces.target_id = id.as_str().into();
        }
        Ok(())
    }

    async fn create_container(
        &self,
        pod: &Value,
        made: CriContainerConfig,
        cell: &ContainerCell,
    ) -> Result<Str, StartError> {
        let failed = |message: String| StartError::new("CreateContainerError", message);
        let (sandbox, attempt) = {
            let pods = self.pods.lock();
            let record = pods.get(&cell.uid);
            let sandbox = record.map(|record| record.sandbox.clone());
            match sandbox.map(|sandbox| (sandbox.phase, sandbox.n_attempts)) {
                Some((SandboxPhase::Ready { id, .. }, n)) => (id, n.saturating_sub(1)),
                _ => return Err(failed("the sandbox of the pod has gone".into())),
            }
        };
        let message = self.paths.termination(&cell.uid, &cell.name, cell.attempt);
        let prepared = spawn_blocking(move || make_file(&message)).await;
        prepared
            .map_err(|error| failed(error.to_string()))?
            .map_err(|error| failed(format!("cannot make the termination message: {error}")))?;
        let mut sandbox_config = self.sandbox_config(pod, attempt);
        self.keep_user_namespace(pod, &mut sandbox_config)
            .map_err(failed)?;
        let create = CreateContainerRequest {
            pod_sandbox_id: sandbox.as_str().into(),
            config: Some(made),
            sandbox_config: Some(sandbox_config),
        };
        let created = match self.client.call(create.clone()).await {
            Err(error) => match self.remove_leftover(cell).await {
                Ok(true) => self.client.call(create).await,
                _ => Err(error),
            },
            created => created,
        };
        let id = Str::from(created.map_err(|error| failed(error.message))?.container_id);
        let mut state = cell.state.lock();
        (state.id, state.sandbox) = (id.clone(), sandbox);
        state
            .events
            .push(Note::normal("Created", "", "Container created"));
        Ok(id)
    }

    /// Removes the container of an earlier call for the same instance, of which the response was lost:
    /// the runtime keeps its name. False if there is none.
    async fn remove_leftover(&self, cell: &ContainerCell) -> Result<bool, CallError> {
        let listed = self.list_containers().await?;
        let known: HashSet<Str> = {
            let pods = self.pods.lock();
            let cells = pods.get(&cell.uid).into_iter();
            let cells = cells.flat_map(|record| &record.containers);
            cells.map(|cell| cell.state.lock().id.clone()).collect()
        };
        let is_leftover = |found: &Container| {
            found.labels.get(config::POD_UID).map(String::as_str) == Some(cell.uid.as_str())
                && found.metadata.as_ref().is_some_and(|metadata| {
                    metadata.name == cell.name.as_str() && metadata.attempt == cell.attempt
                })
                && found.state() != ContainerState::Running
                && !known.contains(found.id.as_str())
        };
        let mut is_removed = false;
        for leftover in listed.iter().filter(|found| is_leftover(found)) {
            self.remove_adopted(&leftover.id).await?;
            is_removed = true;
        }
        Ok(is_removed)
    }

    /// Reads the status of an instance; once more if it has stopped meanwhile.
    pub(super) async fn refresh(&self, cell: &ContainerCell) -> Result<(), CallError> {
        loop {
            let phase = self.read_phase(cell).await?;
            let mut state = cell.state.lock();
            let is_old = std::mem::take(&mut state.has_stopped) && phase.is_running();
            if !is_old {
                state.phase = phase;
                return Ok(());
            }
        }
    }

    async fn read_phase(&self, cell: &ContainerCell) -> Result<CellPhase, CallError> {
        let id = cell.state.lock().id.clone();
        let request = ContainerStatusRequest {
            container_id: id.as_str().into(),
            verbose: false,
        };
        match self.client.call(request).await {
            Ok(response) => {
                let status = response.status.unwrap_or_default();
                {
                    let mut state = cell.state.lock();
                    state.image_id = status.image_ref.as_str().into();
                    state.user = user(&status);
                }
                Ok(self.phase(&status, cell).await)
            }
            Err(error) if error.is_not_found() => Ok(CellPhase::Ended(CellEnd::unknown())),
            Err(error) => Err(error),
        }
    }

    async fn phase(&self, status: &CriStatus, cell: &ContainerCell) -> CellPhase {
        let started = wall(status.started_at);
        match status.state() {
            ContainerState::Created => CellPhase::Creating,
            ContainerState::Running => CellPhase::Running {
                started: started
                    .or_else(|| wall(status.created_at))
                    .unwrap_or_default(),
            },
            ContainerState::Unknown => CellPhase::Ended(CellEnd::unknown()),
            ContainerState::Exited => {
                let usual = if status.exit_code == 0 {
                    "Completed"
                } else {
                    "Error"
                };
                let reason = match status.reason.as_str() {
                    "" => Str::new_static(usual),
                    reason => reason.into(),
                };
                let finished = wall(status.finished_at);
                let message = self.termination_message(status, cell).await;
                CellPhase::Ended(CellEnd {
                    // A runtime may notice the start of a short process after its end.
                    started: match (started, finished) {
                        (Some(started), Some(finished)) => Some(started.min(finished)),
                        _ => started,
                    },
                    finished,
                    code: status.exit_code.into(),
                    reason,
                    message,
                })
            }
        }
    }

    /// Kubernetes: the file of the container, or the end of its log (kuberuntime_container.go,
    /// `getTerminationMessage`); before it the message of the runtime.
    async fn termination_message(&self, status: &CriStatus, cell: &ContainerCell) -> Str {
        let file = self.paths.termination(&cell.uid, &cell.name, cell.attempt);
        let policy = status.annotations.get(config::TERMINATION_POLICY);
        let falls_back =
            policy.is_some_and(|policy| policy == "FallbackToLogsOnError") && status.exit_code != 0;
        let log = PathBuf::from(&status.log_path);
        let read = spawn_blocking(move || {
            let text = read_end(&file, MAX_MESSAGE);
            match text.is_empty() && falls_back {
                true => log_tail(&read_end(&log, 4 * MAX_LOG_BYTES)),
                false => text,
            }
        });
        let text = read.await.unwrap_or_default();
        match status.message.as_str() {
            "" => text.into(),
            message => format!("{message}: {text}").trim_end_matches(": ").into(),
        }
    }

    /// Runs the preStop hook and stops a container in its turn, within its grace period. Another stop
    /// may shorten that at any time, so that neither the hook nor the turn is skipped.
    async fn stop_container(self: Arc<Self>, cell: Arc<ContainerCell>, spec: &(Value, Value)) {
        let mut kill = cell.kill.subscribe();
        let (pod, spec) = spec;
        let hook = self.run_hook(pod, spec, "preStop", &cell);
        if let Some(Err(error)) = before(&mut kill, hook).await {
            tracing::info!(container = %cell.name, error, "a preStop hook has failed");
            let message = "PreStopHook failed";
            cell.record(Note::warning("FailedPreStopHook", "", message));
        }
        let mut turn = cell.turn.subscribe();
        before(&mut kill, turn.wait_for(|has_come| *has_come)).await;
        let id = cell.state.lock().id.clone();
        loop {
            let left = kill_time(&mut kill).saturating_duration_since(Instant::now());
            let stopped = tokio::select! {
                stopped = self.stop_by_id(&id, left.max(SHORTEST_GRACE)) => stopped,
                // The runtime is told the shorter grace period.
                Ok(()) = kill.changed() => continue,
            };
            match stopped {
                Ok(()) => break,
                Err(error) => {
                    tracing::warn!(%error, container = %cell.name, "cannot stop a container, retrying")
                }
            }
            sleep(RETRY).await;
        }
        let _ = self.refresh(&cell).await;
        self.wake_pod(&cell.uid);
    }

    pub(super) async fn stop_by_id(&self, id: &str, grace: Duration) -> Result<(), CallError> {
        let stop = StopContainerRequest {
            container_id: id.into(),
            timeout: grace.as_millis().div_ceil(1000) as i64,
        };
        match self.client.call(stop).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }

    pub(super) async fn remove_container(&self, id: &str) {
        let remove = RemoveContainerRequest {
            container_id: id.into(),
        };
        if let Err(error) = self.client.call(remove).await {
            tracing::debug!(%error, container = id, "cannot remove a container");
        }
    }

    /// Kubernetes: of dead instances the last one is kept (pkg/kubelet/kuberuntime, gc).
    async fn remove_old_instances(&self, cell: &ContainerCell) {
        let mut old = Vec::new();
        let mut logs = PathBuf::new();
        if let Some(record) = self.pods.lock().get_mut(&cell.uid) {
            let (namespace, name) = (record.key.namespace(), record.key.name());
            logs = self.paths.pod_logs(namespace, name, &cell.uid);
            record.containers.retain(|other| {
                let is_old = other.name == cell.name && other.attempt + 1 < cell.attempt;
                // A failed creation has no container.
                let is_void = std::ptr::eq(&**other, cell)
                    && matches!(other.state.lock().phase, CellPhase::Failed { .. });
                if is_old {
                    old.push(other.clone());
                }
                !is_old && !is_void
            });
        }
        for other in old {
            let id = other.state.lock().id.clone();
            self.remove_container(&id).await;
            let message = self
                .paths
                .termination(&other.uid, &other.name, other.attempt);
            let logs = logs.clone();
            let _ = spawn_blocking(move || {
                remove_log(&logs, &other);
                fs::remove_file(message)
            })
            .await;
        }
    }

    /// Runs a hook of a container. Kubernetes: its error is logged; it may have secrets, so that
    /// the Event does not have it (kuberuntime_container.go).
    async fn run_hook(
        &self,
        pod: &Value,
        spec: &Value,
        name: &str,
        cell: &ContainerCell,
    ) -> Result<(), String> {
        let hook = &spec["lifecycle"][name];
        if !hook["sleep"].is_null() {
            sleep(seconds(&hook["sleep"]["seconds"])).await;
        }
        if !hook["exec"].is_null() {
            let command = hook["exec"]["command"].list().iter();
            let exec = ExecSyncRequest {
                container_id: cell.state.lock().id.as_str().into(),
                cmd: command.map(|word| word.str().to_owned()).collect(),
                timeout: 0,
            };
            let ended = self.client.call(exec).await;
            let ended = ended.map_err(|error| error.to_string())?;
            if ended.exit_code != 0 {
                return Err(format!("command exited with {}", ended.exit_code));
            }
        }
        if !hook["httpGet"].is_null() {
            let address = self.pod_address(pod);
            http_hook(spec, &hook["httpGet"], &address).await?;
        }
        Ok(())
    }

    /// The address at which a pod is reached from its node.
    pub(super) fn pod_address(&self, pod: &Value) -> String {
        let pods = self.pods.lock();
        let record = pods.get(pod["metadata"]["uid"].str());
        match record.map(|record| &record.sandbox.phase) {
            Some(SandboxPhase::Ready { addresses, .. }) if !addresses.is_empty() => {
                addresses[0].to_string()
            }
            _ => match pod["status"]["podIP"].str() {
                "" => "127.0.0.1".into(),
                address => address.into(),
            },
        }
    }

    /// The latest instance of a container that was found.
    pub(super) fn find_container(
        &self,
        pod: &Value,
        container: &str,
        now: Moment,
    ) -> Option<FoundContainer> {
        let pods = self.pods.lock();
        let record = pods.get(pod["metadata"]["uid"].str())?;
        let mut instances = record.containers.iter().rev();
        let found = instances.find(|cell| cell.name == container)?;
        let last = instances.find(|cell| cell.name == container);
        let last = last.and_then(|cell| {
            let state = cell.state.lock();
            match &state.phase {
                CellPhase::Ended(end) => Some((self.full_id(&state.id), end.at(now))),
                _ => None,
            }
        });
        let state = found.state.lock();
        let sandbox = record.sandbox.phase.id();
        Some(FoundContainer {
            n_restarts: found.attempt,
            id: self.full_id(&state.id),
            state: state.phase.at(now),
            image_id: state.image_id.clone(),
            user: state.user.clone(),
            last,
            is_of_old_sandbox: sandbox.is_some_and(|id| *id != state.sandbox),
        })
    }

    /// The running instance to which the agent attaches after its start.
    pub(super) fn adopted_container(&self, config: &ContainerConfig) -> Option<Arc<ContainerCell>> {
        let pods = self.pods.lock();
        let record = pods.get(config.pod["metadata"]["uid"].str())?;
        let name = config.container["name"].str();
        let mut instances = record.containers.iter().rev();
        instances.find(|cell| cell.name == name).cloned()
    }

    /// The log of the instance of an ID.
    pub(super) fn log_file(&self, pod: &Value, container: &str, id: &str) -> Option<PathBuf> {
        let metadata = &pod["metadata"];
        let uid = metadata["uid"].str();
        let attempt = {
            let pods = self.pods.lock();
            let mut instances = pods.get(uid)?.containers.iter();
            let found = instances
                .find(|cell| cell.name == container && cell.state.lock().id == bare_id(id));
            found?.attempt
        };
        let dir = self
            .paths
            .pod_logs(metadata["namespace"].str(), metadata["name"].str(), uid);
        Some(dir.join(config::log_name(container, attempt)))
    }

    /// Syncs a pod by UID.
    pub(super) fn wake_pod(&self, uid: &str) {
        self.update_pod(uid, |_| {});
    }
}

/// When an instance that is being stopped is killed.
fn kill_time(kill: &mut watch::Receiver<Option<KillTime>>) -> Instant {
    let time = *kill.borrow_and_update();
    time.map_or_else(Instant::now, |time| time.instant)
}

/// The result of what ends before an instance is killed.
async fn before<T>(
    kill: &mut watch::Receiver<Option<KillTime>>,
    work: impl Future<Output = T>,
) -> Option<T> {
    let mut work = pin!(work);
    loop {
        let deadline = kill_time(kill);
        tokio::select! {
            done = &mut work => return Some(done),
            () = sleep_until(deadline) => return None,
            // It may be sooner now.
            Ok(()) = kill.changed() => {}
        }
    }
}

/// The user of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ImageUser {
    Id(i64),
    Name(String),
}

impl ImageUser {
    /// Makes it the user of a container whose pod names none. A runtime refuses a group without a
    /// user.
    fn apply(&self, context: &mut LinuxContainerSecurityContext) {
        match self {
            ImageUser::Id(value) => context.run_as_user = Some(Int64Value { value: *value }),
            ImageUser::Name(name) => context.run_as_username = name.clone(),
        }
    }
}

/// Kubernetes: whether a container that must not run as root does not
/// (pkg/kubelet/kuberuntime/security_context.go, `verifyRunAsNonRoot`). `image` is the user of its
/// image, if that counts.
fn check_non_root(pod: &Value, spec: &Value, image: Option<&ImageUser>) -> Result<(), StartError> {
    let (own, common) = (&spec["securityContext"], &pod["spec"]["securityContext"]);
    let either = |field: &str| match own[field].is_null() {
        true => &common[field],
        false => &own[field],
    };
    if !either("runAsNonRoot").bool() {
        return Ok(());
    }
    let why = match (either("runAsUser").as_int(), image) {
        (Some(0), _) => "container's runAsUser breaks non-root policy".into(),
        (None, Some(ImageUser::Id(0))) => {
            "container has runAsNonRoot and image will run as root".into()
        }
        (None, Some(ImageUser::Name(user))) => format!(
            "container has runAsNonRoot and image has non-numeric user ({user}), cannot verify user is non-root"
        ),
        _ => return Ok(()),
    };
    let (pod, name) = (spec::show(pod), spec["name"].str());
    let message = format!("{why} (pod: {pod:?}, container: {name})");
    Err(StartError::new("CreateContainerConfigError", message))
}

/// Why an instance did not start.
struct StartError {
    reason: Str,
    message: String,
}

impl StartError {
    fn new(reason: &'static str, message: String) -> StartError {
        StartError {
            reason: Str::new_static(reason),
            message,
        }
    }
}

/// The user of a container, as the status of a pod has it; null if the runtime does not say.
fn user(status: &CriStatus) -> Value {
    let linux = status.user.as_ref().and_then(|user| user.linux.as_ref());
    linux.map_or(Value::Null, |user| {
        let groups = user.supplemental_groups.iter().copied().map(Value::Int);
        let groups: Vec<Value> = groups.collect();
        let linux = value!({ "uid": (user.uid), "gid": (user.gid), "supplementalGroups": groups });
        value!({ "linux": linux })
    })
}

/// Makes the file of a termination message, which any user may write.
fn make_file(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;

    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(path, "")?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o666))
}

/// The last bytes of a file; nothing if it cannot be read.
fn read_end(path: &Path, most: u64) -> String {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = fs::File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(most)))?;
        let mut bytes = Vec::new();
        file.take(most).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
}

/// The last lines of a log, without what the runtime adds to each.
fn log_tail(text: &str) -> String {
    let content = |line: &str| {
        let mut fields = line.splitn(4, ' ').skip(2);
        let (tags, content) = (fields.next()?, fields.next()?);
        // Output that does not end with a line feed is a part of a line.
        let end = if tags.starts_with('P') { "" } else { "\n" };
        Some(format!("{content}{end}"))
    };
    let lines: Vec<String> = text.lines().filter_map(content).collect();
    let from = lines.len().saturating_sub(MAX_LOG_LINES);
    let mut tail = lines[from..].concat();
    let mut cut = tail.len().saturating_sub(MAX_LOG_BYTES as usize);
    while !tail.is_char_boundary(cut) {
        cut += 1;
    }
    tail.split_off(cut)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_without_a_user_has_that_of_its_image() {
        let mut context = LinuxContainerSecurityContext::default();
        ImageUser::Id(7).apply(&mut context);
        assert_eq!(context.run_as_user, Some(Int64Value { value: 7 }));
        let mut context = LinuxContainerSecurityContext::default();
        ImageUser::Name("nobody".into()).apply(&mut context);
        assert_eq!(
            (context.run_as_user, context.run_as_username.as_str()),
            (None, "nobody")
        );
    }

    #[test]
    fn a_container_that_must_not_run_as_root_does_not() {
        let check = |context: Value, image: Option<ImageUser>| {
            let pod = value!({ "metadata": { "name": "p", "namespace": "n", "uid": "u" } });
            let spec = value!({ "name": "c", "securityContext": context });
            let checked = check_non_root(&pod, &spec, image.as_ref());
            checked
                .map_err(|error| error.message)
                .err()
                .unwrap_or_default()
        };
        let wanted = |user: Value| value!({ "runAsNonRoot": true, "runAsUser": user });
        assert_eq!(check(value!({}), Some(ImageUser::Id(0))), "");
        assert_eq!(check(wanted(Value::Int(1)), None), "");
        assert_eq!(check(wanted(Value::Null), Some(ImageUser::Id(1))), "");
        for (user, image, expected) in [
            (
                Value::Int(0),
                None,
                "container's runAsUser breaks non-root policy (pod: ",
            ),
            (
                Value::Null,
                Some(ImageUser::Id(0)),
                "container has runAsNonRoot and image will run as root (pod: ",
            ),
            (
                Value::Null,
                Some(ImageUser::Name("web".into())),
                "container has runAsNonRoot and image has non-numeric user (web), cannot verify user is non-root (pod: ",
            ),
        ] {
            let why = check(wanted(user), image);
            assert!(why.starts_with(expected), "{why}");
        }
    }

    #[test]
    fn a_message_from_the_log_ends_as_the_output_did() {
        let line = |tags: &str, text: &str| format!("2026-01-02T03:04:05Z stdout {tags} {text}\n");
        assert_eq!(log_tail(&line("F", "a b")), "a b\n");
        assert_eq!(log_tail(&line("P", "DONE")), "DONE");
        let parts = [line("P", "on"), line("F", "e"), line("P", "two")];
        assert_eq!(log_tail(&parts.concat()), "one\ntwo");
        let many: String = (0..100).map(|at| line("F", &at.to_string())).collect();
        assert!(log_tail(&many).starts_with("20\n21\n"));
        let long = line("F", &"x".repeat(3000));
        assert_eq!(log_tail(&long).len() as u64, MAX_LOG_BYTES);
    }
}
