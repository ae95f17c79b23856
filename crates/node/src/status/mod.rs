//! What does the API say of a pod here? Its status as a kubelet writes it, as a patch of what there is.
//!
//! Invariant: a pure function of the pod, the object and the time; if the object says so already, nothing is written.

mod condition;
mod container;
mod phase;

use mizzen_kinds::amounts::Amounts;
use mizzen_kinds::pod_resources::{PodResourcesOptions, pod_limits, pod_requests};
use mizzen_value::quantity::Quantity;
use mizzen_value::{Map, Str, Value, value};

use crate::moment::{Moment, to_value};
use crate::pod::{Pod, Stage};
use crate::runtime::Role;

pub(crate) use phase::phase;

/// The node that a pod is on, as far as its status tells.
#[derive(Debug, Clone)]
pub(crate) struct Host {
    /// The node's address.
    pub address: Str,
    /// The first part of container ids: the runtime's name.
    pub scheme: Str,
}

/// The strategic merge patch that brings a pod's status up to date; none if it is.
pub(crate) fn patch(pod: &Pod, object: &Value, host: &Host, now: Moment) -> Option<Value> {
    let status = match &pod.verdict {
        Some(verdict) if verdict.rejected => {
            rejected(&verdict.reason, &verdict.message, object, now)
        }
        _ => status(pod, object, host, now),
    };
    if is_so(&status, &object["status"]) {
        return None;
    }
    Some(value!({ "metadata": { "uid": (object["metadata"]["uid"].clone()) }, "status": status }))
}

/// Sets what the status of `object` says of a pod's phase, addresses and containers; conditions stay as they are.
pub(crate) fn apply(pod: &Pod, object: &mut Value, host: &Host, now: Moment) {
    if pod.verdict.as_ref().is_some_and(|verdict| verdict.rejected) {
        return;
    }
    let status = status(pod, object, host, now);
    let present = object.entry("status");
    for (field, value) in status
        .entries()
        .filter(|(field, _)| !field.ends_with("conditions"))
    {
        present.set(field, value.clone());
    }
}

/// What a pod's status says of a container; null if it says nothing.
pub(crate) fn of_container<'a>(pod: &'a Value, name: &str) -> &'a Value {
    static NONE: Value = Value::Null;
    let lists = [
        "containerStatuses",
        "initContainerStatuses",
        "ephemeralContainerStatuses",
    ];
    let mut statuses = lists.iter().flat_map(|list| pod["status"][*list].list());
    statuses
        .find(|status| status["name"].str() == name)
        .unwrap_or(&NONE)
}

fn status(pod: &Pod, object: &Value, host: &Host, now: Moment) -> Value {
    let phase = phase(pod, object);
    let conditions = condition::conditions(pod, object, phase, now);
    let order: Vec<Value> = conditions
        .iter()
        .map(|condition| value!({ "type": (condition["type"].clone()) }))
        .collect();
    let mut status = value!({
        "observedGeneration": (object["metadata"]["generation"].clone()),
        "phase": phase,
        "conditions": conditions,
        "$setElementOrder/conditions": order,
        "hostIP": (&host.address),
        "hostIPs": [{ "ip": (&host.address) }],
        "containerStatuses": (container::statuses(pod, object, host, &[Role::Regular])),
    });
    let since = &object["status"]["startTime"];
    status.set(
        "startTime",
        if since.is_null() {
            to_value(pod.began)
        } else {
            since.clone()
        },
    );
    let lists: [(&str, &[Role]); 2] = [
        ("initContainerStatuses", &[Role::Init, Role::Sidecar]),
        ("ephemeralContainerStatuses", &[Role::Ephemeral]),
    ];
    for (field, roles) in lists {
        if pod.containers.iter().any(|held| roles.contains(&held.role)) {
            status.set(field, container::statuses(pod, object, host, roles));
        }
    }
    set_reason(&mut status, pod, object, phase);
    set_address(&mut status, pod, object, host);
    set_resources(&mut status, object);
    status
}

/// A pod that fails as a whole says why; what was said of another phase goes.
fn set_reason(status: &mut Value, pod: &Pod, object: &Value, phase: &str) {
    if let Some(verdict) = pod
        .verdict
        .as_ref()
        .filter(|_| pod.stage == Stage::Finished)
    {
        status.set("reason", &verdict.reason);
        status.set("message", &verdict.message);
    } else if object["status"]["phase"].str() != phase {
        for field in ["reason", "message"] {
            if !object["status"][field].is_null() {
                status.set(field, Value::Null);
            }
        }
    }
}

fn set_address(status: &mut Value, pod: &Pod, object: &Value, host: &Host) {
    let known = object["status"]["podIP"].str();
    let address = match object["spec"]["hostNetwork"].bool() {
        true => &host.address,
        false => &pod.address,
    };
    let is_there = object["spec"]["hostNetwork"].bool() || condition::has_sandbox(pod);
    if known.is_empty() && !address.is_empty() && is_there {
        status.set("podIP", address);
        status.set("podIPs", vec![value!({ "ip": address })]);
    }
}

fn set_resources(status: &mut Value, object: &Value) {
    let options = PodResourcesOptions::default();
    let (requests, limits) = (pod_requests(object, &options), pod_limits(object, &options));
    let to_value = |amounts: &Amounts| {
        let shown = |(name, amount): (&String, &Quantity)| (Str::from(name), amount.to_string());
        Value::Map(amounts.iter().map(shown).collect::<Map>())
    };
    let mut whole = Value::object();
    if !limits.is_empty() {
        whole.set("limits", to_value(&limits));
    }
    if !requests.is_empty() {
        whole.set("requests", to_value(&requests));
        status.set("allocatedResources", to_value(&requests));
    }
    status.set("resources", whole);
}

/// A pod that never came to life here has no containers and none of the kubelet's conditions.
fn rejected(reason: &str, message: &str, object: &Value, now: Moment) -> Value {
    let since = &object["status"]["startTime"];
    let mut status = value!({
        "observedGeneration": (object["metadata"]["generation"].clone()),
        "phase": "Failed",
        "reason": reason,
        "message": message,
        "startTime": (if since.is_null() { to_value(now) } else { since.clone() }),
    });
    if object["status"]["phase"].str() != "Failed" {
        status.set("conditions", Value::Null);
    }
    status
}

/// Whether an object says already what a patch would make it say.
fn is_so(wanted: &Value, present: &Value) -> bool {
    wanted
        .entries()
        .filter(|(field, _)| !field.starts_with('$'))
        .all(|(field, value)| match field {
            "conditions" => value.list().iter().all(|condition| {
                let mut known = present["conditions"].list().iter();
                known.any(|other| other["type"] == condition["type"] && has(condition, other))
            }),
            _ => same(value, &present[field]),
        })
}

/// Whether `other` has all that `wanted` names.
fn has(wanted: &Value, other: &Value) -> bool {
    wanted
        .entries()
        .all(|(field, value)| same(value, &other[field]))
}

/// Whether two values are the same to Go, which does not tell what is empty from what is missing.
fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Map(_), Value::Map(_)) => {
            let covers = |one: &Value, other: &Value| {
                one.entries().all(|(key, value)| same(value, &other[key]))
            };
            covers(one, other) && covers(other, one)
        }
        (Value::List(one), Value::List(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        _ => one == other || one.is_empty() && other.is_empty(),
    }
}
