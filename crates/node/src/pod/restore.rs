//! Restoring the state of pods from their status after a restart of the agent.

use mizzen_component_helpers::pod_state::is_terminal;
use mizzen_value::{Str, Value};

use super::container::ContainerState;
use super::probe::Probes;
use super::references::ReferencedObjects;
use super::{PodStage, PodState, needs_inputs, spec};
use crate::moment::{Moment, from_past};
use crate::runtime::{ContainerPhase, ContainerRole, ContainerRuntime, Termination};

/// The state of a pod from its status.
pub(super) fn pod(pod: &Value, now: Moment, runtime: &dyn ContainerRuntime) -> PodState {
    let status = &pod["status"];
    let containers = spec::containers(pod)
        .map(|(role, spec)| container(pod, role, spec, now))
        .collect();
    let is_over = is_terminal(pod);
    let mut restored = PodState {
        containers,
        stage: PodStage::Active,
        failure: None,
        address: status["podIP"].str().into(),
        began: from_past(&status["startTime"], now).unwrap_or(now),
        is_restarting_all: false,
        deletion: None,
        referenced: None,
    };
    if is_over && !restored.containers.iter().any(ContainerState::is_running) {
        restored.stage = PodStage::Finished;
    }
    if restored.stage == PodStage::Active {
        restored.referenced = ReferencedObjects::from_pod(pod, now, runtime);
        let waits = |container: &ContainerState| {
            let spec = spec::container(pod, &container.name);
            container.n_starts == 0 || container.is_running() && needs_inputs(pod, spec, runtime)
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

fn end(terminated: &Value, now: Moment) -> Option<Termination> {
    (!terminated.is_null()).then(|| Termination {
        started: from_past(&terminated["startedAt"], now),
        finished: from_past(&terminated["finishedAt"], now),
        code: terminated["exitCode"].int(),
        reason: Str::from(terminated["reason"].str()),
        message: Str::from(terminated["message"].str()),
    })
}
