//! Table cells of nodes, namespaces, configuration and events.

use mizzen_value::Value;

use super::text::{NONE, UNKNOWN, age, condition, given_or, only_age, since, text_or};
use super::{Cells, join_set, nothing, row};

pub(super) fn cells(kind: &str) -> Cells {
    match kind {
        "ComponentStatus" => |object, _| {
            let healthy = condition(&object["conditions"], "Healthy");
            let status = match healthy["status"].as_str() {
                None => "Unknown",
                Some("True") => "Healthy",
                Some(_) => "Unhealthy",
            };
            row![status, healthy["message"].str(), healthy["error"].str()]
        },
        "ConfigMap" => |object, now| {
            row![
                n_entries(&object["data"]) + n_entries(&object["binaryData"]),
                age(object, now)
            ]
        },
        "Event" => event,
        "Namespace" => |object, now| row![object["status"]["phase"].str(), age(object, now)],
        "Node" => node,
        "ResourceQuota" => |object, now| {
            let status = &object["status"];
            let mut names: Vec<_> = status["hard"].entries().map(|(name, _)| name).collect();
            names.sort_unstable();
            let (limits, requests): (Vec<_>, Vec<_>) = names
                .into_iter()
                .partition(|name| name.starts_with("limits."));
            let show = |names: Vec<&str>| {
                names
                    .into_iter()
                    .map(|name| {
                        let amount = |member: &str| given_or(&status[member][name], "0");
                        format!("{name}: {}/{}", amount("used"), amount("hard"))
                    })
                    .collect::<Vec<_>>()
                    .join(", ")
            };
            row![show(requests), show(limits), age(object, now)]
        },
        "Secret" => |object, now| {
            row![
                object["type"].str(),
                n_entries(&object["data"]),
                age(object, now)
            ]
        },
        "ServiceAccount" => only_age,
        _ => nothing,
    }
}

fn n_entries(map: &Value) -> i64 {
    map.entries().count() as i64
}

pub(super) fn lease(object: &Value, now: i64) -> Vec<Value> {
    row![object["spec"]["holderIdentity"].str(), age(object, now)]
}

fn node(object: &Value, now: i64) -> Vec<Value> {
    let info = &object["status"]["nodeInfo"];

    let kernel = text_or(&info["kernelVersion"], UNKNOWN);
    let node_kernel = match info["architecture"].str() {
        "" => kernel.into(),
        architecture => format!("{kernel} ({architecture})"),
    };

    let roles = object["metadata"]["labels"]
        .entries()
        .filter_map(|(label, value)| {
            let named = label.strip_prefix("node-role.kubernetes.io/");
            named.or((label == "kubernetes.io/role").then_some(value.str()))
        });
    let node_roles = match join_set(roles.filter(|role| !role.is_empty()).map(Into::into)) {
        roles if roles.is_empty() => NONE.into(),
        roles => roles,
    };

    // Of several conditions of one type the last counts.
    let ready = object["status"]["conditions"]
        .items()
        .rfind(|it| it["type"].str() == "Ready");
    let status = match ready.map(|ready| ready["status"].str()) {
        None => "Unknown",
        Some("True") => "Ready",
        Some(_) => "NotReady",
    };
    let cordoned = object["spec"]["unschedulable"].bool();
    let node_status = format!(
        "{status}{}",
        if cordoned { ",SchedulingDisabled" } else { "" }
    );
    row![
        node_status,
        node_roles,
        age(object, now),
        info["kubeletVersion"].str(),
        node_address(object, "InternalIP"),
        node_address(object, "ExternalIP"),
        text_or(&info["osImage"], UNKNOWN),
        node_kernel,
        text_or(&info["containerRuntimeVersion"], UNKNOWN),
    ]
}

fn node_address<'a>(node: &'a Value, of_type: &str) -> &'a str {
    let addresses = node["status"]["addresses"].list();
    addresses
        .iter()
        .find(|it| it["type"].str() == of_type)
        .map_or(NONE, |it| it["address"].str())
}

pub(super) fn event(object: &Value, now: i64) -> Vec<Value> {
    let target = &object["involvedObject"];
    let (first, last, count) = event_times(object, now);

    let kind = target["kind"].str().to_lowercase();
    let event_target = match target["name"].str() {
        "" => kind,
        name => format!("{kind}/{name}"),
    };

    let component = text_or(
        &object["source"]["component"],
        object["reportingComponent"].str(),
    );
    let event_source = match text_or(&object["source"]["host"], object["reportingInstance"].str()) {
        "" => component.into(),
        host => format!("{component}, {host}"),
    };
    row![
        last,
        object["type"].str(),
        object["reason"].str(),
        event_target,
        target["fieldPath"].str(),
        event_source,
        object["message"].str().trim(),
        first,
        count,
    ]
}

/// When an event was first and last seen, and how often: old writers and new ones say it in different fields.
fn event_times(event: &Value, now: i64) -> (String, String, i64) {
    let or = |time: &Value, other: String| {
        if time.is_null() {
            other
        } else {
            since(time, now)
        }
    };
    let first = or(&event["firstTimestamp"], since(&event["eventTime"], now));
    let (series, count) = (&event["series"], event["count"].int());
    if !series.is_null() {
        return (
            first,
            since(&series["lastObservedTime"], now),
            series["count"].int(),
        );
    }
    let last = or(&event["lastTimestamp"], first.clone());
    (first, last, if count == 0 { 1 } else { count })
}
