//! Table cells of workloads, autoscalers and disruption budgets.

use mizzen_object::owner_references::controller_of;
use mizzen_object::select::selector_text;
use mizzen_value::{Value, time};

use super::text::{NONE, UNKNOWN, UNSET, age, cut_short, given_or, int_or_text, is_true};
use super::text::{join_member, labels, selector, since};
use super::{Cells, row};

pub(super) fn apps(kind: &str) -> Cells {
    match kind {
        "DaemonSet" => |object, now| {
            let (spec, status) = (&object["spec"], &object["status"]);
            let template = &spec["template"];
            row![
                status["updatedNumberScheduled"].int(),
                status["numberAvailable"].int(),
                labels(&template["spec"]["nodeSelector"]),
                age(object, now),
                names(template),
                images(template),
                selector(&spec["selector"]),
            ]
        },
        "Deployment" => |object, now| {
            let (spec, status) = (&object["spec"], &object["status"]);
            row![
                ready_of(object),
                status["updatedReplicas"].int(),
                status["availableReplicas"].int(),
                age(object, now),
                names(&spec["template"]),
                images(&spec["template"]),
                selector_text(&spec["selector"]),
            ]
        },
        "ReplicaSet" => |object, now| replicas(object, now, selector(&object["spec"]["selector"])),
        "StatefulSet" => |object, now| {
            let template = &object["spec"]["template"];
            row![
                ready_of(object),
                age(object, now),
                names(template),
                images(template)
            ]
        },
        _ => |object, now| {
            let controller = controller_of(object);
            row![
                controller.map_or(NONE.into(), |owner| {
                    let kind = match owner["apiVersion"].str().split_once('/') {
                        Some((group, _)) => format!("{}.{group}", owner["kind"].str()),
                        None => owner["kind"].str().into(),
                    };
                    format!("{}/{}", kind.to_lowercase(), owner["name"].str())
                }),
                age(object, now)
            ]
        },
    }
}

pub(super) fn batch(kind: &str) -> Cells {
    if kind == "Job" {
        job
    } else {
        |object, now| {
            let (spec, status) = (&object["spec"], &object["status"]);
            let job = &spec["jobTemplate"]["spec"];
            let last = &status["lastScheduleTime"];

            let capitalised = match spec["suspend"].as_bool() {
                Some(true) => "True",
                Some(false) => "False",
                None => UNSET,
            };
            row![
                given_or(&spec["timeZone"], NONE),
                capitalised,
                status["active"].list().len() as i64,
                if last.is_null() {
                    NONE.into()
                } else {
                    since(last, now)
                },
                age(object, now),
                names(&job["template"]),
                images(&job["template"]),
                selector(&job["selector"]),
            ]
        }
    }
}

pub(super) fn pod_template(object: &Value, _: i64) -> Vec<Value> {
    let template = &object["template"];
    row![
        names(template),
        images(template),
        labels(&template["metadata"]["labels"])
    ]
}

fn names(template: &Value) -> String {
    join_member(&template["spec"]["containers"], "name")
}

fn images(template: &Value) -> String {
    join_member(&template["spec"]["containers"], "image")
}

pub(super) fn replication_controller(object: &Value, now: i64) -> Vec<Value> {
    replicas(object, now, labels(&object["spec"]["selector"]))
}

fn replicas(object: &Value, now: i64, selector: String) -> Vec<Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let template = &spec["template"];
    row![
        spec["replicas"].int(),
        status["readyReplicas"].int(),
        age(object, now),
        names(template),
        images(template),
        selector,
    ]
}

fn ready_of(object: &Value) -> String {
    format!(
        "{}/{}",
        object["status"]["readyReplicas"].int(),
        object["spec"]["replicas"].int()
    )
}

fn job(object: &Value, now: i64) -> Vec<Value> {
    let spec = &object["spec"];

    let has = |of_type| is_true(&object["status"]["conditions"], of_type);
    let job_status = match () {
        _ if has("Complete") => "Complete",
        _ if has("Failed") => "Failed",
        _ if !object["metadata"]["deletionTimestamp"].is_null() => "Terminating",
        _ if has("Suspended") => "Suspended",
        _ if has("FailureTarget") => "FailureTarget",
        _ if has("SuccessCriteriaMet") => "SuccessCriteriaMet",
        _ => "Running",
    };
    let status = &object["status"];
    let duration = time::to_unix(status["startTime"].str()).map_or(String::new(), |start| {
        let end = time::to_unix(status["completionTime"].str()).unwrap_or(now);
        time::age(end - start)
    });
    row![
        job_status,
        completions(object),
        duration,
        age(object, now),
        names(&spec["template"]),
        images(&spec["template"]),
        selector(&spec["selector"]),
    ]
}

fn completions(job: &Value) -> String {
    let succeeded = job["status"]["succeeded"].int();
    match (
        job["spec"]["completions"].as_int(),
        job["spec"]["parallelism"].int(),
    ) {
        (Some(completions), _) => format!("{succeeded}/{completions}"),
        (None, parallelism) if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        _ => format!("{succeeded}/1"),
    }
}

pub(super) fn disruption_budget(object: &Value, now: i64) -> Vec<Value> {
    let bound = |field| match &object["spec"][field] {
        Value::Null => "N/A".into(),
        bound => int_or_text(bound),
    };
    row![
        bound("minAvailable"),
        bound("maxUnavailable"),
        age(object, now)
    ]
}

pub(super) fn autoscaler(object: &Value, now: i64) -> Vec<Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let target = &spec["scaleTargetRef"];
    let least = spec["minReplicas"].as_int();
    row![
        format!("{}/{}", target["kind"].str(), target["name"].str()),
        metrics(&spec["metrics"], &status["currentMetrics"]),
        least.map_or(UNSET.into(), |least| least.to_string()),
        status["currentReplicas"].int(),
        age(object, now),
    ]
}

fn metrics(wanted: &Value, current: &Value) -> String {
    let metrics: Vec<_> = wanted
        .items()
        .enumerate()
        .map(|(index, wanted)| {
            let current = &current[index];
            match wanted["type"].str() {
                "External" => value_metric(&wanted["external"], &current["external"]),
                "Object" => value_metric(&wanted["object"], &current["object"]),
                "Pods" => {
                    let (wanted, current) = (&wanted["pods"]["target"], &current["pods"]);
                    format!(
                        "{}/{}",
                        known(current, "averageValue"),
                        quantity(&wanted["averageValue"])
                    )
                }
                "Resource" => resource_metric(&wanted["resource"], &current["resource"]),
                "ContainerResource" => {
                    resource_metric(&wanted["containerResource"], &current["containerResource"])
                }
                _ => "<unknown type>".into(),
            }
        })
        .collect();
    if metrics.is_empty() {
        NONE.into()
    } else {
        cut_short(&metrics, 2, ", ")
    }
}

fn value_metric(wanted: &Value, current: &Value) -> String {
    let target = &wanted["target"];
    if target["averageValue"].is_null() {
        return format!("{}/{}", known(current, "value"), quantity(&target["value"]));
    }
    let average = given_or(&current["current"]["averageValue"], UNKNOWN);
    format!("{average}/{} (avg)", quantity(&target["averageValue"]))
}

fn resource_metric(wanted: &Value, current: &Value) -> String {
    let (name, target) = (wanted["name"].str(), &wanted["target"]);
    if !target["averageValue"].is_null() {
        return format!(
            "{name}: {}/{}",
            known(current, "averageValue"),
            quantity(&target["averageValue"])
        );
    }
    let percent = |value: &Value, absent: &str| {
        value
            .as_int()
            .map_or(absent.into(), |value| format!("{value}%"))
    };
    let current = percent(&current["current"]["averageUtilization"], UNKNOWN);
    format!(
        "{name}: {current}/{}",
        percent(&target["averageUtilization"], "<auto>")
    )
}

fn known<'a>(status: &'a Value, member: &str) -> &'a str {
    if status.is_null() {
        UNKNOWN
    } else {
        quantity(&status["current"][member])
    }
}

/// Kubernetes: a missing quantity is printed as Go prints a nil pointer.
fn quantity(quantity: &Value) -> &str {
    given_or(quantity, "<nil>")
}
