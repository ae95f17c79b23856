//! What is said of a rule that does not hold?

use super::Rule;
use crate::structural::node::{Node, Type};
use crate::violation::{Path, Reason, Violation, Violations, show};
use mizzen_value::Value;

/// A value, and where it stands.
#[derive(Clone, Copy)]
pub(super) struct Blame<'a> {
    pub node: &'a Node,
    pub value: &'a Value,
    pub path: &'a Path<'a>,
}

/// The same, with the place that a rule puts the blame on.
pub(super) struct At<'a> {
    blame: Blame<'a>,
    field: String,
}

impl<'a> Blame<'a> {
    /// The field that a rule names.
    pub(super) fn below(&self, rule: &Rule) -> At<'a> {
        let field = match (self.path.to_string(), rule.field_path.as_str()) {
            (path, "") => shown(path),
            (path, below) if path.is_empty() => below.to_owned(),
            (path, below) => format!("{path}.{below}"),
        };
        At {
            blame: *self,
            field,
        }
    }

    /// A rule could not be run.
    pub(super) fn failed(&self, detail: &str) -> Violation {
        At {
            blame: *self,
            field: shown(self.path.to_string()),
        }
        .failed(detail)
    }
}

impl At<'_> {
    /// A rule could not be run. Kubernetes: the type is shown where the value would be.
    pub(super) fn failed(self, detail: &str) -> Violation {
        let ty = if self.blame.node.ty == Type::IntOrString {
            ""
        } else {
            self.blame.node.ty.words()
        };
        self.violation(
            Reason::Invalid,
            format!("Invalid value: \"{ty}\": {detail}"),
        )
    }

    /// A rule does not hold. Kubernetes: the value is shown if it is a scalar.
    pub(super) fn refused(self, reason: &str, detail: &str) -> Violation {
        let Blame { node, value, .. } = self.blame;
        let value = if node.is_object() || node.is_list() {
            String::new()
        } else {
            format!(": {}", show(value))
        };
        match reason {
            "FieldValueForbidden" => {
                self.violation(Reason::Forbidden, format!("Forbidden: {detail}"))
            }
            "FieldValueRequired" => {
                self.violation(Reason::Required, format!("Required value: {detail}"))
            }
            "FieldValueDuplicate" => {
                self.violation(Reason::Duplicate, format!("Duplicate value{value}"))
            }
            _ => self.violation(Reason::Invalid, format!("Invalid value{value}: {detail}")),
        }
    }

    fn violation(self, reason: Reason, message: String) -> Violation {
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

/// Adds a violation, or a warning if it is let through.
pub(super) fn push(violation: Violation, is_let_through: bool, violations: &mut Violations) {
    if is_let_through {
        violations.1.push(violation.to_string());
    } else {
        violations.0.push(violation);
    }
}

/// What to say of a rule that says nothing itself.
pub(super) fn default(rule: &Rule) -> String {
    if rule.message.is_empty() {
        format!("failed rule: {}", words(rule))
    } else {
        words(rule).to_owned()
    }
}

/// A rule in its own words.
pub(super) fn words(rule: &Rule) -> &str {
    if rule.message.is_empty() {
        rule.rule.trim()
    } else {
        rule.message.trim()
    }
}
