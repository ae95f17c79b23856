//! Expressions that must hold (`x-kubernetes-validations`), kept as data on the node where they stand.
//!
//! Here is the seam for the expression engine. [`Structural::validate_rules`] is called once all other checks
//! have run, with the object as it was if there is one; what has to be done there is to walk the nodes that have
//! [`Rule`]s together with the object and to add a violation per rule that does not hold. Today a rule only has
//! the effect that it is said when rules could not be checked.

use super::Structural;
use crate::value::{Str, Value};
use crate::violation::{Reason, Violations};

/// One expression and what to say if it does not hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rule {
    /// The expression; `self` is the value at this place.
    pub rule: Str,
    /// What to say; may be empty.
    pub message: Str,
    /// An expression that yields what to say; may be empty.
    pub message_expression: Str,
    /// The machine's word for the refusal; may be empty.
    pub reason: Str,
    /// The place below, as a JSON path, that is to blame; may be empty.
    pub field_path: Str,
    /// Whether the rule runs, with an empty `oldSelf`, when there is no old value.
    pub optional_old_self: bool,
}

impl Rule {
    /// Reads an entry of `x-kubernetes-validations`.
    pub fn compile(rule: &Value) -> Rule {
        let text = |name: &str| rule[name].str().into();
        Rule {
            rule: text("rule"),
            message: text("message"),
            message_expression: text("messageExpression"),
            reason: text("reason"),
            field_path: text("fieldPath"),
            optional_old_self: rule["optionalOldSelf"].bool(),
        }
    }
}

const UNCHECKED: &str = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";

impl Structural {
    /// Whether the schema has expressions anywhere.
    pub fn has_rules(&self) -> bool {
        self.rules
    }

    /// The expressions of the schema, after everything else has been checked. Kubernetes: what is wrong with an
    /// object's shape keeps them from being evaluated, and that is said (customresource/strategy.go).
    pub fn validate_rules(&self, _new: &Value, _old: Option<&Value>, violations: &mut Violations) {
        if self.has_rules() && violations.0.iter().any(|violation| is_blocking(violation.reason)) {
            violations.invalid("<nil>", Value::Null, UNCHECKED);
        }
    }
}

fn is_blocking(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::NotSupported | Reason::Required | Reason::TooLong | Reason::TooMany | Reason::TypeInvalid
    )
}
