//! flowcontrol.apiserver.k8s.io: API priority and fairness.

mod level;
mod level_v1beta;
mod schema;

use mizzen_object::validate::repeats;
use mizzen_object::{Path, Violations};
use mizzen_value::Value;

use crate::Behaviour;

pub(super) fn behaviour(version: &str, kind: &str) -> Behaviour {
    match (version, kind) {
        (_, "FlowSchema") => schema::SCHEMA,
        ("v1beta1" | "v1beta2", "PriorityLevelConfiguration") => level_v1beta::ASSURED,
        ("v1beta3", "PriorityLevelConfiguration") => level_v1beta::V1BETA3,
        (_, "PriorityLevelConfiguration") => level::LEVEL,
        _ => Behaviour::NONE,
    }
}

/// Conditions have a type, each another.
fn validate_conditions(conditions: &[Value], violations: &mut Violations) {
    let status = Path::new("status");
    let path = status.child("conditions");
    let repeated = repeats(conditions, |condition| condition["type"].str());
    for (index, condition) in conditions.iter().enumerate() {
        let path = path.index(index);
        if repeated[index] {
            violations.duplicate(path.child("type"), condition["type"].str());
        }
        if condition["type"].is_empty() {
            violations.required(path.child("type"), "");
        }
    }
}
