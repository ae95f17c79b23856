//! certificates.k8s.io: CertificateSigningRequests.

pub(super) mod pem;
mod v1beta1;
mod validate;

use mizzen_object::{Action, HookContext};
use mizzen_value::Value;

pub use validate::{requested_groups, requested_name};

use crate::Behaviour;

pub(super) fn behaviour(version: &str, kind: &str) -> Behaviour {
    let main = Behaviour {
        prepare,
        validate: validate::validate,
        ..Behaviour::NONE
    };
    let behaviour = match kind {
        "CertificateSigningRequest" => main,
        "CertificateSigningRequest/approval" => Behaviour {
            prepare: |request, old, context| {
                // An approval changes conditions and nothing else.
                let Some(old) = old else {
                    return;
                };
                stamp_conditions(request, old, context.now);
                let conditions = request["status"]["conditions"].clone();
                request.set("spec", old["spec"].clone());
                request.set("status", old["status"].clone());
                request.entry("status").set("conditions", conditions);
            },
            validate: validate::validate_approval,
            ..main
        },
        _ => return Behaviour::NONE,
    };
    match (version, kind) {
        ("v1beta1", "CertificateSigningRequest") => Behaviour {
            default: v1beta1::default,
            prepare: |request, old, context| {
                // Kubernetes: a status of v1beta1 that adds or removes a decision keeps the conditions as they were.
                if let (Some(old), Action::Status) = (old, context.action) {
                    let count = |request: &Value, decision: &str| {
                        conditions(request)
                            .iter()
                            .filter(|condition| condition["type"].str() == decision)
                            .count()
                    };
                    if ["Approved", "Denied"]
                        .iter()
                        .any(|decision| count(request, decision) != count(old, decision))
                    {
                        request
                            .entry("status")
                            .set("conditions", old["status"]["conditions"].clone());
                    }
                }
                prepare(request, old, context);
            },
            validate: validate::validate_v1beta1,
            ..behaviour
        },
        ("v1beta1", _) => Behaviour {
            default: v1beta1::default,
            validate: validate::validate_approval_v1beta1,
            ..behaviour
        },
        _ => behaviour,
    }
}

/// A request says who made it, and never changes.
fn prepare(request: &mut Value, old: Option<&Value>, context: &HookContext) {
    let Some(old) = old else {
        let spec = request.entry("spec");
        spec.set("username", context.user);
        spec.set("uid", context.uid);
        spec.set(
            "groups",
            Value::List(context.groups.iter().map(Value::from).collect()),
        );
        spec.set("extra", context.extra.clone());
        return;
    };
    request.set("spec", old["spec"].clone());
    if context.action == Action::Status {
        for condition_type in ["Approved", "Denied"] {
            // Conditions of a type are put back as they were, unless some were added or taken away.
            let is_of_type = |condition: &&Value| condition["type"].str() == condition_type;
            let before: Vec<Value> = conditions(old).iter().filter(is_of_type).cloned().collect();
            if conditions(request).iter().filter(is_of_type).count() != before.len() {
                continue;
            }
            let now = request
                .at_mut("status.conditions")
                .into_iter()
                .flat_map(Value::list_mut);
            for (condition, before) in now
                .filter(|condition| is_of_type(&&**condition))
                .zip(before)
            {
                *condition = before;
            }
        }
        stamp_conditions(request, old, context.now);
    }
}

fn stamp_conditions(request: &mut Value, old: &Value, now: &str) {
    for condition in request
        .at_mut("status.conditions")
        .into_iter()
        .flat_map(Value::list_mut)
    {
        condition.set_default("lastUpdateTime", now);
        let same =
            |old: &&Value| old["type"] == condition["type"] && old["status"] == condition["status"];
        let before = conditions(old)
            .iter()
            .filter(same)
            .find_map(|old| old["lastTransitionTime"].as_str());
        let transition = before.unwrap_or(now).to_string();
        condition.set_default("lastTransitionTime", transition);
    }
}

fn conditions(request: &Value) -> &[Value] {
    request["status"]["conditions"].list()
}
