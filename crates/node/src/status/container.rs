//! What does a pod's status say of one container?

use mizzen_value::{Value, value};

use super::Host;
use crate::moment::to_value;
use crate::pod::{Held, Pod, spec};
use crate::runtime::{End, Role, State};

/// The statuses of all containers of some roles; the order of init containers counts, others are sorted by name.
pub(super) fn statuses(pod: &Pod, object: &Value, host: &Host, roles: &[Role]) -> Value {
    let mut chosen: Vec<&Held> = pod
        .containers
        .iter()
        .filter(|held| roles.contains(&held.role))
        .collect();
    if !roles.contains(&Role::Init) {
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
            .map(|held| status(held, object, host, waits))
            .collect(),
    )
}

fn status(held: &Held, object: &Value, host: &Host, waits: &str) -> Value {
    let spec = spec::container(object, &held.name);
    // Kubernetes: the image is that of the container there is, until another one is made.
    let image = if held.n_starts > 0 {
        held.image.as_str()
    } else {
        spec["image"].str()
    };
    let mut status = value!({
        "name": (&held.name),
        "image": image,
        "imageID": "",
        "lastState": (last_state(held, object, host)),
        "ready": (held.is_ready(spec)),
        "restartCount": (held.n_restarts()),
        "started": (held.has_started(spec)),
        "state": (state(held, object, host, waits)),
    });
    let mounts: Vec<Value> = spec["volumeMounts"].list().iter().map(mount).collect();
    if !mounts.is_empty() {
        status.set("volumeMounts", mounts);
    }
    if !matches!(held.state, None | Some(State::Creating)) {
        tell_of_the_real(&mut status, held, object, spec, host);
    }
    status
}

/// What only a container that was made has.
fn tell_of_the_real(status: &mut Value, held: &Held, object: &Value, spec: &Value, host: &Host) {
    status.set("containerID", held.id(object, &host.scheme, held.n_starts));
    status.set("imageID", image_id(&held.image));
    let resources = &spec["resources"];
    status.set(
        "resources",
        if resources.is_null() {
            Value::object()
        } else {
            resources.clone()
        },
    );
    if !resources["requests"].is_empty() {
        status.set("allocatedResources", resources["requests"].clone());
    }
    status.set("user", user(object, spec));
}

fn state(held: &Held, object: &Value, host: &Host, waits: &str) -> Value {
    if let Some(pull) = &held.pull {
        let (reason, message) = pull.waiting(spec::container(object, &held.name)["image"].str());
        return value!({ "waiting": { "reason": reason, "message": message } });
    }
    if let Some(lack) = &held.lack {
        let message = &lack.message;
        return value!({ "waiting": { "reason": "CreateContainerConfigError", "message": message } });
    }
    match (&held.state, &held.back_off) {
        (_, Some(message)) => {
            value!({ "waiting": { "reason": "CrashLoopBackOff", "message": message } })
        }
        (Some(State::Running { since }), _) => {
            value!({ "running": { "startedAt": (to_value(*since)) } })
        }
        (Some(State::Ended(end)), _) => ended(end, held.id(object, &host.scheme, held.n_starts)),
        _ => value!({ "waiting": { "reason": waits } }),
    }
}

fn last_state(held: &Held, object: &Value, host: &Host) -> Value {
    // While it waits to be started again, the life that ended last is the one before.
    let waits = held.back_off.is_some() || held.pull.is_some() || held.lack.is_some();
    let (end, life) = match held.end() {
        Some(end) if waits => (Some(end), held.n_starts),
        _ => (held.last.as_ref(), held.n_restarts()),
    };
    end.map_or_else(Value::object, |end| {
        ended(end, held.id(object, &host.scheme, life))
    })
}

fn ended(end: &End, id: String) -> Value {
    let mut terminated = value!({
        "exitCode": (end.code),
        "reason": (&end.reason),
        "startedAt": (end.started.map(to_value)),
        "finishedAt": (end.finished.map(to_value)),
    });
    if !end.message.is_empty() {
        terminated.set("message", &end.message);
    }
    if end.finished.is_some() {
        terminated.set("containerID", id);
    }
    value!({ "terminated": terminated })
}

/// The image by its digest, which is made up but always the same.
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

fn mount(mount: &Value) -> Value {
    let mut status =
        value!({ "name": (mount["name"].clone()), "mountPath": (mount["mountPath"].clone()) });
    if mount["readOnly"].bool() {
        status.set("readOnly", true);
        let wanted = mount["recursiveReadOnly"].str();
        let is_on = matches!(wanted, "Enabled" | "IfPossible");
        status.set(
            "recursiveReadOnly",
            if is_on { "Enabled" } else { "Disabled" },
        );
    }
    status
}

/// As whom a container runs: what its specification says, root otherwise.
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
