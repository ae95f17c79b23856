//! Pod conditions: the five of a kubelet, after those of other writers.

use mizzen_object::condition::{find, is_true};
use mizzen_value::{Value, value};

use crate::moment::{Moment, to_value};
use crate::pod::{PodStage, PodState, spec};
use crate::runtime::{ContainerPhase, ContainerRole};

/// The conditions that the kubelet writes, in its order.
const OURS: [&str; 5] = [
    "PodReadyToStartContainers",
    "Initialized",
    "Ready",
    "ContainersReady",
    "PodScheduled",
];

/// The condition of pods with a RestartAllContainers rule.
const ALL_RESTARTING: &str = "AllContainersRestarting";

/// The condition of a pod that the node evicts for want of a resource, or ends as it shuts down.
const DISRUPTION: &str = "DisruptionTarget";

/// The conditions of a resize.
const RESIZES: [&str; 2] = ["PodResizePending", "PodResizeInProgress"];

/// The value of a condition.
struct ConditionValue {
    holds: bool,
    reason: &'static str,
    message: String,
}

impl ConditionValue {
    fn yes() -> ConditionValue {
        ConditionValue {
            holds: true,
            reason: "",
            message: String::new(),
        }
    }

    fn no(reason: &'static str, message: String) -> ConditionValue {
        ConditionValue {
            holds: false,
            reason,
            message,
        }
    }
}

/// All conditions of a pod, in order.
pub(super) fn conditions(pod: &PodState, object: &Value, phase: &str, now: Moment) -> Vec<Value> {
    let known = object["status"]["conditions"].list();
    let is_disrupted = disruption(pod).is_some();
    let resizes = resizes(pod);
    let is_ours = |name: &str| {
        name == ALL_RESTARTING
            || OURS.contains(&name)
            || name == DISRUPTION && is_disrupted
            || RESIZES.contains(&name)
    };
    let foreign = known
        .iter()
        .filter(|condition| !is_ours(condition["type"].str()));
    let containers = containers_ready(pod, object, phase);
    let ready = ready(&containers, object);
    let verdicts = [
        ConditionValue {
            holds: pod.stage != PodStage::Finished && has_sandbox(pod),
            ..ConditionValue::no("", String::new())
        },
        initialized(pod, object, phase),
        ready,
        containers,
        ConditionValue::yes(),
    ];
    let ours = OURS
        .into_iter()
        .zip(verdicts)
        .map(|(name, condition_value)| condition(name, condition_value, object, now));
    let restarting_all = spec::may_restart_all(object)
        .then(|| condition(ALL_RESTARTING, restarting_all(pod, phase), object, now));
    let disruption = disruption(pod).map(|it| condition(DISRUPTION, it, object, now));
    let all = foreign.cloned().chain(ours).chain(restarting_all);
    let resizes = resizes.into_iter().zip(RESIZES).filter_map(|(it, name)| {
        let (value, generation) = it?;
        let mut made = condition(name, value, object, now);
        made.set("observedGeneration", generation);
        Some(made)
    });
    all.chain(disruption).chain(resizes).collect()
}

/// The conditions of a resize that has to be removed, because it has ended.
pub(super) fn ended_resizes(pod: &PodState, object: &Value) -> Vec<Value> {
    let known = &object["status"]["conditions"];
    let ended = resizes(pod).into_iter().zip(RESIZES);
    let ended = ended.filter(|(value, name)| value.is_none() && find(known, name).is_some());
    ended
        .map(|(_, name)| value!({ "type": name, "$patch": "delete" }))
        .collect()
}

/// What is to be said of a resize that is deferred, and of one that is in progress, each with its
/// generation.
fn resizes(pod: &PodState) -> [Option<(ConditionValue, i64)>; 2] {
    if pod.stage == PodStage::Finished {
        return [None, None];
    }
    let value = |reason: &'static str, message: &str| ConditionValue {
        holds: true,
        reason,
        message: message.to_owned(),
    };
    let pending = pod.resize_pending.as_ref();
    let pending = pending.map(|it| (value("Deferred", &it.message), it.generation));
    let progress = pod.resize.as_ref().map(|it| {
        let value = match &it.error {
            None => value("", ""),
            Some(error) => value("Error", error),
        };
        (value, it.generation)
    });
    [pending, progress]
}

/// Whether the node ends the pod through no fault of its own.
fn disruption(pod: &PodState) -> Option<ConditionValue> {
    let failure = pod.failure.as_ref()?;
    let is_disruption = pod.eviction.is_some_and(|eviction| eviction.is_disruption);
    is_disruption.then(|| ConditionValue {
        holds: true,
        reason: "TerminationByKubelet",
        message: failure.message.clone(),
    })
}

/// Whether all containers are being restarted.
fn restarting_all(pod: &PodState, phase: &str) -> ConditionValue {
    match phase {
        "Succeeded" => ConditionValue::no("PodCompleted", String::new()),
        "Failed" => ConditionValue::no("PodFailed", String::new()),
        _ if pod.is_restarting_all => {
            let message = "container exited with restart policy rule".into();
            ConditionValue {
                holds: true,
                reason: "RestartAllContainersStarted",
                message,
            }
        }
        _ => ConditionValue::no("", String::new()),
    }
}

fn condition(name: &str, condition_value: ConditionValue, object: &Value, now: Moment) -> Value {
    static NONE: Value = Value::Null;
    let before = find(&object["status"]["conditions"], name).unwrap_or(&NONE);
    let status = if condition_value.holds {
        "True"
    } else {
        "False"
    };
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
    for (field, text) in [
        ("reason", condition_value.reason),
        ("message", &condition_value.message),
    ] {
        if !text.is_empty() {
            condition.set(field, text);
        } else if !before[field].is_empty() {
            condition.set(field, Value::Null);
        }
    }
    condition
}

/// Whether the pod has a sandbox with an IP. Where there are no sandboxes, a container that was made
/// has one.
pub(super) fn has_sandbox(pod: &PodState) -> bool {
    if let Some(has_sandbox) = pod.has_sandbox {
        return has_sandbox;
    }
    let was_made =
        |state: &Option<ContainerPhase>| !matches!(state, None | Some(ContainerPhase::Creating));
    pod.containers.iter().any(|container| {
        was_made(&container.state) || container.last.is_some() || container.config_error.is_some()
    })
}

fn initialized(pod: &PodState, object: &Value, phase: &str) -> ConditionValue {
    if phase == "Succeeded" {
        return ConditionValue {
            reason: "PodCompleted",
            ..ConditionValue::yes()
        };
    }
    let is_incomplete = |name: &str| {
        let container = pod
            .containers
            .iter()
            .find(|container| container.name == name);
        let spec = spec::container(object, name);
        container.is_none_or(|container| match container.role {
            ContainerRole::Sidecar => !container.has_started(spec),
            _ => !container.is_ready(spec),
        })
    };
    let names = object["spec"]["initContainers"]
        .list()
        .iter()
        .map(|container| container["name"].str());
    let incomplete: Vec<&str> = names.filter(|name| is_incomplete(name)).collect();
    let has_begun = pod.containers.iter().any(|container| {
        container.role == ContainerRole::Regular
            && container.back_off.is_none()
            && matches!(
                container.state,
                Some(ContainerPhase::Running { .. } | ContainerPhase::Ended(_))
            )
    });
    let was_initialized = is_true(&object["status"]["conditions"], "Initialized");
    if incomplete.is_empty() || has_begun || was_initialized {
        return ConditionValue::yes();
    }
    let message = format!(
        "containers with incomplete status: [{}]",
        incomplete.join(" ")
    );
    ConditionValue::no("ContainersNotInitialized", message)
}

fn containers_ready(pod: &PodState, object: &Value, phase: &str) -> ConditionValue {
    match phase {
        "Succeeded" => return ConditionValue::no("PodCompleted", String::new()),
        "Failed" => return ConditionValue::no("PodFailed", String::new()),
        _ => {}
    }
    let counts =
        |role: ContainerRole| matches!(role, ContainerRole::Sidecar | ContainerRole::Regular);
    let unready = pod.containers.iter().filter(|container| {
        counts(container.role) && !container.is_ready(spec::container(object, &container.name))
    });
    let unready: Vec<&str> = unready.map(|container| container.name.as_str()).collect();
    if unready.is_empty() {
        return ConditionValue::yes();
    }
    ConditionValue::no(
        "ContainersNotReady",
        format!("containers with unready status: [{}]", unready.join(" ")),
    )
}

/// A pod is ready when its containers and its readiness gates are.
fn ready(containers: &ConditionValue, object: &Value) -> ConditionValue {
    if !containers.holds {
        return ConditionValue {
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
        true => ConditionValue::yes(),
        false => ConditionValue::no("ReadinessGatesNotReady", closed.join(", ")),
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
