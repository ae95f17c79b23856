//! Validation of label selectors.

use super::{field, meta, names};
use crate::violation::{Path, Violations};
use mizzen_value::Value;

/// Relaxations of the validation.
#[derive(Debug, Clone, Copy, Default)]
pub struct SelectorOptions {
    /// Allow invalid label values. Old objects may keep theirs.
    pub any_values: bool,
    /// Allow unknown operators.
    pub any_operators: bool,
}

/// Validates `matchLabels` and `matchExpressions`.
pub fn label_selector(
    selector: &Value,
    options: SelectorOptions,
    path: &Path,
    violations: &mut Violations,
) {
    meta::labels(
        &selector["matchLabels"],
        &path.child("matchLabels"),
        violations,
    );
    let path = path.child("matchExpressions");
    for (index, requirement) in selector["matchExpressions"].list().iter().enumerate() {
        label_requirement(requirement, options, &path.index(index), violations);
    }
}

/// Validates one of `matchExpressions`.
pub fn label_requirement(
    requirement: &Value,
    options: SelectorOptions,
    path: &Path,
    violations: &mut Violations,
) {
    operator(requirement, options, path, violations);
    meta::label_name(requirement["key"].str(), &path.child("key"), violations);
    if !options.any_values {
        values(requirement, &path.child("values"), violations);
    }
}

/// Whether a selector has an invalid label value; then [`SelectorOptions::any_values`] applies to
/// updates.
pub fn has_invalid_value(selector: &Value) -> bool {
    let values = selector["matchExpressions"]
        .list()
        .iter()
        .flat_map(|requirement| requirement["values"].list());
    values
        .into_iter()
        .any(|value| !names::is_label_value(value.str()).is_empty())
}

/// Whether a selector selects everything.
pub fn is_empty(selector: &Value) -> bool {
    selector["matchLabels"].is_empty() && selector["matchExpressions"].is_empty()
}

/// Validates a requirement of a field selector in an access review.
pub fn field_requirement(
    requirement: &Value,
    options: SelectorOptions,
    path: &Path,
    violations: &mut Violations,
) {
    if requirement["key"].str().is_empty() {
        violations.required(path.child("key"), "must be specified");
    }
    operator(requirement, options, path, violations);
}

fn operator(
    requirement: &Value,
    options: SelectorOptions,
    path: &Path,
    violations: &mut Violations,
) {
    let n_values = requirement["values"].list().len();
    match requirement["operator"].str() {
        "In" | "NotIn" if n_values == 0 => {
            violations.required(
                path.child("values"),
                "must be specified when `operator` is 'In' or 'NotIn'",
            );
        }
        "Exists" | "DoesNotExist" if n_values > 0 => violations.forbidden(
            path.child("values"),
            "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
        ),
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        _ if options.any_operators => {}
        other => violations.invalid(
            path.child("operator"),
            other,
            "not a valid selector operator",
        ),
    }
}

fn values(requirement: &Value, path: &Path, violations: &mut Violations) {
    for (index, value) in requirement["values"].list().iter().enumerate() {
        field::all(
            names::is_label_value(value.str()),
            value.str(),
            &path.index(index),
            violations,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_value::json;

    #[track_caller]
    fn check(selector: &str, expected: &[&str]) {
        let mut violations = Violations::default();
        let selector = json::parse(selector.as_bytes()).unwrap();
        label_selector(
            &selector,
            SelectorOptions::default(),
            &Path::new("s"),
            &mut violations,
        );
        let found: Vec<String> = violations.0.iter().map(ToString::to_string).collect();
        let matches = found.len() == expected.len()
            && found.iter().zip(expected).all(|(a, b)| a.starts_with(b));
        assert!(matches, "{found:#?}");
    }

    #[test]
    fn operators_require_or_forbid_values() {
        check(
            r#"{"matchExpressions":[{"key":"a","operator":"In"},{"key":"a","operator":"Exists","values":["x"]},
                {"key":"","operator":"Near","values":["x y"]}]}"#,
            &[
                "s.matchExpressions[0].values: Required value: must be specified when `operator`",
                "s.matchExpressions[1].values: Forbidden: may not be specified when",
                "s.matchExpressions[2].operator: Invalid value: \"Near\": not a valid selector operator",
                "s.matchExpressions[2].key: Invalid value: \"\": name part must be non-empty",
                "s.matchExpressions[2].key: Invalid value: \"\": name part must consist",
                "s.matchExpressions[2].values[0]: Invalid value: \"x y\": a valid label must be",
            ],
        );
    }
}
