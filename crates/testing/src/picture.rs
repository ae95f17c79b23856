//! The state of a cluster that must not depend on chance: a line per object.
//!
//! Random and temporal parts are left out: UIDs, versions, addresses, timestamps, and the suffixes of generated names.

use std::collections::HashSet;

use mizzen_sdk::Object;
use mizzen_value::{Value, json, time};

use crate::Cluster;

/// Kinds whose objects come and go by chance.
const IGNORED: [&str; 5] = [
    "Event",
    "Lease",
    "IPAddress",
    "Endpoints",
    "ComponentStatus",
];
/// Built-in kinds of which only the name counts.
const NAME_ONLY: [&str; 7] = [
    "Namespace",
    "Node",
    "ServiceAccount",
    "Service",
    "ControllerRevision",
    "CSINode",
    "CustomResourceDefinition",
];

/// A kind that is listed.
struct ListedKind {
    kind: String,
    path: String,
    is_custom: bool,
}

/// The UIDs of all objects.
pub(crate) async fn uids(cluster: &Cluster) -> HashSet<String> {
    let mut uids = HashSet::new();
    for kind in kinds(cluster).await {
        let objects = list(cluster, &kind.path).await;
        uids.extend(objects.iter().map(|object| object.uid().to_owned()));
    }
    uids
}

/// A line per object, in order, without those of `known`.
pub(crate) async fn draw(cluster: &Cluster, known: &HashSet<String>) -> String {
    let mut lines = Vec::new();
    for kind in kinds(cluster).await {
        let mut objects = list(cluster, &kind.path).await;
        objects.retain(|object| !known.contains(object.uid()));
        let mut drawn: Vec<(String, bool)> = objects
            .iter()
            .map(|object| (line(&kind, object), is_luck(&kind, object)))
            .collect();
        drawn.sort();
        drawn.dedup_by(|(one, luck), (other, _)| *luck && one == other);
        let drawn = drawn.into_iter().map(|(line, _)| line);
        lines.extend(drawn);
    }
    lines.join("\n") + "\n"
}

/// Whether the number of such objects depends on chance: attempts of a Job, and pods without an owner.
fn is_luck(kind: &ListedKind, object: &Object) -> bool {
    if kind.kind != "Pod" {
        return false;
    }
    let is_job = |owner: &Value| owner["kind"].str() == "Job";
    object
        .controller()
        .is_none_or(|owner| is_job(owner) && object["status"]["phase"].str() == "Succeeded")
}

async fn list(cluster: &Cluster, path: &str) -> Vec<Object> {
    let (_, list) = cluster.server().ask("GET", path, None).await;
    list["items"].list().iter().cloned().map(Object).collect()
}

/// The kinds that are stored, in the version of the store.
async fn kinds(cluster: &Cluster) -> Vec<ListedKind> {
    let built_in = mizzen_kinds::catalog().kinds;
    let mut kinds: Vec<ListedKind> = built_in
        .iter()
        .filter(|kind| kind.stored.is_none() && kind.verbs.iter().any(|verb| verb == "list"))
        .filter(|kind| !IGNORED.contains(&kind.gvk.kind.as_str()))
        .map(|kind| ListedKind {
            kind: kind.gvk.kind.to_string(),
            path: path(&kind.gvk.group, &kind.gvk.version, &kind.plural),
            is_custom: false,
        })
        .collect();
    let definitions = path("apiextensions.k8s.io", "v1", "customresourcedefinitions");
    for definition in list(cluster, &definitions).await {
        let spec = &definition["spec"];
        let mut versions = spec["versions"].list().iter();
        let Some(stored) = versions.find(|version| version["storage"].bool()) else {
            continue;
        };
        kinds.push(ListedKind {
            kind: spec["names"]["kind"].str().into(),
            path: path(
                spec["group"].str(),
                stored["name"].str(),
                spec["names"]["plural"].str(),
            ),
            is_custom: true,
        });
    }
    kinds
}

fn path(group: &str, version: &str, plural: &str) -> String {
    match group {
        "" => format!("/api/{version}/{plural}"),
        group => format!("/apis/{group}/{version}/{plural}"),
    }
}

fn line(kind: &ListedKind, object: &Object) -> String {
    let what = match &*kind.kind {
        _ if kind.is_custom => format!(
            "{} {}",
            scrubbed(&object["spec"]),
            scrubbed(&object["status"])
        ),
        "Pod" => pod(object),
        "EndpointSlice" => endpoints(object),
        "PersistentVolume" | "PersistentVolumeClaim" => object["status"]["phase"].str().into(),
        "ConfigMap" => {
            let annotations = &object["metadata"]["annotations"];
            format!("{} {}", scrubbed(&object["data"]), scrubbed(annotations))
        }
        name if NAME_ONLY.contains(&name) => String::new(),
        _ => {
            let wanted = match &object["spec"]["replicas"] {
                Value::Int(n) => format!("spec.replicas={n} "),
                _ => String::new(),
            };
            let numbers = numbers(&object["status"]);
            format!("{wanted}{numbers} {}", conditions(object))
        }
    };
    let going = if object.is_terminating() {
        " terminating"
    } else {
        ""
    };
    let owner = object
        .controller()
        .map(|owner| format!(" of {}", owner["name"].str()))
        .unwrap_or_default();
    let (kind, namespace, name) = (&kind.kind, object.namespace(), name(object));
    format!("{kind} {namespace}/{name}{owner}{going} {what}")
        .trim_end()
        .into()
}

/// Generated names have a random suffix.
fn name(object: &Object) -> String {
    match object["metadata"]["generateName"].str() {
        "" => object.name().into(),
        prefix => format!("{prefix}*"),
    }
}

fn pod(pod: &Object) -> String {
    let image = pod["spec"]["containers"][0]["image"].str();
    let finalizers = pod["metadata"]["finalizers"].list().len();
    let mut conditions = pod["status"]["conditions"].list().iter();
    let is_ready =
        conditions.any(|one| one["type"].str() == "Ready" && one["status"].str() == "True");
    let ready = if is_ready { " ready" } else { "" };
    let phase = pod["status"]["phase"].str();
    format!("{image} {phase}{ready} finalizers={finalizers}")
}

fn endpoints(slice: &Object) -> String {
    let ready = |one: &&Value| one["conditions"]["ready"].bool();
    let n_ready = slice["endpoints"].list().iter().filter(ready).count();
    format!("{n_ready} ready")
}

/// The numbers in a status.
fn numbers(status: &Value) -> String {
    let mut numbers: Vec<String> = Vec::new();
    for (field, value) in status.entries() {
        match value {
            Value::Int(number) if field != "observedGeneration" => {
                numbers.push(format!("{field}={number}"));
            }
            Value::Map(map) if field == "used" => {
                let used = map.iter();
                numbers.extend(used.map(|(name, amount)| format!("{name}={}", amount.str())));
            }
            Value::String(text) if field.ends_with("Indexes") => {
                numbers.push(format!("{field}={text}"));
            }
            _ => {}
        }
    }
    numbers.sort();
    numbers.join(" ")
}

fn conditions(object: &Object) -> String {
    let all = object["status"]["conditions"].list().iter();
    let mut all: Vec<String> = all
        .map(|one| {
            let (kind, status) = (one["type"].str(), one["status"].str());
            format!("{kind}={status}/{}", one["reason"].str())
        })
        .collect();
    all.sort();
    all.join(" ")
}

/// A part of an object without timestamps, UIDs and generations.
fn scrubbed(value: &Value) -> String {
    json::to_string(&scrub(value))
}

/// Whether a text is a UUID.
fn is_uid(text: &str) -> bool {
    let is_hex = |part: &str| part.bytes().all(|byte| byte.is_ascii_hexdigit());
    let parts = text.split('-');
    let lengths = parts.clone().map(str::len);
    lengths.eq([8, 4, 4, 4, 12]) && parts.clone().all(is_hex)
}

fn scrub(value: &Value) -> Value {
    match value {
        Value::Map(map) => {
            let mut clean = Value::object();
            for (field, value) in map
                .iter()
                .filter(|(field, _)| *field != "observedGeneration")
            {
                clean.set(field, scrub(value));
            }
            clean
        }
        Value::List(items) => items.iter().map(scrub).collect::<Vec<_>>().into(),
        Value::String(text) if time::to_unix(text).is_some() => "(time)".into(),
        Value::String(text) if is_uid(text) => "(uid)".into(),
        value => value.clone(),
    }
}
