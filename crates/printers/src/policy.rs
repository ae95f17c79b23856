//! Table cells of admission, flow control and priority classes.

use mizzen_object::select::go_selector_text;
use mizzen_value::Value;

use super::text::{NONE, UNSET, age, condition};
use super::{Cells, row};

pub(super) fn admission(kind: &str) -> Cells {
    match kind {
        "MutatingAdmissionPolicy" => |object, now| policy(object, "mutations", now),
        "ValidatingAdmissionPolicy" => |object, now| policy(object, "validations", now),
        "MutatingAdmissionPolicyBinding" | "ValidatingAdmissionPolicyBinding" => |object, now| {
            let spec = &object["spec"];
            row![
                spec["policyName"].str(),
                param(&spec["paramRef"]),
                age(object, now)
            ]
        },
        _ => |object, now| row![object["webhooks"].list().len() as i64, age(object, now)],
    }
}

fn policy(object: &Value, rules: &str, now: i64) -> Vec<Value> {
    let spec = &object["spec"];
    let params = &spec["paramKind"];
    let kind = format!("{}/{}", params["apiVersion"].str(), params["kind"].str());
    let n_rules = spec[rules].list().len() as i64;
    row![
        n_rules,
        if params.is_null() { UNSET.into() } else { kind },
        age(object, now)
    ]
}

fn param(param: &Value) -> String {
    match (param["namespace"].str(), param["name"].str()) {
        (_, "") if param["selector"].is_null() => UNSET.into(),
        (_, "") => go_selector_text(&param["selector"]),
        ("", name) => format!("*/{name}"),
        (namespace, name) => format!("{namespace}/{name}"),
    }
}

pub(super) fn flow(kind: &str) -> Cells {
    if kind == "FlowSchema" {
        |object, now| {
            let method = &object["spec"]["distinguisherMethod"];
            let dangling = condition(&object["status"]["conditions"], "Dangling");
            row![
                if method.is_null() {
                    NONE
                } else {
                    method["type"].str()
                },
                age(object, now),
                if dangling.is_null() {
                    "?"
                } else {
                    dangling["status"].str()
                },
            ]
        }
    } else {
        |object, now| {
            let limited = &object["spec"]["limited"];
            let queuing = &limited["limitResponse"]["queuing"];
            let number = |of: &Value, member: &str| {
                if of.is_null() {
                    NONE.into()
                } else {
                    Value::from(of[member].int())
                }
            };
            row![
                number(limited, "nominalConcurrencyShares"),
                number(queuing, "queues"),
                number(queuing, "handSize"),
                number(queuing, "queueLengthLimit"),
                age(object, now),
            ]
        }
    }
}

pub(super) fn priority_class(object: &Value, now: i64) -> Vec<Value> {
    row![
        object["globalDefault"].bool(),
        age(object, now),
        object["preemptionPolicy"].str()
    ]
}
