//! Validation of single fields that many kinds share.

use crate::violation::{Path, Violations, show};
use mizzen_value::{Map, Value};

/// The message for an immutable field.
pub const IMMUTABLE: &str = "field is immutable";

/// A field must not change. Shows the new value; an absent one as `null`.
pub fn immutable(new: &Value, old: &Value, path: &Path, violations: &mut Violations) {
    if new != old {
        violations.invalid_shown(path, &show(new), IMMUTABLE);
    }
}

/// A string must not change. Shows the new value; an absent one as `""`.
pub fn immutable_text(new: &Value, old: &Value, path: &Path, violations: &mut Violations) {
    if new.str() != old.str() {
        violations.invalid(path, new.str(), IMMUTABLE);
    }
}

/// A number must not be negative.
pub fn non_negative(number: i64, path: &Path, violations: &mut Violations) {
    if number < 0 {
        violations.invalid(path, number, "must be greater than or equal to 0");
    }
}

/// A string must be one of `allowed`.
pub fn one_of(text: &str, allowed: &[&str], path: &Path, violations: &mut Violations) {
    if !allowed.contains(&text) {
        violations.not_supported(path, text, allowed);
    }
}

/// Adds each message of an `is_…` check.
pub fn all(wrong: Vec<String>, value: impl Into<Value>, path: &Path, violations: &mut Violations) {
    if wrong.is_empty() {
        return;
    }
    let value = value.into();
    for message in wrong {
        violations.invalid(path, value.clone(), &message);
    }
}

/// A struct as upstream prints it in messages: with Go's names and every field, in Go's order.
///
/// Kubernetes: messages print internal types, which have no JSON names and omit nothing. `fields`
/// gives Go's name, our name, and the value of an absent field: `("APIGroup", "apiGroup",
/// Value::from(""))`.
pub fn go_struct(value: &Value, fields: &[(&str, &str, Value)]) -> Value {
    let mut shown = Map::default();
    for (go, name, absent) in fields {
        let value = value
            .get(name)
            .filter(|value| !value.is_null())
            .unwrap_or(absent);
        shown.insert(*go, value.clone());
    }
    Value::Map(shown)
}
