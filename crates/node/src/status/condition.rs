//! Which conditions does a pod have? The kubelet's five, after those that others wrote.

use mizzen_object::condition::{find, is_true};
use mizzen_value::{Value, value};

use crate::moment::{Moment, to_value};
use crate::pod::{Pod, Stage, spec};
use crate::runtime::{Role, State};

/// The conditions that the kubelet writes, in its order.
const OURS: [&str; 5] = [
    "PodReadyToStartContainers",
    "Initialized",
    "Ready",
    "ContainersReady",
    "PodScheduled",
];

/// The condition that only those pods have which may start over in their place.
const RENEWED: &str = "AllContainersRestarting";

/// What is so, and why not.
struct Verdict {
    holds: bool,
    reason: &'static str,
    message: String,
}

impl Verdict {
    fn yes() -> Verdict {
        Verdict {
            holds: true,
            reason: "",
            message: String::new(),
        }
    }

    fn no(reason: &'static str, message: String) -> Verdict {
        Verdict {
            holds: false,
            reason,
            message,
        }
    }
}

/// All conditions of a pod, in their order.
pub(super) fn conditions(pod: &Pod, object: &Value, phase: &str, now: Moment) -> Vec<Value> {
    let known = object["status"]["conditions"].list();
    let is_ours = |name: &str| name == RENEWED || OURS.contains(&name);
    let foreign = known
        .iter()
        .filter(|condition| !is_ours(condition["type"].str()));
    let containers = containers_ready(pod, object, phase);
    let ready = ready(&containers, object);
    let verdicts = [
        sandbox(pod),
        initialized(pod, object, phase),
        ready,
        containers,
        Verdict::yes(),
    ];
    let ours = OURS
        .into_iter()
        .zip(verdicts)
        .map(|(name, verdict)| condition(name, verdict, object, now));
    let renewed =
        spec::may_restart_all(object).then(|| condition(RENEWED, renewed(pod, phase), object, now));
    foreign.cloned().chain(ours).chain(renewed).collect()
}

/// Whether all containers are made to start over.
fn renewed(pod: &Pod, phase: &str) -> Verdict {
    match phase {
        "Succeeded" => Verdict::no("PodCompleted", String::new()),
        "Failed" => Verdict::no("PodFailed", String::new()),
        _ if pod.is_renewed => {
            let message = "container exited with restart policy rule".into();
            Verdict {
                holds: true,
                reason: "RestartAllContainersStarted",
                message,
            }
        }
        _ => Verdict::no("", String::new()),
    }
}

fn condition(name: &str, verdict: Verdict, object: &Value, now: Moment) -> Value {
    static NONE: Value = Value::Null;
    let before = find(&object["status"]["conditions"], name).unwrap_or(&NONE);
    let status = if verdict.holds { "True" } else { "False" };
    let stays = before["status"].str() == status;
    let since = if stays {
        before["lastTransitionTime"].clone()
    } else {
        to_value(now)
    };
    let mut condition = value!({
        "type": name,
        "status": status,
        "observedGeneration": (object["metadata"]["generation"].clone()),
        "lastTransitionTime": since,
    });
    for (field, text) in [("reason", verdict.reason), ("message", &verdict.message)] {
        if !text.is_empty() {
            condition.set(field, text);
        } else if !before[field].is_empty() {
            condition.set(field, Value::Null);
        }
    }
    condition
}

/// Whether there is a place with an address in which containers can run.
pub(super) fn has_sandbox(pod: &Pod) -> bool {
    let was_made = |state: &Option<State>| !matches!(state, None | Some(State::Creating));
    pod.containers
        .iter()
        .any(|held| was_made(&held.state) || held.last.is_some() || held.lack.is_some())
}

fn sandbox(pod: &Pod) -> Verdict {
    let holds = pod.stage != Stage::Finished && has_sandbox(pod);
    Verdict {
        holds,
        reason: "",
        message: String::new(),
    }
}

fn initialized(pod: &Pod, object: &Value, phase: &str) -> Verdict {
    if phase == "Succeeded" {
        return Verdict {
            reason: "PodCompleted",
            ..Verdict::yes()
        };
    }
    let is_incomplete = |name: &str| {
        let held = pod.containers.iter().find(|held| held.name == name);
        let spec = spec::container(object, name);
        held.is_none_or(|held| match held.role {
            Role::Sidecar => !held.has_started(spec),
            _ => !held.is_ready(spec),
        })
    };
    let names = object["spec"]["initContainers"]
        .list()
        .iter()
        .map(|container| container["name"].str());
    let incomplete: Vec<&str> = names.filter(|name| is_incomplete(name)).collect();
    if incomplete.is_empty() || has_begun(pod) || was(object, "Initialized") {
        return Verdict::yes();
    }
    let message = format!(
        "containers with incomplete status: [{}]",
        incomplete.join(" ")
    );
    Verdict::no("ContainersNotInitialized", message)
}

fn has_begun(pod: &Pod) -> bool {
    let regular = pod
        .containers
        .iter()
        .filter(|held| held.role == Role::Regular);
    regular.into_iter().any(|held| {
        held.back_off.is_none()
            && matches!(held.state, Some(State::Running { .. } | State::Ended(_)))
    })
}

fn was(object: &Value, name: &str) -> bool {
    is_true(&object["status"]["conditions"], name)
}

fn containers_ready(pod: &Pod, object: &Value, phase: &str) -> Verdict {
    match phase {
        "Succeeded" => return Verdict::no("PodCompleted", String::new()),
        "Failed" => return Verdict::no("PodFailed", String::new()),
        _ => {}
    }
    let counts = |role: Role| matches!(role, Role::Sidecar | Role::Regular);
    let unready = pod
        .containers
        .iter()
        .filter(|held| counts(held.role) && !held.is_ready(spec::container(object, &held.name)));
    let unready: Vec<&str> = unready.map(|held| held.name.as_str()).collect();
    if unready.is_empty() {
        return Verdict::yes();
    }
    Verdict::no(
        "ContainersNotReady",
        format!("containers with unready status: [{}]", unready.join(" ")),
    )
}

/// A pod is ready when its containers are, and whatever else it waits for.
fn ready(containers: &Verdict, object: &Value) -> Verdict {
    if !containers.holds {
        return Verdict {
            message: containers.message.clone(),
            ..*containers
        };
    }
    let known = object["status"]["conditions"].list();
    let gates = object["spec"]["readinessGates"]
        .list()
        .iter()
        .map(|gate| gate["conditionType"].str());
    let closed: Vec<String> = gates.filter_map(|gate| closed(gate, known)).collect();
    match closed.is_empty() {
        true => Verdict::yes(),
        false => Verdict::no("ReadinessGatesNotReady", closed.join(", ")),
    }
}

fn closed(gate: &str, known: &[Value]) -> Option<String> {
    match known
        .iter()
        .find(|condition| condition["type"].str() == gate)
    {
        None => Some(format!(
            "corresponding condition of pod readiness gate {gate:?} does not exist."
        )),
        Some(condition) if condition["status"].str() == "True" => None,
        Some(condition) => {
            let status = condition["status"].str();
            Some(format!(
                "the status of pod readiness gate {gate:?} is not \"True\", but {status}"
            ))
        }
    }
}
