//! Validation of `meta/v1.Condition`.

use super::{field, meta, names, repeats};
use crate::violation::{Path, Violations};
use mizzen_value::Value;

const REASON_LENGTH: usize = 1024;
const MESSAGE_LENGTH: usize = 32 * 1024;

/// Validates conditions, each type once.
pub fn conditions(conditions: &Value, path: &Path, violations: &mut Violations) {
    let list = conditions.list();
    let repeated = repeats(list, |condition| condition["type"].str());
    for (index, condition) in list.iter().enumerate() {
        let path = path.index(index);
        if repeated[index] {
            violations.duplicate(path.child("type"), condition["type"].str());
        }
        self::condition(condition, &path, violations);
    }
}

/// Validates one condition.
pub fn condition(condition: &Value, path: &Path, violations: &mut Violations) {
    meta::label_name(condition["type"].str(), &path.child("type"), violations);
    field::one_of(
        condition["status"].str(),
        &["False", "True", "Unknown"],
        &path.child("status"),
        violations,
    );
    let observed = condition["observedGeneration"].int();
    if observed < 0 {
        violations.invalid(
            path.child("observedGeneration"),
            observed,
            "must be greater than or equal to zero",
        );
    }
    if condition["lastTransitionTime"].is_null() {
        violations.required(path.child("lastTransitionTime"), "");
    }
    reason(condition["reason"].str(), &path.child("reason"), violations);
    if condition["message"].str().len() > MESSAGE_LENGTH {
        violations.too_long(path.child("message"), MESSAGE_LENGTH);
    }
}

fn reason(reason: &str, path: &Path, violations: &mut Violations) {
    if reason.is_empty() {
        return violations.required(path, "");
    }
    for message in names::is_condition_reason(reason) {
        violations.invalid(path, reason, &message);
    }
    if reason.len() > REASON_LENGTH {
        violations.too_long(path, REASON_LENGTH);
    }
}
