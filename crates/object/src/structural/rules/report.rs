//! Violations of rules.

use super::ValidationRule;
use crate::structural::node::{NodeType, SchemaNode};
use crate::violation::{Path, Violation, ViolationReason, Violations, show};
use mizzen_value::Value;

#[derive(Clone, Copy)]
pub(super) struct RuleLocation<'a> {
    pub node: &'a SchemaNode,
    pub value: &'a Value,
    pub path: &'a Path<'a>,
}

/// A location with the field that a rule reports.
pub(super) struct RuleField<'a> {
    location: RuleLocation<'a>,
    field: String,
}

impl<'a> RuleLocation<'a> {
    /// The field that a rule names.
    pub(super) fn below(&self, rule: &ValidationRule) -> RuleField<'a> {
        let field = match (self.path.to_string(), rule.field_path.as_str()) {
            (path, "") => shown(path),
            (path, below) if path.is_empty() => below.to_owned(),
            (path, below) => format!("{path}.{below}"),
        };
        RuleField {
            location: *self,
            field,
        }
    }

    /// The violation of a rule that failed to run.
    pub(super) fn failed(&self, detail: &str) -> Violation {
        RuleField {
            location: *self,
            field: shown(self.path.to_string()),
        }
        .failed(detail)
    }
}

impl RuleField<'_> {
    /// The violation of a rule that failed to run. Kubernetes: it shows the type instead of the
    /// value.
    pub(super) fn failed(self, detail: &str) -> Violation {
        let ty = if self.location.node.ty == NodeType::IntOrString {
            ""
        } else {
            self.location.node.ty.words()
        };
        self.violation(
            ViolationReason::Invalid,
            format!("Invalid value: \"{ty}\": {detail}"),
        )
    }

    /// The violation of a rule. Kubernetes: it shows the value if it is a scalar.
    pub(super) fn refused(self, reason: &str, detail: &str) -> Violation {
        let RuleLocation { node, value, .. } = self.location;
        let value = if node.is_object() || node.is_list() {
            String::new()
        } else {
            format!(": {}", show(value))
        };
        match reason {
            "FieldValueForbidden" => {
                self.violation(ViolationReason::Forbidden, format!("Forbidden: {detail}"))
            }
            "FieldValueRequired" => self.violation(
                ViolationReason::Required,
                format!("Required value: {detail}"),
            ),
            "FieldValueDuplicate" => self.violation(
                ViolationReason::Duplicate,
                format!("Duplicate value{value}"),
            ),
            _ => self.violation(
                ViolationReason::Invalid,
                format!("Invalid value{value}: {detail}"),
            ),
        }
    }

    fn violation(self, reason: ViolationReason, message: String) -> Violation {
        Violation {
            reason,
            field: self.field,
            message,
        }
    }
}

fn shown(path: String) -> String {
    if path.is_empty() {
        "<nil>".into()
    } else {
        path
    }
}

/// Adds a violation, or a warning if it is tolerated.
pub(super) fn push(violation: Violation, is_tolerated: bool, violations: &mut Violations) {
    if is_tolerated {
        violations.1.push(violation.to_string());
    } else {
        violations.0.push(violation);
    }
}

/// The default message of a rule.
pub(super) fn default(rule: &ValidationRule) -> String {
    if rule.message.is_empty() {
        format!("failed rule: {}", words(rule))
    } else {
        words(rule).to_owned()
    }
}

/// The expression of a rule, trimmed.
pub(super) fn words(rule: &ValidationRule) -> &str {
    if rule.message.is_empty() {
        rule.rule.trim()
    } else {
        rule.message.trim()
    }
}
