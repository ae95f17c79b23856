//! Validation of `x-kubernetes-validations`.

use mizzen_object::structural::{examine, resolve};
use mizzen_object::{Path, ViolationReason, Violations};
use mizzen_value::Value;

use super::openapi::{SchemaContext, SchemaViolations};
use super::{shown, structural};

const REASONS: [&str; 4] = [
    "FieldValueDuplicate",
    "FieldValueForbidden",
    "FieldValueInvalid",
    "FieldValueRequired",
];

/// What is wrong with the rules of a schema. `before` is how much was wrong before this schema was looked at: rules
/// of a schema that is wrong itself are not compiled.
pub(super) fn validate(
    schema: &Value,
    around: &SchemaContext,
    before: usize,
    path: &Path,
    found: &mut SchemaViolations,
) {
    let rules = schema["x-kubernetes-validations"].list();
    if rules.is_empty() {
        return;
    }
    let place = path.child("x-kubernetes-validations");
    for (index, rule) in rules.iter().enumerate() {
        written(rule, schema, &place.index(index), &mut found.schema);
    }
    if !around.sound || found.schema.0.len() > before {
        return;
    }
    let resource = around.root || schema["x-kubernetes-embedded-resource"].bool();
    let Some(verdicts) = examine(schema, resource) else {
        let detail = "Internal error: internal error: failed to construct type information for x-kubernetes-validations rules: unable to convert structural schema to CEL declarations";
        return found
            .expressions
            .push(ViolationReason::Internal, place, detail.into());
    };
    for (index, (rule, verdict)) in rules.iter().zip(&verdicts).enumerate() {
        // Violations of a compiled rule.
        let place = place.index(index);
        let SchemaViolations {
            expressions: violations,
            costs,
            ..
        } = found;
        let (path, limited) = (place.child("rule"), around.options.cheap_rules);
        let cost = verdict
            .cost
            .saturating_mul(around.cardinality.unwrap_or(verdict.cardinality));
        costs.add("rule", cost, limited, &path, violations);
        if let Some(refusal) = &verdict.error {
            violations.invalid(path, shown::rule(rule), refusal);
        }
        let message = place.child("messageExpression");
        if let Some(refusal) = &verdict.message_error {
            violations.invalid(message, shown::rule(rule), refusal);
        }
        if let Some(cost) = verdict.message_cost {
            costs.add("messageExpression", cost, limited, &message, violations);
        }
        if let Some(uncorrelated) = around.uncorrelated.filter(|_| verdict.uses_old_self) {
            let detail = format!(
                "oldSelf cannot be used on the uncorrelatable portion of the schema within {uncorrelated}"
            );
            violations.invalid(path, rule["rule"].str(), &detail);
        }
        if let Some(optional) = rule
            .get("optionalOldSelf")
            .filter(|_| !verdict.uses_old_self)
        {
            let detail = "may not be set if oldSelf is not used in rule";
            violations.invalid(place.child("optionalOldSelf"), optional.bool(), detail);
        }
    }
}

fn written(rule: &Value, schema: &Value, path: &Path, violations: &mut Violations) {
    let (text, message) = (rule["rule"].str().trim(), rule["message"].str());
    let breaks = |text: &str| text.contains(['\n', '\r']);
    if text.is_empty() {
        violations.required(path.child("rule"), "rule is not specified");
    } else if !message.is_empty() && message.trim().is_empty() {
        violations.invalid(
            path.child("message"),
            message,
            "must be non-empty if specified",
        );
    } else if breaks(message.trim()) {
        violations.invalid(
            path.child("message"),
            message,
            "must not contain line breaks",
        );
    } else if breaks(text) && message.trim().is_empty() {
        let detail = "message must be specified if rule contains line breaks";
        violations.required(path.child("message"), detail);
    }
    let expression = rule["messageExpression"].str();
    if !expression.is_empty() && expression.trim().is_empty() {
        let detail = "messageExpression must be non-empty if specified";
        violations.required(path.child("messageExpression"), detail);
    }
    if let Some(reason) = rule
        .get("reason")
        .filter(|reason| !REASONS.contains(&reason.str()))
    {
        violations.not_supported(path.child("reason"), reason.str(), &REASONS);
    }
    let text = rule["fieldPath"].str();
    let path = path.child("fieldPath");
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
