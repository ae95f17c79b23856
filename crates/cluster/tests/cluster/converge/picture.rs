//! The state of a cluster that must not depend on chance.

use mizzen_sdk::api::Api;
use mizzen_sdk::resource::{
    CONFIG_MAPS, CONTROLLER_REVISIONS, CRON_JOBS, DAEMON_SETS, DEPLOYMENTS, ENDPOINT_SLICES,
    HORIZONTAL_POD_AUTOSCALERS, JOBS, NAMESPACES, NODES, PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES, POD_DISRUPTION_BUDGETS, PODS, REPLICA_SETS, RESOURCE_QUOTAS,
    SERVICE_ACCOUNTS, SERVICES, STATEFUL_SETS,
};
use mizzen_sdk::{Object, Resource};
use mizzen_value::Value;

const KINDS: [Resource; 19] = [
    NAMESPACES,
    NODES,
    SERVICE_ACCOUNTS,
    CONFIG_MAPS,
    SERVICES,
    RESOURCE_QUOTAS,
    DEPLOYMENTS,
    REPLICA_SETS,
    STATEFUL_SETS,
    DAEMON_SETS,
    CONTROLLER_REVISIONS,
    CRON_JOBS,
    JOBS,
    HORIZONTAL_POD_AUTOSCALERS,
    PERSISTENT_VOLUMES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    ENDPOINT_SLICES,
    POD_DISRUPTION_BUDGETS,
];

/// A line per object, in order.
pub(super) async fn draw(api: &Api) -> String {
    let mut lines = Vec::new();
    for kind in &KINDS {
        let objects = api.list(kind, "", &Default::default()).await.unwrap();
        let mut drawn: Vec<String> = objects.iter().map(|object| line(kind, object)).collect();
        drawn.sort();
        // The number of attempts of a job, and of orphaned pods, depends on chance.
        let is_luck = |line: &str| {
            line.starts_with("Pod ") && (line.contains(" Succeeded ") || !line.contains(" of "))
        };
        drawn.dedup_by(|one, other| one == other && is_luck(one));
        lines.extend(drawn);
    }
    lines.join("\n") + "\n"
}

fn line(kind: &Resource, object: &Object) -> String {
    let what = match &*kind.kind {
        "Pod" => pod(object),
        "EndpointSlice" => endpoints(object),
        "PersistentVolume" | "PersistentVolumeClaim" => object["status"]["phase"].str().into(),
        "Namespace" | "Node" | "ServiceAccount" | "ConfigMap" | "Service"
        | "ControllerRevision" => String::new(),
        _ => format!("{} {}", numbers(&object["status"]), conditions(object)),
    };
    let going = if object.is_terminating() {
        " going"
    } else {
        ""
    };
    let owner = object
        .controller()
        .map(|owner| format!(" of {}", owner["name"].str()))
        .unwrap_or_default();
    format!(
        "{} {}/{}{owner}{going} {what}",
        kind.kind,
        object.namespace(),
        name(object)
    )
    .trim_end()
    .into()
}

/// Generated names have a random suffix; names of pods of a job are not compared.
fn name(object: &Object) -> String {
    match object["metadata"]["generateName"].str() {
        "" => object.name().into(),
        prefix => format!("{prefix}*"),
    }
}

fn pod(pod: &Object) -> String {
    let image = pod["spec"]["containers"][0]["image"].str();
    let finalizers = pod["metadata"]["finalizers"].list().len();
    let ready = if is_ready(pod) { " ready" } else { "" };
    format!(
        "{image} {}{ready} finalizers={finalizers}",
        pod["status"]["phase"].str()
    )
}

/// Whether a pod is ready.
pub(super) fn is_ready(pod: &Object) -> bool {
    let conditions = pod["status"]["conditions"].list();
    conditions
        .iter()
        .any(|one| one["type"].str() == "Ready" && one["status"].str() == "True")
}

fn endpoints(slice: &Object) -> String {
    let ready = |one: &&Value| one["conditions"]["ready"].bool();
    format!(
        "{} ready",
        slice["endpoints"].list().iter().filter(ready).count()
    )
}

/// The numbers in a status.
fn numbers(status: &Value) -> String {
    let mut numbers: Vec<String> = Vec::new();
    for (field, value) in status.entries() {
        match value {
            Value::Int(number) if field != "observedGeneration" => {
                numbers.push(format!("{field}={number}"))
            }
            Value::Map(map) if field == "used" => {
                numbers.extend(
                    map.iter()
                        .map(|(name, amount)| format!("{name}={}", amount.str())),
                );
            }
            Value::String(text) if field.ends_with("Indexes") => {
                numbers.push(format!("{field}={text}"))
            }
            _ => {}
        }
    }
    numbers.sort();
    numbers.join(" ")
}

fn conditions(object: &Object) -> String {
    let mut all: Vec<String> = object["status"]["conditions"]
        .list()
        .iter()
        .map(|one| {
            format!(
                "{}={}/{}",
                one["type"].str(),
                one["status"].str(),
                one["reason"].str()
            )
        })
        .collect();
    all.sort();
    all.join(" ")
}
