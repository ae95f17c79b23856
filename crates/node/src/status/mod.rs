//! The pod status that a kubelet writes, as a patch.
//!
//! Invariant: a pure function of the pod, the object and the time. If the object is up to date,
//! there is no patch.

mod condition;
mod container;
mod phase;

use std::borrow::Cow;

use mizzen_component_helpers::amounts::Amounts;
use mizzen_component_helpers::pod_resources::{PodResourcesOptions, pod_limits, pod_requests};
use mizzen_value::quantity::Quantity;
use mizzen_value::{Map, Str, Value, value};

use crate::moment::{Moment, to_value};
use crate::pod::{PodAddresses, PodStage, PodState};
use crate::runtime::ContainerRole;

pub(crate) use phase::phase;

/// The node of a pod, as its status has it.
#[derive(Debug, Clone)]
pub(crate) struct Host {
    pub address: Str,
    /// The scheme of container IDs: the runtime's name.
    pub scheme: Str,
    /// Whether all mounts below a read-only one can be read-only.
    pub recursive_read_only: bool,
}

/// The strategic merge patch that brings a pod's status up to date; `None` if it is.
pub(crate) fn patch(pod: &PodState, object: &Value, host: &Host, now: Moment) -> Option<Value> {
    let mut status = match &pod.failure {
        Some(failure) if failure.rejected => {
            rejected(&failure.reason, &failure.message, object, now)
        }
        _ => status(pod, object, host, now),
    };
    if is_up_to_date(&status, &object["status"]) {
        return None;
    }
    delete_old_addresses(&mut status, object);
    Some(value!({ "metadata": { "uid": (object["metadata"]["uid"].clone()) }, "status": status }))
}

/// Sets phase, addresses and container statuses of `object`; conditions stay as they are.
pub(crate) fn apply(pod: &PodState, object: &mut Value, host: &Host, now: Moment) {
    if pod.failure.as_ref().is_some_and(|failure| failure.rejected) {
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

/// The status of a container; null if there is none.
pub(crate) fn container_status<'a>(pod: &'a Value, name: &str) -> &'a Value {
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

fn status(pod: &PodState, object: &Value, host: &Host, now: Moment) -> Value {
    let phase = phase(pod, object);
    let mut conditions = condition::conditions(pod, object, phase, now);
    let order: Vec<Value> = conditions
        .iter()
        .map(|condition| value!({ "type": (condition["type"].clone()) }))
        .collect();
    conditions.extend(condition::ended_resizes(pod, object));
    let mut status = value!({
        "observedGeneration": (object["metadata"]["generation"].clone()),
        "phase": phase,
        "conditions": conditions,
        "$setElementOrder/conditions": order,
        "hostIP": (&host.address),
        "hostIPs": [{ "ip": (&host.address) }],
        "containerStatuses": (container::statuses(pod, object, host, &[ContainerRole::Regular])),
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
    let lists: [(&str, &[ContainerRole]); 2] = [
        (
            "initContainerStatuses",
            &[ContainerRole::Init, ContainerRole::Sidecar],
        ),
        ("ephemeralContainerStatuses", &[ContainerRole::Ephemeral]),
    ];
    for (field, roles) in lists {
        if pod
            .containers
            .iter()
            .any(|container| roles.contains(&container.role))
        {
            status.set(field, container::statuses(pod, object, host, roles));
        }
    }
    set_reason(&mut status, pod, object, phase);
    set_address(&mut status, pod, object, host);
    set_resources(&mut status, pod, object);
    status
}

/// The reason of a failed pod; that of an earlier phase is removed.
fn set_reason(status: &mut Value, pod: &PodState, object: &Value, phase: &str) {
    if let Some(failure) = pod
        .failure
        .as_ref()
        .filter(|_| pod.stage == PodStage::Finished)
    {
        status.set("reason", &failure.reason);
        status.set("message", &failure.message);
    } else if object["status"]["phase"].str() != phase {
        for field in ["reason", "message"] {
            if !object["status"][field].is_null() {
                status.set(field, Value::Null);
            }
        }
    }
}

/// The address, if the API does not have it. Kubernetes: that of a new sandbox replaces the old one;
/// on the host network it stays as it was first set (kubelet_pods.go).
fn set_address(status: &mut Value, pod: &PodState, object: &Value, host: &Host) {
    let known = object["status"]["podIPs"].list().iter();
    let mut known = known.map(|it| it["ip"].str()).peekable();
    let has_none = known.peek().is_none();
    let is_new = match (object["spec"]["hostNetwork"].bool(), pod.has_sandbox) {
        (true, _) => has_none,
        (false, None) => has_none && condition::has_sandbox(pod),
        (false, Some(has_sandbox)) => {
            has_sandbox && !known.eq(pod.addresses.all().map(Str::as_str))
        }
    };
    let of_host = PodAddresses::from(host.address.clone());
    let addresses = match object["spec"]["hostNetwork"].bool() {
        true => &of_host,
        false => &pod.addresses,
    };
    if is_new && !addresses.first.is_empty() {
        status.set("podIP", &addresses.first);
        let all = addresses.all().map(|ip| value!({ "ip": ip }));
        status.set("podIPs", all.collect::<Vec<Value>>());
    }
}

/// Lists are merged by address: without this the old ones would stay.
fn delete_old_addresses(status: &mut Value, object: &Value) {
    if status["podIPs"].is_null() {
        return;
    }
    let new = status["podIPs"].list();
    let old = object["status"]["podIPs"].list().iter();
    let old = old.filter(|known| new.iter().all(|new| new["ip"] != known["ip"]));
    let deleted = old.map(|known| value!({ "ip": (known["ip"].clone()), "$patch": "delete" }));
    let all: Vec<Value> = new.iter().cloned().chain(deleted).collect();
    status.set("podIPs", all);
}

/// The resources that the pod has, and those that it requests by what is allocated to it.
fn set_resources(status: &mut Value, pod: &PodState, object: &Value) {
    let options = PodResourcesOptions::default();
    let actual = match pod.resize {
        Some(_) => Cow::Owned(pod.with_actual_resources(object)),
        None => Cow::Borrowed(object),
    };
    let (requests, limits) = (
        pod_requests(&actual, &options),
        pod_limits(&actual, &options),
    );
    let allocated: Amounts = pod_requests(object, &options);
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
    }
    if !allocated.is_empty() {
        status.set("allocatedResources", to_value(&allocated));
    }
    status.set("resources", whole);
}

/// The status of a rejected pod has no containers and none of the kubelet's conditions.
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

/// Whether an object has all that a patch would set.
fn is_up_to_date(wanted: &Value, present: &Value) -> bool {
    let has = |wanted: &Value, other: &Value| {
        let mut fields = wanted.entries();
        fields.all(|(field, value)| same(value, &other[field]))
    };
    wanted
        .entries()
        .filter(|(field, _)| !field.starts_with('$'))
        .all(|(field, value)| match field {
            "conditions" => value.list().iter().all(|condition| {
                let mut known = present["conditions"].list().iter();
                if !condition["$patch"].is_null() {
                    return known.all(|other| other["type"] != condition["type"]);
                }
                known.any(|other| other["type"] == condition["type"] && has(condition, other))
            }),
            _ => same(value, &present[field]),
        })
}

/// Whether two values are equal to Go, which treats empty and missing alike.
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
