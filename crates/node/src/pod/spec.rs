//! What does a pod's specification say about its containers?

use std::time::Duration;

use mizzen_kinds::pod_state::is_sidecar;
use mizzen_value::Value;

use crate::moment::seconds;
use crate::runtime::{Probe, Role};

/// Kubernetes: every container gets at least so long to end (kuberuntime_container.go).
const SHORTEST_GRACE: Duration = Duration::from_secs(2);
/// How long a container gets to end if nobody says anything.
const USUAL_GRACE: Duration = Duration::from_secs(30);

/// The action of a rule by which a whole pod starts over.
const ALL: &str = "RestartAllContainers";

/// Every container and its role: init containers and sidecars in their order, then the others, then ephemeral ones.
pub fn containers(pod: &Value) -> impl Iterator<Item = (Role, &Value)> {
    let spec = &pod["spec"];
    let first = spec["initContainers"]
        .list()
        .iter()
        .map(|container| (init_role(container), container));
    let regular = spec["containers"]
        .list()
        .iter()
        .map(|container| (Role::Regular, container));
    let ephemeral = spec["ephemeralContainers"]
        .list()
        .iter()
        .map(|container| (Role::Ephemeral, container));
    first.chain(regular).chain(ephemeral)
}

fn init_role(container: &Value) -> Role {
    if is_sidecar(container) {
        Role::Sidecar
    } else {
        Role::Init
    }
}

/// A container of a pod by its name; null if there is none.
pub fn container<'a>(pod: &'a Value, name: &str) -> &'a Value {
    static NONE: Value = Value::Null;
    containers(pod)
        .map(|(_, container)| container)
        .find(|it| it["name"].str() == name)
        .unwrap_or(&NONE)
}

/// Whether a container that ended with `code` is started again.
pub fn restarts(pod: &Value, container: &Value, role: Role, code: i64) -> bool {
    if role == Role::Ephemeral {
        return false;
    }
    let rules = container["restartPolicyRules"].list();
    if rules.iter().any(|rule| matches(rule, code)) {
        return true;
    }
    let own = container["restartPolicy"].str();
    let policy = if own.is_empty() {
        pod["spec"]["restartPolicy"].str()
    } else {
        own
    };
    // Kubernetes: a container that must complete is done once it has, whatever the policy.
    let must_complete = role == Role::Init;
    match policy {
        "Never" => false,
        "OnFailure" => code != 0,
        _ => !(must_complete && code == 0),
    }
}

/// Whether the whole pod starts over after this container ended with `code`.
pub fn restarts_all(container: &Value, code: i64) -> bool {
    let mut rules = container["restartPolicyRules"].list().iter();
    rules
        .find(|rule| matches(rule, code))
        .is_some_and(|rule| rule["action"].str() == ALL)
}

/// Whether the whole pod may start over in its place.
pub fn may_restart_all(pod: &Value) -> bool {
    let mut rules =
        containers(pod).flat_map(|(_, container)| container["restartPolicyRules"].list());
    rules.any(|rule| rule["action"].str() == ALL)
}

/// Whether a rule asks for a restart after this code.
fn matches(rule: &Value, code: i64) -> bool {
    let codes = &rule["exitCodes"];
    let named = codes["values"]
        .list()
        .iter()
        .any(|value| value.as_int() == Some(code));
    match codes["operator"].str() {
        "In" => named,
        "NotIn" => !named,
        _ => false,
    }
}

/// How long a container gets to end when its pod ends.
pub fn grace(pod: &Value) -> Duration {
    let deletion = &pod["metadata"]["deletionGracePeriodSeconds"];
    let wanted = if deletion.is_null() {
        &pod["spec"]["terminationGracePeriodSeconds"]
    } else {
        deletion
    };
    let grace = if wanted.is_null() {
        USUAL_GRACE
    } else {
        seconds(wanted)
    };
    grace.max(SHORTEST_GRACE)
}

/// How long a container gets to end after a probe failed.
pub fn grace_after(pod: &Value, container: &Value, probe: Probe) -> Duration {
    match &container[field(probe)]["terminationGracePeriodSeconds"] {
        Value::Null => grace(pod),
        own => seconds(own).max(SHORTEST_GRACE),
    }
}

/// How long a container sleeps before it is told to stop.
pub fn pre_stop(container: &Value) -> Duration {
    seconds(&container["lifecycle"]["preStop"]["sleep"]["seconds"])
}

/// The field that has a probe.
pub fn field(probe: Probe) -> &'static str {
    match probe {
        Probe::Startup => "startupProbe",
        Probe::Readiness => "readinessProbe",
        Probe::Liveness => "livenessProbe",
    }
}

/// A pod in messages, as the kubelet writes it.
pub fn show(pod: &Value) -> String {
    let metadata = &pod["metadata"];
    format!(
        "{}_{}({})",
        metadata["name"].str(),
        metadata["namespace"].str(),
        metadata["uid"].str()
    )
}
