//! Container statuses of a pod.

use mizzen_value::{Value, value};

use super::Host;
use crate::moment::to_value;
use crate::pod::{ContainerState, PodState, spec};
use crate::runtime::{ContainerPhase, ContainerRole, Termination};

/// Kubernetes: the most bytes of termination messages of a pod (pkg/kubelet/container/runtime.go).
const MAX_MESSAGES: usize = 12 << 10;

/// The statuses of all containers of some roles; init containers in order, all other sorted by
/// name.
pub(super) fn statuses(
    pod: &PodState,
    object: &Value,
    host: &Host,
    roles: &[ContainerRole],
) -> Value {
    let mut chosen: Vec<&ContainerState> = pod
        .containers
        .iter()
        .filter(|container| roles.contains(&container.role))
        .collect();
    if !roles.contains(&ContainerRole::Init) {
        chosen.sort_by(|one, other| one.name.cmp(&other.name));
    }
    let has_init = !object["spec"]["initContainers"].list().is_empty();
    let waits = if has_init {
        "PodInitializing"
    } else {
        "ContainerCreating"
    };
    Value::List(
        chosen
            .into_iter()
            .map(|container| status(container, object, host, waits))
            .collect(),
    )
}

fn status(container: &ContainerState, object: &Value, host: &Host, waits: &str) -> Value {
    let spec = spec::container(object, &container.name);
    // Kubernetes: the image is that of the current container, until another one is created.
    let image = if container.n_starts > 0 {
        container.image.as_str()
    } else {
        spec["image"].str()
    };
    let mut status = value!({
        "name": (&container.name),
        "image": image,
        "imageID": "",
        "lastState": (last_state(container, object, host)),
        "ready": (container.is_ready(spec)),
        "restartCount": (container.n_restarts()),
        "started": (container.has_started(spec)),
        "state": (state(container, object, host, waits)),
    });
    let mounts = spec["volumeMounts"].list().iter();
    let mounts: Vec<Value> = mounts
        .map(|wanted| mount(wanted, host.recursive_read_only))
        .collect();
    if !mounts.is_empty() {
        status.set("volumeMounts", mounts);
    }
    if !matches!(container.state, None | Some(ContainerPhase::Creating)) {
        status.set(
            "containerID",
            container.id(object, &host.scheme, container.n_starts),
        );
        let made_up = container.image_id.is_empty();
        status.set(
            "imageID",
            if made_up {
                image_id(&container.image)
            } else {
                container.image_id.as_str().into()
            },
        );
        let allocated = &spec["resources"]["requests"];
        let resources = match container.is_running() {
            true => &container.resources,
            false => &spec["resources"],
        };
        let mut shown = match resources.is_null() {
            true => Value::object(),
            false => resources.clone(),
        };
        // Kubernetes: a container without limits of its own does not show those of its pod
        // (kubelet_pods.go, `convertContainerStatusResources`).
        if spec["resources"]["limits"].is_null() {
            shown.remove("limits");
        }
        status.set("resources", shown);
        if !allocated.is_empty() {
            status.set("allocatedResources", allocated.clone());
        }
        match &container.user {
            None => status.set("user", user(object, spec)),
            Some(user) if !user.is_null() => status.set("user", user.clone()),
            Some(_) => {}
        }
    }
    status
}

fn state(container: &ContainerState, object: &Value, host: &Host, waits: &str) -> Value {
    let volume_error = || container.volume_error.as_deref().cloned();
    if let Some((reason, message)) = volume_error().or_else(|| container.pull.waiting()) {
        return value!({ "waiting": { "reason": reason, "message": message } });
    }
    if let Some(config_error) = &container.config_error {
        let (reason, message) = (&config_error.reason, &config_error.message);
        return value!({ "waiting": { "reason": reason, "message": message } });
    }
    match (&container.state, &container.back_off) {
        (_, Some(message)) => {
            value!({ "waiting": { "reason": "CrashLoopBackOff", "message": message } })
        }
        (Some(ContainerPhase::Running { since }), _) => {
            value!({ "running": { "startedAt": (to_value(*since)) } })
        }
        (Some(ContainerPhase::Ended(end)), _) => {
            let id = container.id(object, &host.scheme, container.n_starts);
            ended(end, object, id)
        }
        _ => value!({ "waiting": { "reason": waits } }),
    }
}

fn last_state(container: &ContainerState, object: &Value, host: &Host) -> Value {
    // While it waits to be restarted, the last state is that of the instance that has just ended.
    let waits = container.back_off.is_some()
        || container.pull.waiting().is_some()
        || container.volume_error.is_some()
        || container.config_error.is_some();
    let (end, life) = match container.end() {
        Some(end) if waits => (Some(end), container.n_starts),
        _ => (container.last.as_ref(), container.n_restarts()),
    };
    end.map_or_else(Value::object, |end| {
        ended(end, object, container.id(object, &host.scheme, life))
    })
}

/// Kubernetes: the containers of a pod share the room for their messages (status_manager.go,
/// `normalizeStatus`).
fn message<'a>(end: &'a Termination, object: &Value) -> &'a str {
    let n_containers = spec::containers(object).count().max(1);
    let mut most = (MAX_MESSAGES / n_containers).min(end.message.len());
    while !end.message.is_char_boundary(most) {
        most -= 1;
    }
    &end.message[..most]
}

fn ended(end: &Termination, object: &Value, id: String) -> Value {
    let mut terminated = value!({
        "exitCode": (end.code),
        "reason": (&end.reason),
        "startedAt": (end.started.map(to_value)),
        "finishedAt": (end.finished.map(to_value)),
    });
    if !end.message.is_empty() {
        terminated.set("message", message(end, object));
    }
    if end.finished.is_some() {
        terminated.set("containerID", id);
    }
    value!({ "terminated": terminated })
}

/// The image by a digest that is made up, but stable.
fn image_id(image: &str) -> String {
    if image.contains('@') {
        return image.into();
    }
    let colon = image.rfind(':').filter(|at| !image[*at..].contains('/'));
    let repository = &image[..colon.unwrap_or(image.len())];
    let digest = crate::digest(image);
    format!(
        "{repository}@sha256:{digest:016x}{:016x}{digest:016x}{:016x}",
        !digest,
        digest.rotate_left(32)
    )
}

/// Kubernetes: the mode that was resolved (kubelet_pods.go, `resolveRecursiveReadOnly`).
fn mount(mount: &Value, recursive_read_only: bool) -> Value {
    let mut status =
        value!({ "name": (mount["name"].clone()), "mountPath": (mount["mountPath"].clone()) });
    if mount["readOnly"].bool() {
        status.set("readOnly", true);
        let wanted = mount["recursiveReadOnly"].str();
        let is_on = recursive_read_only && matches!(wanted, "Enabled" | "IfPossible");
        status.set(
            "recursiveReadOnly",
            if is_on { "Enabled" } else { "Disabled" },
        );
    }
    status
}

/// The user of a container: that of its security context, root by default.
fn user(object: &Value, spec: &Value) -> Value {
    let (own, common) = (&spec["securityContext"], &object["spec"]["securityContext"]);
    let id = |name: &str| {
        own[name]
            .as_int()
            .or_else(|| common[name].as_int())
            .unwrap_or_default()
    };
    let group = id("runAsGroup");
    let mut groups: Vec<i64> = vec![group];
    groups.extend(common["fsGroup"].as_int());
    groups.extend(
        common["supplementalGroups"]
            .list()
            .iter()
            .filter_map(Value::as_int),
    );
    groups.sort_unstable();
    groups.dedup();
    let groups: Vec<Value> = groups.into_iter().map(Value::Int).collect();
    value!({ "linux": { "uid": (id("runAsUser")), "gid": group, "supplementalGroups": groups } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_recursively_read_only_where_the_runtime_can() {
        for (wanted, can, expected) in [
            ("IfPossible", true, "Enabled"),
            ("IfPossible", false, "Disabled"),
            ("Disabled", true, "Disabled"),
        ] {
            let asked = value!({ "name": "v", "readOnly": true, "recursiveReadOnly": wanted });
            let made = mount(&asked, can);
            assert_eq!(made["recursiveReadOnly"].str(), expected, "{wanted} {can}");
        }
    }
}
