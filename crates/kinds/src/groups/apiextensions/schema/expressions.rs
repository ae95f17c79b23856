//! Rules in a schema: how they are written, and the place where they are compiled.

use mizzen_object::{Path, Value, Violations};

use super::openapi::{Around, Found};
use super::{resolve, structural};

const REASONS: [&str; 4] =
    ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// What is wrong with the rules of a schema. `before` is how much was wrong before this schema was looked at: rules
/// of a schema that is wrong itself are not compiled.
pub(super) fn validate(schema: &Value, around: &Around, before: usize, path: &Path, found: &mut Found) {
    let rules = schema["x-kubernetes-validations"].list();
    if rules.is_empty() {
        return;
    }
    let place = path.child("x-kubernetes-validations");
    for (index, rule) in rules.iter().enumerate() {
        written(rule, schema, &place.index(index), &mut found.schema);
    }
    if around.sound && found.schema.0.len() == before {
        compiled(schema, around.uncorrelated, &place, &mut found.expressions);
    }
}

/// The seam for the expression engine: compiles the rules of `schema`, which is structural and has no other faults,
/// and adds what is wrong with them under `_place` (`…x-kubernetes-validations`). With `_uncorrelated` the old value
/// is not known here, and the place is named from which on.
fn compiled(_schema: &Value, _uncorrelated: Option<&Path>, _place: &Path, _violations: &mut Violations) {}

fn written(rule: &Value, schema: &Value, path: &Path, violations: &mut Violations) {
    let (text, message) = (rule["rule"].str().trim(), rule["message"].str());
    let breaks = |text: &str| text.contains(['\n', '\r']);
    if text.is_empty() {
        violations.required(path.child("rule"), "rule is not specified");
    } else if !message.is_empty() && message.trim().is_empty() {
        violations.invalid(path.child("message"), message, "must be non-empty if specified");
    } else if breaks(message.trim()) {
        violations.invalid(path.child("message"), message, "must not contain line breaks");
    } else if breaks(text) && message.trim().is_empty() {
        let detail = "message must be specified if rule contains line breaks";
        violations.required(path.child("message"), detail);
    }
    let expression = rule["messageExpression"].str();
    if !expression.is_empty() && expression.trim().is_empty() {
        let detail = "messageExpression must be non-empty if specified";
        violations.required(path.child("messageExpression"), detail);
    }
    if let Some(reason) = rule.get("reason").filter(|reason| !REASONS.contains(&reason.str())) {
        violations.not_supported(path.child("reason"), reason.str(), &REASONS);
    }
    field_path(rule["fieldPath"].str(), schema, &path.child("fieldPath"), violations);
}

fn field_path(text: &str, schema: &Value, path: &Path, violations: &mut Violations) {
    if text.is_empty() {
        return;
    }
    if text.trim().is_empty() {
        violations.invalid(path, text, "must be non-empty if specified");
    }
    if text.contains(['\n', '\r']) {
        violations.invalid(path, text, "must not contain line breaks");
    }
    if structural::unsupported(schema).is_none() && resolve(text, schema, true).is_err() {
        violations.invalid(path, text, "must be a valid path");
    }
}
