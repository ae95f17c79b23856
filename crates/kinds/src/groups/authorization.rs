//! authorization.k8s.io: access reviews.

use mizzen_object::validate::selector::{self, SelectorOptions};
use mizzen_object::{HookContext, Path, Violations};
use mizzen_value::Value;

use crate::Behaviour;
use mizzen_apiextensions::KindStrategy;
use mizzen_apiextensions::internal;

pub(super) fn behaviour(version: &str, kind: &str) -> Behaviour {
    let versioned = match version {
        "v1beta1" => Behaviour {
            to_stored: |review| rename_groups(review, "group", "groups"),
            from_stored: |review| rename_groups(review, "groups", "group"),
            ..Behaviour::NONE
        },
        _ => Behaviour::NONE,
    };
    match kind {
        "SubjectAccessReview" => Behaviour {
            validate: |review, _old, _context, violations| {
                validate_spec(&review["spec"], true, violations);
                validate_metadata(&review["metadata"], &[], "must be empty", violations);
            },
            ..versioned
        },
        "SelfSubjectAccessReview" => Behaviour::of::<SelfSubjectAccessReviewStrategy>(),
        "LocalSubjectAccessReview" => Behaviour {
            validate: validate_local,
            ..versioned
        },
        _ => Behaviour::NONE,
    }
}

pub(super) struct SelfSubjectAccessReviewStrategy;

impl KindStrategy for SelfSubjectAccessReviewStrategy {
    fn validate(review: &Value, _: Option<&Value>, _: &HookContext, violations: &mut Violations) {
        validate_spec(&review["spec"], false, violations);
        validate_metadata(&review["metadata"], &[], "must be empty", violations);
    }
}

/// v1beta1 calls the list of the subject's groups `group`.
fn rename_groups(review: &mut Value, from: &str, to: &str) {
    let Some(spec) = review.get_mut("spec") else {
        return;
    };
    if let Some(groups) = spec.remove(from) {
        spec.set(to, groups);
    }
}

fn validate_local(review: &Value, _: Option<&Value>, _: &HookContext, violations: &mut Violations) {
    let (spec, metadata) = (&review["spec"], &review["metadata"]);
    validate_spec(spec, true, violations);
    validate_metadata(
        metadata,
        &["namespace"],
        "must be empty except for namespace",
        violations,
    );
    if let Some(resource) = spec.get("resourceAttributes")
        && resource["namespace"].str() != metadata["namespace"].str()
    {
        let path = "spec.resourceAttributes.namespace";
        violations.invalid(
            path,
            resource["namespace"].str(),
            "must match metadata.namespace",
        );
    }
    if let Some(other) = spec.get("nonResourceAttributes") {
        violations.invalid(
            "spec.nonResourceAttributes",
            shown(other),
            "disallowed on this kind of request",
        );
    }
}

fn validate_metadata(
    metadata: &Value,
    allowed: &[&str],
    detail: &str,
    violations: &mut Violations,
) {
    let is_allowed = |name: &str| name == "managedFields" || allowed.contains(&name);
    if metadata
        .entries()
        .any(|(name, value)| !is_allowed(name) && !value.is_empty())
    {
        violations.invalid("metadata", metadata.clone(), detail);
    }
}

fn shown(attributes: &Value) -> Value {
    internal::shown("NonResourceAttributes", attributes)
}

fn validate_spec(spec: &Value, names_subject: bool, violations: &mut Violations) {
    let path = Path::new("spec");
    match (
        spec.get("resourceAttributes"),
        spec.get("nonResourceAttributes"),
    ) {
        (Some(_), Some(other)) => {
            let detail = "cannot be specified in combination with resourceAttributes";
            violations.invalid(path.child("nonResourceAttributes"), shown(other), detail);
        }
        (None, None) => {
            let detail =
                "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            violations.invalid(path.child("resourceAttributes"), Value::Null, detail);
        }
        _ => {}
    }
    if names_subject && spec["user"].is_empty() && spec["groups"].is_empty() {
        violations.invalid(
            path.child("user"),
            "",
            "at least one of user or group must be specified",
        );
    }
    let path = path.child("resourceAttributes");
    for name in ["fieldSelector", "labelSelector"] {
        if let Some(selector) = spec["resourceAttributes"].get(name) {
            let path = path.child(name);
            let (raw, requirements) = (
                selector["rawSelector"].str(),
                selector["requirements"].list(),
            );
            if !raw.is_empty() && !requirements.is_empty() {
                violations.invalid(
                    path.child("rawSelector"),
                    raw,
                    "may not specified at the same time as requirements",
                );
            }
            if raw.is_empty() && requirements.is_empty() {
                let detail =
                    format!("when {path} is specified, requirements or rawSelector is required");
                violations.required(path.child("requirements"), &detail);
            }
            let options = SelectorOptions {
                any_operators: true,
                ..SelectorOptions::default()
            };
            let is_label = path.to_string().ends_with("labelSelector");
            let check = if is_label {
                selector::label_requirement
            } else {
                selector::field_requirement
            };
            for (index, requirement) in requirements.iter().enumerate() {
                check(
                    requirement,
                    options,
                    &path.child("requirements").index(index),
                    violations,
                );
            }
        }
    }
}
