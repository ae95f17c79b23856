//! What pods get from the cluster: their priority, and how long they stay on a node that is lost.

use mizzen_object::{Status, Value, value};
use mizzen_registry::{Key, ListOptions, Resource};

use super::Write;

/// How long a pod stays on a node that is not ready or not reachable, in seconds.
const TOLERATED: i64 = 300;

pub(super) fn admit(write: &Write, pod: &mut Value) -> Result<(), Status> {
    match write.old {
        Some(old) => keep_priority(pod, old),
        None => set_priority(write, pod)?,
    }
    tolerate(pod);
    Ok(())
}

/// A pod's priority is decided once.
fn keep_priority(pod: &mut Value, old: &Value) {
    for field in ["priority", "preemptionPolicy"] {
        if pod["spec"][field].is_null() && !old["spec"][field].is_null() {
            pod.entry("spec").set(field, old["spec"][field].clone());
        }
    }
}

fn set_priority(write: &Write, pod: &mut Value) -> Result<(), Status> {
    let server = write.call.server;
    let classes = server
        .catalog
        .get("scheduling.k8s.io", "v1", "priorityclasses")
        .ok_or_else(Status::no_such_resource)?;
    let refuse = |pod: &Value, why: String| {
        Status::forbidden(&write.call.resource.kind().resource(), pod["metadata"]["name"].str(), &why)
    };
    let named = pod["spec"]["priorityClassName"].str();
    let class = match named {
        "" => default_class(write, &classes)?,
        name => match server.registry.get(&classes, &Key::new("", name), "") {
            Ok(class) => Some(class.value()),
            Err(_) => return Err(refuse(pod, format!("no PriorityClass with name {name} was found"))),
        },
    };
    let class = class.unwrap_or_default();
    let (priority, name) = (class["value"].int(), class["metadata"]["name"].clone());
    let policy = class["preemptionPolicy"].as_str().unwrap_or("PreemptLowerPriority").to_string();
    if let Some(given) = pod["spec"]["priority"].as_int().filter(|given| *given != priority) {
        return Err(refuse(
            pod,
            format!(
                "the integer value of priority ({given}) must not be provided in pod spec; priority admission \
                 controller computed {priority} from the given PriorityClass name"
            ),
        ));
    }
    if let Some(given) = pod["spec"]["preemptionPolicy"].as_str().filter(|given| *given != policy) {
        return Err(refuse(
            pod,
            format!(
                "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission \
                 controller computed {policy} from the given PriorityClass name"
            ),
        ));
    }
    let spec = pod.entry("spec");
    if !name.is_null() {
        spec.set("priorityClassName", name);
    }
    spec.set("priority", priority);
    spec.set("preemptionPolicy", policy);
    Ok(())
}

/// The class of pods that name none: of those that want to be it, the one with the lowest priority.
fn default_class(write: &Write, classes: &Resource) -> Result<Option<Value>, Status> {
    let all = write.call.server.registry.list(classes, &ListOptions::default())?;
    let wanting = all.items.iter().map(|class| class.value()).filter(|class| class["globalDefault"].bool());
    Ok(wanting.min_by_key(|class| class["value"].int()))
}

fn tolerate(pod: &mut Value) {
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerated = pod["spec"]["tolerations"].list().iter().any(|toleration| {
            let (name, effect) = (toleration["key"].str(), toleration["effect"].str());
            (name.is_empty() || name == key) && (effect.is_empty() || effect == "NoExecute")
        });
        if !tolerated {
            let toleration = value!({
                "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": TOLERATED
            });
            pod.entry("spec").entry("tolerations").make_list().push(toleration);
        }
    }
}
