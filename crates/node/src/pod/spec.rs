//! The container specifications of a pod.

use std::time::Duration;

use mizzen_component_helpers::pod_state::is_sidecar;
use mizzen_value::Value;

use crate::moment::seconds;
use crate::runtime::{ContainerRole, ProbeType};

/// Kubernetes: the least grace period, and the least time between SIGTERM and SIGKILL
/// (kuberuntime_container.go).
pub const SHORTEST_GRACE: Duration = Duration::from_secs(2);
/// The default grace period.
const USUAL_GRACE: Duration = Duration::from_secs(30);

/// The rule action that restarts all containers.
const ALL: &str = "RestartAllContainers";

/// Every container and its role: init containers and sidecars in order, then regular containers,
/// then ephemeral ones.
pub fn containers(pod: &Value) -> impl Iterator<Item = (ContainerRole, &Value)> {
    let spec = &pod["spec"];
    let first = spec["initContainers"]
        .list()
        .iter()
        .map(|container| match is_sidecar(container) {
            true => (ContainerRole::Sidecar, container),
            false => (ContainerRole::Init, container),
        });
    let regular = spec["containers"]
        .list()
        .iter()
        .map(|container| (ContainerRole::Regular, container));
    let ephemeral = spec["ephemeralContainers"]
        .list()
        .iter()
        .map(|container| (ContainerRole::Ephemeral, container));
    first.chain(regular).chain(ephemeral)
}

/// A container of a pod by name; null if there is none.
pub fn container<'a>(pod: &'a Value, name: &str) -> &'a Value {
    static NONE: Value = Value::Null;
    containers(pod)
        .map(|(_, container)| container)
        .find(|it| it["name"].str() == name)
        .unwrap_or(&NONE)
}

/// The user of all containers of a pod, if it is known and the same. Kubernetes: pkg/volume/util,
/// `FsUserFrom`.
pub fn common_user(pod: &Value) -> Option<u32> {
    let common = &pod["spec"]["securityContext"]["runAsUser"];
    let mut users = containers(pod).map(|(_, container)| {
        let own = container["securityContext"]["runAsUser"].as_int();
        own.or(common.as_int())
    });
    let first = users.next()??;
    let is_same = users.all(|user| user == Some(first));
    u32::try_from(first).ok().filter(|_| is_same)
}

/// Whether a container that exited with `code` is restarted.
pub fn restarts(pod: &Value, container: &Value, role: ContainerRole, code: i64) -> bool {
    if role == ContainerRole::Ephemeral {
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
    // Kubernetes: an init container that has completed does not restart, whatever the policy.
    let must_complete = role == ContainerRole::Init;
    match policy {
        "Never" => false,
        "OnFailure" => code != 0,
        _ => !(must_complete && code == 0),
    }
}

/// Whether all containers restart after this one exited with `code`.
pub fn restarts_all(container: &Value, code: i64) -> bool {
    let mut rules = container["restartPolicyRules"].list().iter();
    rules
        .find(|rule| matches(rule, code))
        .is_some_and(|rule| rule["action"].str() == ALL)
}

/// Whether a rule may restart all containers.
pub fn may_restart_all(pod: &Value) -> bool {
    let mut rules =
        containers(pod).flat_map(|(_, container)| container["restartPolicyRules"].list());
    rules.any(|rule| rule["action"].str() == ALL)
}

/// Whether a rule applies to an exit code.
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

/// The grace period of a terminating pod.
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

/// The grace period after a failed probe.
pub fn grace_after(pod: &Value, container: &Value, probe: ProbeType) -> Duration {
    match &container[field(probe)]["terminationGracePeriodSeconds"] {
        Value::Null => grace(pod),
        own => seconds(own).max(SHORTEST_GRACE),
    }
}

/// The sleep of the preStop hook.
pub fn pre_stop(container: &Value) -> Duration {
    seconds(&container["lifecycle"]["preStop"]["sleep"]["seconds"])
}

/// The field of a probe.
pub fn field(probe: ProbeType) -> &'static str {
    match probe {
        ProbeType::Startup => "startupProbe",
        ProbeType::Readiness => "readinessProbe",
        ProbeType::Liveness => "livenessProbe",
    }
}

/// A pod in messages, as the kubelet formats it.
pub fn show(pod: &Value) -> String {
    let metadata = &pod["metadata"];
    format!(
        "{}_{}({})",
        metadata["name"].str(),
        metadata["namespace"].str(),
        metadata["uid"].str()
    )
}
