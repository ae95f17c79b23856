//! Restoring the state of pods from their status after a restart of the agent.

use mizzen_component_helpers::pod_state::is_terminal;
use mizzen_object::condition::find;
use mizzen_value::{Str, Value};

use super::container::ContainerState;
use super::image_volumes::ImageVolumes;
use super::probe::Probes;
use super::references::ReferencedObjects;
use super::{
    PendingResize, PodAddresses, PodResize, PodStage, PodState, needs_inputs, resources, spec,
};
use crate::moment::{Moment, from_past};
use crate::runtime::{ContainerPhase, ContainerRole, ContainerRuntime, Termination};

/// The state of a pod from its status.
pub(super) fn pod(pod: &Value, now: Moment, runtime: &dyn ContainerRuntime) -> PodState {
    let status = &pod["status"];
    let containers = spec::containers(pod)
        .map(|(role, spec)| {
            let mut restored = container(pod, role, spec, now);
            if runtime.runs_processes() {
                restored.correct(pod, now, runtime);
            }
            restored
        })
        .collect();
    let is_over = is_terminal(pod);
    let mut restored = PodState {
        containers,
        stage: PodStage::Active,
        failure: None,
        resources: resources::restored_of_pod(pod),
        resize: resize(pod),
        resize_pending: pending_resize(pod),
        eviction: None,
        addresses: PodAddresses::of_status(status),
        has_sandbox: runtime.runs_processes().then(|| runtime.has_sandbox(pod)),
        needs_old_sandbox: false,
        began: from_past(&status["startTime"], now).unwrap_or(now),
        is_restarting_all: false,
        deletion_grace: None,
        referenced: None,
        image_volumes: ImageVolumes::default(),
    };
    restored.needs_old_sandbox =
        runtime.runs_processes() && restored.containers.iter().any(|it| it.n_starts > 0);
    if is_over && !restored.containers.iter().any(ContainerState::is_running) {
        restored.stage = PodStage::Finished;
        // An agent that was killed may not have cleaned up after it.
        runtime.stop_sandbox(pod);
    }
    if restored.stage == PodStage::Active {
        restored.referenced = ReferencedObjects::from_pod(pod, now, runtime);
        let waits = |container: &ContainerState| {
            let spec = spec::container(pod, &container.name);
            container.n_starts == 0
                || container.is_running() && needs_inputs(pod, spec, runtime)
                || runtime.runs_processes()
        };
        if let Some(referenced) = &mut restored.referenced
            && !restored.containers.iter().any(waits)
        {
            referenced.rest();
        }
    }
    restored
}

fn container(pod: &Value, role: ContainerRole, spec: &Value, now: Moment) -> ContainerState {
    let name = spec["name"].str();
    let mut container = ContainerState::new(name, role);
    let list = match role {
        ContainerRole::Init | ContainerRole::Sidecar => "initContainerStatuses",
        ContainerRole::Regular => "containerStatuses",
        ContainerRole::Ephemeral => "ephemeralContainerStatuses",
    };
    let mut statuses = pod["status"][list].list().iter();
    let Some(status) = statuses.find(|status| status["name"].str() == name) else {
        return container;
    };
    let n_restarts = u32::try_from(status["restartCount"].int()).unwrap_or_default();
    let (running, terminated) = (&status["state"]["running"], &status["state"]["terminated"]);
    container.last = end(&status["lastState"]["terminated"], now);
    container.image = status["image"].str().into();
    let known = match &status["resources"] {
        Value::Null => &spec["resources"],
        known => known,
    };
    let of_pod = resources::restored_of_pod(pod);
    container.resources = resources::with_limits(known.clone(), &of_pod);
    if !running.is_null() {
        let since = from_past(&running["startedAt"], now).unwrap_or(now);
        container.state = Some(ContainerPhase::Running { since });
        container.probes = Probes::restored(status["started"].bool(), status["ready"].bool());
        container.n_starts = n_restarts + 1;
    } else if let Some(end) = end(terminated, now).or_else(|| container.last.take()) {
        container.state = Some(ContainerPhase::Ended(end));
        container.n_starts = n_restarts + 1;
    }
    container
}

impl ContainerState {
    /// Replaces what the status says by what the runtime has.
    fn correct(&mut self, pod: &Value, now: Moment, runtime: &dyn ContainerRuntime) {
        match runtime.find(pod, &self.name, now) {
            Some(found) => {
                let n = found.n_restarts + 1;
                if self.n_starts != n || self.image.is_empty() {
                    self.image = spec::container(pod, &self.name)["image"].str().into();
                }
                (self.n_starts, self.image_id) = (n, found.image_id);
                self.user = Some(found.user);
                if let Some((id, end)) = found.last {
                    self.last = Some(end);
                    self.set_id(n - 1, id);
                }
                self.set_id(n, found.id);
                self.state = Some(found.state);
                let is_first = matches!(self.role, ContainerRole::Init | ContainerRole::Sidecar);
                if is_first && found.is_of_old_sandbox && !self.is_running() {
                    self.forget_run();
                }
            }
            // It is gone: the machine was restarted, or another program has removed it.
            None if self.is_running() => self.set_status_unknown(),
            None => {}
        }
    }
}

/// The resize that was in progress.
fn resize(pod: &Value) -> Option<PodResize> {
    let condition = find(&pod["status"]["conditions"], "PodResizeInProgress")?;
    let has_failed = condition["reason"].str() == "Error";
    Some(PodResize {
        generation: condition["observedGeneration"].int(),
        error: has_failed.then(|| condition["message"].str().to_owned()),
    })
}

/// The resize that was deferred.
fn pending_resize(pod: &Value) -> Option<PendingResize> {
    let condition = find(&pod["status"]["conditions"], "PodResizePending")?;
    Some(PendingResize {
        generation: condition["observedGeneration"].int(),
        message: condition["message"].str().to_owned(),
    })
}

fn end(terminated: &Value, now: Moment) -> Option<Termination> {
    (!terminated.is_null()).then(|| Termination {
        started: from_past(&terminated["startedAt"], now),
        finished: from_past(&terminated["finishedAt"], now),
        code: terminated["exitCode"].int(),
        reason: Str::from(terminated["reason"].str()),
        message: Str::from(terminated["message"].str()),
    })
}
