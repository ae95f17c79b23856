//! What was a pod doing before the agent was restarted? Its status says so, and a new pod's status says nothing.

use mizzen_kinds::pod_state::is_terminal;
use mizzen_value::{Str, Value};

use super::held::Held;
use super::probe::Probes;
use super::supply::Supply;
use super::{Pod, Stage, spec, wants_inputs};
use crate::moment::{Moment, from_past};
use crate::runtime::{ContainerRuntime, End, Role, State};

/// A pod as its status describes it.
pub(super) fn pod(pod: &Value, now: Moment, runtime: &dyn ContainerRuntime) -> Pod {
    let status = &pod["status"];
    let containers = spec::containers(pod)
        .map(|(role, spec)| container(pod, role, spec, now))
        .collect();
    let is_over = is_terminal(pod);
    let mut restored = Pod {
        containers,
        stage: Stage::Active,
        verdict: None,
        address: status["podIP"].str().into(),
        began: from_past(&status["startTime"], now).unwrap_or(now),
        is_renewed: false,
        deletion: None,
        supply: None,
    };
    if is_over && !restored.containers.iter().any(Held::is_running) {
        restored.stage = Stage::Finished;
    }
    if restored.stage == Stage::Active {
        restored.supply = Supply::of(pod, now, runtime);
        let waits = |held: &Held| {
            let spec = spec::container(pod, &held.name);
            held.n_starts == 0 || held.is_running() && wants_inputs(pod, spec, runtime)
        };
        if let Some(supply) = &mut restored.supply
            && !restored.containers.iter().any(waits)
        {
            supply.rest();
        }
    }
    restored
}

fn container(pod: &Value, role: Role, spec: &Value, now: Moment) -> Held {
    let name = spec["name"].str();
    let mut held = Held::new(name, role);
    let list = match role {
        Role::Init | Role::Sidecar => "initContainerStatuses",
        Role::Regular => "containerStatuses",
        Role::Ephemeral => "ephemeralContainerStatuses",
    };
    let mut statuses = pod["status"][list].list().iter();
    let Some(status) = statuses.find(|status| status["name"].str() == name) else {
        return held;
    };
    let n_restarts = u32::try_from(status["restartCount"].int()).unwrap_or_default();
    let (running, terminated) = (&status["state"]["running"], &status["state"]["terminated"]);
    held.last = end(&status["lastState"]["terminated"], now);
    held.image = status["image"].str().into();
    if !running.is_null() {
        let since = from_past(&running["startedAt"], now).unwrap_or(now);
        held.state = Some(State::Running { since });
        held.probes = Probes::restored(status["started"].bool(), status["ready"].bool());
        held.n_starts = n_restarts + 1;
    } else if let Some(end) = end(terminated, now).or_else(|| held.last.take()) {
        held.state = Some(State::Ended(end));
        held.n_starts = n_restarts + 1;
    }
    held
}

fn end(terminated: &Value, now: Moment) -> Option<End> {
    (!terminated.is_null()).then(|| End {
        started: from_past(&terminated["startedAt"], now),
        finished: from_past(&terminated["finishedAt"], now),
        code: terminated["exitCode"].int(),
        reason: Str::from(terminated["reason"].str()),
        message: Str::from(terminated["message"].str()),
    })
}
