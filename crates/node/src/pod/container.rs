//! The state of one container over all its instances: when it is started, restarted and stopped.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mizzen_sdk::event::Note;
use mizzen_value::time::duration_text;
use mizzen_value::{Str, Value};

use super::env_file::file_variables;
use super::inputs::{Inputs, NO_INPUTS, NO_VARIABLES, Variables};
use super::probe::{ProbeFindings, ProbeTarget, Probes, output};
use super::pull::ImagePull;
use super::references::{CreateConfigError, ReferencedObjects};
use super::resources;
use super::spec;
use super::{SyncContext, needs_inputs};
use crate::moment::{Moment, earlier};
use crate::runtime::terminal::MAX_INPUT;
use crate::runtime::{
    ContainerConfig, ContainerHandle, ContainerPhase, ContainerRole, ContainerStatus, ProbeType,
    ResizeProgress, StopTimes, Termination,
};

/// How long it takes until an exit is noticed: it is visible before the container restarts.
const NOTICE: Duration = Duration::from_millis(100);
/// Kubernetes: the initial and the maximum back-off of a container that keeps exiting (kubelet.go).
const FIRST_WAIT: Duration = Duration::from_secs(10);
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// A container and its history.
pub struct ContainerState {
    /// Its name.
    pub name: Str,
    /// Its role in the pod.
    pub role: ContainerRole,
    /// The number of starts.
    pub n_starts: u32,
    /// The image of its current instance.
    pub image: Str,
    /// The resources of its current instance, with the limits that it has from its pod.
    pub resources: Value,
    /// The progress of a resize of its current instance.
    pub resize: ResizeProgress,
    /// Its state; `None` before the first start.
    pub state: Option<ContainerPhase>,
    /// The termination of the previous instance.
    pub last: Option<Termination>,
    /// The CrashLoopBackOff message, while it backs off.
    pub back_off: Option<String>,
    /// The pull of its image.
    pub pull: ImagePull,
    /// The reason and the message of a volume that it mounts and whose image cannot be had now.
    pub volume_error: Option<Box<(&'static str, String)>>,
    /// Whether it waits for an image, or for what its environment references, to start then.
    is_preparing: bool,
    /// The image of its current instance by digest; empty if it is made up.
    pub image_id: Str,
    /// The user of its current instance, null if it is not known; `None` if it is made up.
    pub user: Option<Value>,
    /// The IDs of the last instances by number, if the runtime gives them.
    ids: Vec<(u32, Str)>,
    /// Why it cannot be created.
    pub config_error: Option<Box<CreateConfigError>>,
    /// Readiness as the runtime knows it.
    usable: bool,
    /// Whether the runtime stops it, because its postStart hook has failed.
    has_failed_hook: bool,
    /// Whether it was given up while it was being created, and may start nevertheless.
    is_cancelled: bool,
    wait: Option<RestartBackOff>,
    pub(super) probes: Probes,
    pub(super) body: Option<Box<dyn ContainerHandle>>,
    /// The inputs of the current instance; `None` if the specification says it all.
    pub inputs: Option<Arc<Inputs>>,
    /// The inputs of the previous instance.
    pub last_inputs: Option<Arc<Inputs>>,
    /// Since when it is stopped.
    stopping_since: Option<Moment>,
    /// When it was seen that its instance has ended.
    end_seen: Moment,
    /// Whether it is stopped to be started with its new image.
    pub(super) is_replaced: bool,
    /// What it was before the start of its current instance.
    before_start: Option<Box<BeforeStart>>,
    pub(super) changes_at: Option<Moment>,
}

/// The fields of a container to which a start that comes to nothing returns.
struct BeforeStart {
    state: Option<ContainerPhase>,
    last: Option<Termination>,
    is_replaced: bool,
}

/// The restart back-off, and since when it counts.
#[derive(Debug, Clone, Copy)]
struct RestartBackOff {
    time: Duration,
    since: Moment,
}

impl ContainerState {
    /// A container that was never started.
    pub fn new(name: &str, role: ContainerRole) -> ContainerState {
        ContainerState {
            name: name.into(),
            role,
            n_starts: 0,
            image: Str::default(),
            resources: Value::Null,
            resize: ResizeProgress::Done,
            state: None,
            last: None,
            back_off: None,
            pull: ImagePull::default(),
            volume_error: None,
            is_preparing: false,
            image_id: Str::default(),
            user: None,
            ids: Vec::new(),
            config_error: None,
            usable: false,
            has_failed_hook: false,
            is_cancelled: false,
            wait: None,
            probes: Probes::default(),
            body: None,
            inputs: None,
            last_inputs: None,
            stopping_since: None,
            end_seen: Moment::default(),
            is_replaced: false,
            before_start: None,
            changes_at: None,
        }
    }

    /// The restart count.
    pub fn n_restarts(&self) -> u32 {
        // A container that is about to start again counts as restarted.
        if self.state.is_none() {
            self.n_starts
        } else {
            self.n_starts.saturating_sub(1)
        }
    }

    /// Whether it runs.
    pub fn is_running(&self) -> bool {
        matches!(self.state, Some(ContainerPhase::Running { .. }))
    }

    /// Whether it runs, or may do so in a moment.
    pub(super) fn is_alive(&self) -> bool {
        matches!(
            self.state,
            Some(ContainerPhase::Running { .. } | ContainerPhase::Creating)
        )
    }

    /// Its termination, if it has exited.
    pub fn end(&self) -> Option<&Termination> {
        match &self.state {
            Some(ContainerPhase::Ended(end)) => Some(end),
            _ => None,
        }
    }

    /// Whether it runs and its startup probe has succeeded.
    pub fn has_started(&self, spec: &Value) -> bool {
        self.is_running() && !self.has_failed_hook && self.probes.has_started(spec)
    }

    /// Whether it is ready.
    pub fn is_ready(&self, spec: &Value) -> bool {
        match self.role {
            ContainerRole::Init => self.end().is_some_and(|end| end.code == 0),
            _ => self.has_started(spec) && self.probes.is_ready(spec).unwrap_or(self.usable),
        }
    }

    /// The container ID of its `n`th instance, counted from 1.
    pub fn id(&self, pod: &Value, scheme: &str, n: u32) -> String {
        if let Some((_, id)) = self.ids.iter().find(|(known, _)| *known == n) {
            return id.as_str().into();
        }
        let uid = pod["metadata"]["uid"].str().replace('-', "");
        format!(
            "{scheme}://{uid:0>32}{:016x}{n:016x}",
            crate::digest(&self.name)
        )
    }

    /// Updates the state from the runtime.
    pub fn observe(&mut self, sync: &mut SyncContext) {
        let Some(body) = &mut self.body else { return };
        let events = body.take_events();
        let ContainerStatus {
            state,
            usable,
            has_failed_hook,
            changes_at,
            id,
            image_id,
            user,
        } = body.status(sync.now);
        events.into_iter().for_each(|note| sync.record(self, note));
        if let ContainerPhase::Failed { reason, message } = state {
            if self.is_cancelled {
                self.undo_start();
                self.is_replaced = false;
                return;
            }
            return self.fail_creation(reason, message, sync);
        }
        if !id.is_empty() {
            (self.image_id, self.user, self.config_error) = (image_id, user, None);
            self.set_id(self.n_starts, id);
        }
        (self.usable, self.changes_at) = (usable, changes_at);
        self.has_failed_hook = has_failed_hook;
        let was = self.state.replace(state);
        if self.state != Some(ContainerPhase::Creating) {
            self.before_start = None;
        }
        if self.is_running() && was == Some(ContainerPhase::Creating) {
            sync.record(self, Note::normal("Started", "", "Container started"));
        }
        if self.end().is_some() {
            self.body = None;
            self.end_seen = sync.now;
        }
    }

    /// Remembers the ID of an instance, and forgets all but the previous one.
    pub(super) fn set_id(&mut self, n: u32, id: Str) {
        if self.ids.iter().any(|(known, _)| *known == n) {
            return;
        }
        self.ids.retain(|(known, _)| known + 1 >= n);
        self.ids.push((n, id));
    }

    /// The runtime could not create it: it is created again later.
    fn fail_creation(&mut self, reason: Str, message: String, sync: &mut SyncContext) {
        let note = Note::warning("Failed", "", format!("Error: {message}"));
        sync.record(self, note);
        let error = CreateConfigError::of_runtime(reason, message, sync.now);
        self.config_error = Some(Box::new(error));
        self.undo_start();
    }

    /// Returns to the state before a start that came to nothing.
    fn undo_start(&mut self) {
        self.body = None;
        self.is_cancelled = false;
        self.n_starts -= 1;
        self.state = None;
        if let Some(before) = self.before_start.take() {
            (self.state, self.last, self.is_replaced) =
                (before.state, before.last, before.is_replaced);
        }
    }

    /// Starts it if it should run; true if something was done.
    pub fn ensure_running(
        &mut self,
        referenced: Option<&mut ReferencedObjects>,
        sync: &mut SyncContext,
    ) -> bool {
        let spec = spec::container(sync.pod, &self.name);
        self.is_preparing = false;
        if self.state.is_none() {
            return self.create(spec, referenced, sync);
        }
        match &self.state {
            Some(ContainerPhase::Running { .. }) if self.must_be_replaced(spec) => {
                self.replace(sync);
                true
            }
            Some(ContainerPhase::Running { since }) if self.must_be_resized(sync.pod, spec) => {
                self.resize(spec, *since, sync)
            }
            Some(ContainerPhase::Ended(_)) if self.is_replaced => {
                self.create(spec, referenced, sync)
            }
            Some(ContainerPhase::Ended(end))
                if spec::restarts(sync.pod, spec, self.role, end.code) =>
            {
                // The runtime may have lost it.
                let finished = end.finished.unwrap_or(self.end_seen);
                self.restart(spec, finished, referenced, sync)
            }
            _ => false,
        }
    }

    /// Whether its image differs from the specification.
    fn is_changed(&self, spec: &Value) -> bool {
        self.n_starts > 0 && self.image != spec["image"].str()
    }

    /// Kubernetes: running containers are replaced, a sidecar only once it has started
    /// (kuberuntime_manager.go, `computePodActions`; kuberuntime_container.go,
    /// `computeInitContainerActions`).
    fn must_be_replaced(&self, spec: &Value) -> bool {
        let may_be = match self.role {
            ContainerRole::Regular => true,
            ContainerRole::Sidecar => self.has_started(spec),
            ContainerRole::Init | ContainerRole::Ephemeral => false,
        };
        may_be && self.is_changed(spec) && self.stopping_since.is_none()
    }

    /// Whether the resources of its running instance differ from the specification, or are being
    /// changed to others.
    fn must_be_resized(&self, pod: &Value, spec: &Value) -> bool {
        self.resize_progress(pod, spec).is_some() && self.stopping_since.is_none()
    }

    /// The progress of its resize; `None` if its resources are those of the specification, or will be
    /// when it starts.
    pub(super) fn resize_progress(&self, pod: &Value, spec: &Value) -> Option<ResizeProgress> {
        let is_resizable = matches!(self.role, ContainerRole::Regular | ContainerRole::Sidecar);
        let may_be = is_resizable && self.is_running();
        let must_change = || {
            self.resize != ResizeProgress::Done
                || resources::must_change(&self.resources, pod, spec)
        };
        (may_be && must_change()).then(|| match &self.resize {
            ResizeProgress::Failed(error) => ResizeProgress::Failed(error.clone()),
            _ => ResizeProgress::InProgress,
        })
    }

    /// Changes the resources of the running instance, or restarts it as its resizePolicy says; true
    /// if something was done.
    fn resize(&mut self, spec: &Value, since: Moment, sync: &mut SyncContext) -> bool {
        if self.resize_restarts(sync.pod, spec) {
            self.is_replaced = true;
            let message = format!("Container {} resize requires restart", self.name);
            self.stop(sync.now + spec::grace(sync.pod), message, sync);
            return true;
        }
        let mut body = self.body.take();
        let config = self.config(spec, self.n_restarts(), Some(since), sync);
        let progress = body.as_mut().map(|body| body.resize(&config));
        self.body = body;
        self.resize = progress.unwrap_or(ResizeProgress::InProgress);
        let is_done = self.resize == ResizeProgress::Done;
        if is_done {
            self.resources = resources::of_container(sync.pod, spec);
        }
        is_done
    }

    /// Whether a resource changes whose resizePolicy is RestartContainer.
    fn resize_restarts(&self, pod: &Value, spec: &Value) -> bool {
        let changes = |name: &str| resources::changes(&self.resources, pod, spec, name);
        let mut policies = spec["resizePolicy"].list().iter();
        policies.any(|policy| {
            policy["restartPolicy"].str() == "RestartContainer"
                && changes(policy["resourceName"].str())
        })
    }

    /// Stops it; it is started again with its new image, whatever the restart policy.
    fn replace(&mut self, sync: &mut SyncContext) {
        let message = match self.role {
            ContainerRole::Sidecar => format!("Init container {} definition changed", self.name),
            _ => format!(
                "Container {} definition changed, will be restarted",
                self.name
            ),
        };
        self.is_replaced = true;
        self.stop(sync.now + spec::grace(sync.pod), message, sync);
    }

    /// Starts it if its image and its environment are there.
    fn create(
        &mut self,
        spec: &Value,
        mut referenced: Option<&mut ReferencedObjects>,
        sync: &mut SyncContext,
    ) -> bool {
        // A pulled image stays on the node.
        let is_pulled =
            self.n_starts > 0 && !self.is_changed(spec) && !sync.runtime.runs_processes();
        let images_ready = is_pulled || self.images_ready(spec, referenced.as_deref_mut(), sync);
        let has_all = images_ready && self.environment_ready(spec, referenced.as_deref_mut(), sync);
        let has_failed = self.pull.waiting().is_some()
            || self.volume_error.is_some()
            || self.config_error.is_some();
        self.is_preparing = !has_all && (self.pull.is_pulling() || !has_failed);
        if !has_all {
            return false;
        }
        let read = |volume: &str, path: &str| sync.runtime.volume_text(sync.pod, volume, path);
        // Simulated containers write no files.
        let from_files = match sync.runtime.runs_processes() {
            true => file_variables(spec, &read),
            false => Ok(Variables::new()),
        };
        match from_files {
            Ok(from_files) => {
                self.start(spec, referenced.as_deref(), &from_files, sync);
                true
            }
            Err(message) => {
                self.record_pulled(spec, sync);
                let note = Note::warning("Failed", "", format!("Error: {message}"));
                sync.record(self, note);
                let reason = Str::new_static("CreateContainerConfigError");
                let error = CreateConfigError::of_runtime(reason, message, sync.now);
                self.changes_at = earlier(self.changes_at, error.retry);
                self.config_error = Some(Box::new(error));
                false
            }
        }
    }

    /// Whether it starts now, so that the next container of the pod has to wait.
    pub(super) fn is_starting(&self) -> bool {
        self.is_preparing || self.state == Some(ContainerPhase::Creating)
    }

    /// Whether the images of its volumes and its own are present.
    fn images_ready(
        &mut self,
        spec: &Value,
        mut referenced: Option<&mut ReferencedObjects>,
        sync: &mut SyncContext,
    ) -> bool {
        self.volume_images_ready(spec, referenced.as_deref_mut(), sync)
            && self.image_ready(spec, referenced, sync)
    }

    fn restart(
        &mut self,
        spec: &Value,
        finished: Moment,
        referenced: Option<&mut ReferencedObjects>,
        sync: &mut SyncContext,
    ) -> bool {
        // Kubernetes: another image has a back-off of its own (kuberuntime/helpers.go,
        // `GetBackoffKey`).
        let wait = self
            .wait
            .filter(|wait| !wait.is_over(finished) && !self.is_changed(spec));
        let waits = wait.map(|wait| wait.time);
        let due = finished + waits.unwrap_or_default().max(NOTICE);
        if sync.now >= due {
            return self.create(spec, referenced, sync);
        }
        let seen = sync.now >= finished + NOTICE;
        if let Some(wait) = waits.filter(|_| seen && self.back_off.is_none()) {
            let (name, pod) = (&self.name, spec::show(sync.pod));
            let wait = duration_text(wait.as_nanos() as i64);
            let message = format!("Back-off restarting failed container {name} in pod {pod}");
            self.back_off = Some(format!(
                "back-off {wait} restarting failed container={name} pod={pod}"
            ));
            sync.record(self, Note::warning("BackOff", "", message));
        }
        self.changes_at = Some(if seen || waits.is_none() {
            due
        } else {
            finished + NOTICE
        });
        false
    }

    fn start(
        &mut self,
        spec: &Value,
        referenced: Option<&ReferencedObjects>,
        from_files: &Variables,
        sync: &mut SyncContext,
    ) {
        self.before_start = Some(Box::new(BeforeStart {
            state: self.state.clone(),
            last: self.last.clone(),
            is_replaced: self.is_replaced,
        }));
        if let Some(end) = self.end() {
            let finished = end.finished.unwrap_or(sync.now);
            self.last = Some(end.clone());
            let is_changed = self.is_changed(spec);
            self.wait = (!is_changed).then(|| RestartBackOff::next(self.wait, finished, sync.now));
        }
        self.image = spec["image"].str().into();
        self.resources = resources::of_container(sync.pod, spec);
        self.resize = ResizeProgress::Done;
        (self.is_replaced, self.is_cancelled) = (false, false);
        self.last_inputs = self.inputs.take();
        self.inputs = sync.inputs(spec, referenced, from_files);
        let config = self.config(spec, self.n_starts, None, sync);
        self.body = Some(sync.runtime.start(&config, sync.now));
        sync.image_volumes.note_creation(sync.now);
        self.n_starts += 1;
        self.state = Some(ContainerPhase::Creating);
        self.back_off = None;
        self.stopping_since = None;
        self.probes = Probes::default();
        self.record_pulled(spec, sync);
        if !sync.runtime.runs_processes() {
            sync.record(self, Note::normal("Created", "", "Container created"));
        }
    }

    /// The configuration for the runtime.
    fn config<'a>(
        &'a self,
        container: &'a Value,
        n_restarts: u32,
        since: Option<Moment>,
        sync: &SyncContext<'a>,
    ) -> ContainerConfig<'a> {
        let inputs = self.inputs.as_deref().unwrap_or(&NO_INPUTS);
        ContainerConfig {
            pod: sync.pod,
            container,
            role: self.role,
            n_restarts,
            since,
            inputs,
            node: sync.node,
        }
    }

    /// Attaches to the container that ran before the agent restarted, once its inputs are known.
    pub(super) fn attach(
        &mut self,
        referenced: Option<&ReferencedObjects>,
        sync: &mut SyncContext,
    ) {
        let Some(ContainerPhase::Running { since }) = self.state else {
            return;
        };
        let spec = spec::container(sync.pod, &self.name);
        let is_unread = referenced.is_some_and(|referenced| !referenced.is_read());
        let waits = is_unread
            && needs_inputs(sync.pod, spec, sync.runtime)
            && !sync.runtime.runs_processes();
        if self.body.is_some() || waits {
            return;
        }
        // What it has from files is known to the runtime.
        self.inputs = sync.inputs(spec, referenced, &NO_VARIABLES);
        self.last_inputs = self.inputs.clone();
        let config = self.config(spec, self.n_restarts(), Some(since), sync);
        self.body = Some(sync.runtime.start(&config, sync.now));
    }

    /// Updates the files of a running container; true if it has files that may change.
    pub(super) fn follow_files(
        &mut self,
        referenced: Option<&ReferencedObjects>,
        sync: &SyncContext,
    ) -> bool {
        let Some(ContainerPhase::Running { since }) = self.state else {
            return false;
        };
        let Some((_, before)) = self.inputs.as_ref().and_then(|inputs| inputs.files.last()) else {
            return false;
        };
        if referenced.is_some_and(|referenced| !referenced.has_volumes(sync.pod)) {
            return true;
        }
        let spec = spec::container(sync.pod, &self.name);
        let files = sync.sources(referenced).changed_files(spec, before);
        if files != *before {
            Arc::make_mut(self.inputs.get_or_insert_default()).update_files(files, sync.now);
            self.update(since, sync);
        }
        true
    }

    /// Passes input to its stdin; `None` closes it. Input that nothing reads is dropped.
    pub(crate) fn receive(
        &mut self,
        data: Option<Bytes>,
        sync: &SyncContext,
    ) -> Result<(), String> {
        let Some(ContainerPhase::Running { since }) = self.state else {
            return Ok(());
        };
        let inputs = Arc::make_mut(self.inputs.get_or_insert_default());
        let typed = inputs.stdin.iter().filter_map(|(_, data)| data.as_ref());
        let size: usize = typed.chain(&data).map(Bytes::len).sum();
        if size > MAX_INPUT {
            return Err(format!(
                "the input of a simulated container is limited to {MAX_INPUT} bytes"
            ));
        }
        inputs.stdin.push((sync.now, data));
        self.update(since, sync);
        Ok(())
    }

    /// Passes new inputs to the container.
    fn update(&mut self, since: Moment, sync: &SyncContext) {
        let spec = spec::container(sync.pod, &self.name);
        let mut body = self.body.take();
        if let Some(body) = &mut body {
            body.update(&self.config(spec, self.n_restarts(), Some(since), sync));
        }
        self.body = body;
    }

    /// Runs its probes; true if something was done.
    pub fn probe(&mut self, sync: &mut SyncContext) -> bool {
        let Some(ContainerPhase::Running { since }) = self.state else {
            return false;
        };
        let Some(body) = &self.body else { return false };
        let spec = spec::container(sync.pod, &self.name);
        let mut probes = std::mem::take(&mut self.probes);
        let target = ProbeTarget {
            config: self.config(spec, self.n_restarts(), Some(since), sync),
            body: body.as_ref(),
            since,
            ending: sync.ending || self.stopping_since.is_some(),
        };
        let ProbeFindings {
            failed,
            fatal,
            wake,
        } = probes.run_due(&target, sync.now);
        self.probes = probes;
        self.changes_at = earlier(self.changes_at, wake);
        for (probe, message) in failed {
            let usual = || output(&spec[spec::field(probe)], &sync.addresses.first);
            let message = format!("{probe:?} probe failed: {}", message.unwrap_or_else(usual));
            sync.record(self, Note::warning("Unhealthy", "", message));
        }
        match fatal.filter(|_| self.stopping_since.is_none()) {
            Some(probe) => {
                self.kill_unhealthy(spec, probe, sync);
                true
            }
            None => false,
        }
    }

    fn kill_unhealthy(&mut self, spec: &Value, probe: ProbeType, sync: &mut SyncContext) {
        let what = if self.role == ContainerRole::Sidecar {
            "Init container"
        } else {
            "Container"
        };
        let which = if probe == ProbeType::Startup {
            "startup"
        } else {
            "liveness"
        };
        let mut message = format!("{what} {} failed {which} probe", self.name);
        if self.role == ContainerRole::Regular && spec::restarts(sync.pod, spec, self.role, 137) {
            message += ", will be restarted";
        }
        let grace = spec::grace_after(sync.pod, spec, probe);
        self.stop(sync.now + grace, message, sync);
    }

    /// Stops it, and kills it at `kill`.
    pub fn stop(&mut self, kill: Moment, message: String, sync: &mut SyncContext) {
        self.stop_at(kill, false, message, sync);
    }

    /// Stops it with its pod, if it runs. If it `waits` for other containers, only its preStop hook
    /// runs now.
    pub(super) fn stop_for_good(&mut self, kill: Moment, waits: bool, sync: &mut SyncContext) {
        if self.is_running() {
            let message = format!("Stopping container {}", self.name);
            self.stop_at(kill.max(sync.now), waits, message, sync);
        }
    }

    fn stop_at(&mut self, kill: Moment, waits: bool, message: String, sync: &mut SyncContext) {
        let Some(body) = &mut self.body else { return };
        let hook = spec::pre_stop(spec::container(sync.pod, &self.name));
        let is_first = self.stopping_since.is_none();
        let hook_ends = *self.stopping_since.get_or_insert(sync.now) + hook;
        let times = StopTimes {
            now: sync.now,
            term: hook_ends.max(sync.now).min(kill),
            kill,
        };
        match waits {
            true => body.prepare_stop(times),
            false => body.stop(times),
        }
        if is_first {
            sync.record(self, Note::normal("Killing", "", message));
        }
        self.observe(sync);
    }

    /// Cancels pulls, creation and back-off. A container that may start nevertheless is alive until that
    /// is known.
    pub fn cancel(&mut self) {
        self.back_off = None;
        self.pull.cancel();
        (self.volume_error, self.config_error) = (None, None);
        self.is_preparing = false;
        if self.state == Some(ContainerPhase::Creating) {
            match self.body.as_mut().is_none_or(|body| body.cancel()) {
                true => self.undo_start(),
                false => self.is_cancelled = true,
            }
        }
        self.is_replaced = false;
        if self.body.is_none() {
            self.changes_at = None;
        }
    }

    /// Sets the state ContainerStatusUnknown.
    pub fn set_status_unknown(&mut self) {
        self.body = None;
        self.state = Some(ContainerPhase::Ended(Termination {
            started: None,
            finished: None,
            code: 137,
            reason: Str::new_static("ContainerStatusUnknown"),
            message: Str::new_static(
                "The container could not be located when the pod was terminated",
            ),
        }));
    }

    /// When it must be synced next.
    pub fn next_sync(&self) -> Option<Moment> {
        self.changes_at
    }
}

impl RestartBackOff {
    /// Kubernetes: the back-off is reset after a long run (client-go, util/flowcontrol/backoff.go).
    fn is_over(&self, finished: Moment) -> bool {
        finished.saturating_since(self.since) > LONGEST_WAIT * 2
    }

    fn next(before: Option<RestartBackOff>, finished: Moment, now: Moment) -> RestartBackOff {
        let time = match before.filter(|wait| !wait.is_over(finished)) {
            Some(wait) => (wait.time * 2).min(LONGEST_WAIT),
            None => FIRST_WAIT,
        };
        RestartBackOff { time, since: now }
    }
}
