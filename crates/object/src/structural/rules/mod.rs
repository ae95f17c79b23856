//! CEL validation rules (`x-kubernetes-validations`).
//!
//! [`Structural::validate_rules`] walks an object together with its old value (`walk`), runs the
//! rules of each node (`run`) and reports violations (`report`). Rules are compiled at the first
//! validation (`compile`), so that unused definitions cost nothing. `declare` declares the types of
//! data for CEL, and [`examine()`] checks the rules of a definition.

mod compile;
mod declare;
mod examine;
mod report;
mod run;
#[cfg(test)]
mod tests;
mod walk;

pub use examine::{RuleVerdict, examine};

use std::sync::OnceLock;

use super::correlate::Correlated;
use super::{Structural, resolve};
use crate::violation::{Path, ViolationReason, Violations};
use compile::Compiled;
use declare::DeclaredNode;
use mizzen_cel::DeclType;
use mizzen_value::{Str, Value};
use walk::{OldValue, RuleTarget, RuleWalk};

/// The cost limit of all rules for one object. Kubernetes: about a second (pkg/apis/cel/config.go).
pub const BUDGET: i64 = 10_000_000;

/// The cost limit of one evaluation.
const CALL_LIMIT: u64 = 1_000_000;

/// A rule of `x-kubernetes-validations`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ValidationRule {
    /// The expression; `self` is the value of the node.
    pub rule: Str,
    /// The message; may be empty.
    pub message: Str,
    /// An expression for the message; may be empty.
    pub message_expression: Str,
    /// The machine-readable reason; may be empty.
    pub reason: Str,
    /// The field that is reported, relative to the node; may be empty.
    pub field_path: Str,
    /// Whether the rule runs, with an empty `oldSelf`, when there is no old value.
    pub optional_old_self: bool,
}

#[derive(Debug)]
pub(crate) struct NodeRules {
    rules: Box<[ValidationRule]>,
    compiled: OnceLock<Box<Compiled>>,
}

impl NodeRules {
    /// The rules of a schema, if it has any.
    pub(crate) fn read(schema: &Value) -> Option<NodeRules> {
        let rules = schema["x-kubernetes-validations"].list();
        let rules: Box<[ValidationRule]> = rules
            .iter()
            .map(|rule| ValidationRule::read(rule, schema))
            .collect();
        (!rules.is_empty()).then_some(NodeRules {
            rules,
            compiled: OnceLock::new(),
        })
    }

    /// The compiled rules. Invariant: a node is always declared in the same way.
    fn compiled(&self, declared: DeclaredNode) -> &Compiled {
        self.compiled
            .get_or_init(|| Box::new(Compiled::new(&self.rules, declared)))
    }
}

impl ValidationRule {
    fn read(rule: &Value, schema: &Value) -> ValidationRule {
        let text = |name: &str| rule[name].str().into();
        let place = resolve(rule["fieldPath"].str(), schema, true);
        ValidationRule {
            rule: text("rule"),
            message: text("message"),
            message_expression: text("messageExpression"),
            reason: text("reason"),
            field_path: place
                .map(|place| place.path.trim_start_matches('.').into())
                .unwrap_or_default(),
            optional_old_self: rule["optionalOldSelf"].bool(),
        }
    }
}

const UNCHECKED: &str = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";

/// The context of [`Structural::validate_rules_at`].
#[derive(Clone, Copy)]
pub struct RuleOptions<'a> {
    /// The value of `oldSelf`.
    pub old: Option<&'a Value>,
    /// Whether the value is an object with metadata.
    pub resource: bool,
    /// The path of the value.
    pub path: &'a Path<'a>,
    /// The remaining cost budget.
    pub budget: i64,
}

impl Structural {
    /// The declared type of objects; `name` is the name of the type.
    pub fn shape(&self, name: &str) -> Option<DeclType> {
        DeclaredNode::new(self.root(), true).shape(name)
    }

    /// Whether the schema has CEL rules.
    pub fn has_rules(&self) -> bool {
        self.rules
    }

    /// Runs the CEL rules, after all other validation. Violations in unchanged values are only
    /// warnings. Kubernetes: violations of the schema prevent the evaluation, which is reported
    /// (customresource/strategy.go).
    pub fn validate_rules(&self, new: &Value, old: Option<&Value>, violations: &mut Violations) {
        if !self.has_rules() {
            return;
        }
        if violations.0.iter().any(|violation| {
            use ViolationReason::{NotSupported, Required, TooLong, TooMany, TypeInvalid};
            matches!(
                violation.reason,
                NotSupported | Required | TooLong | TooMany | TypeInvalid
            )
        }) {
            return violations.invalid("<nil>", Value::Null, UNCHECKED);
        }
        let past = OldValue::new(old.map(|old| Correlated::new(&self.root, new, old)));
        let mut walk = RuleWalk {
            budget: BUDGET,
            violations,
        };
        // An exceeded budget was reported already.
        let _ = walk.value(RuleTarget {
            declared: DeclaredNode::new(&self.root, true),
            new,
            old,
            past,
            path: &Path::new(""),
        });
    }

    /// Like [`Structural::validate_rules`], for a value of the root schema inside of another, such
    /// as a default. Returns the remaining budget, negative if it was exceeded.
    pub fn validate_rules_at(
        &self,
        value: &Value,
        options: RuleOptions,
        violations: &mut Violations,
    ) -> i64 {
        let budget = options.budget;
        let mut walk = RuleWalk { budget, violations };
        let target = RuleTarget {
            declared: DeclaredNode::new(&self.root, options.resource),
            new: value,
            old: options.old,
            past: OldValue::new(None),
            path: options.path,
        };
        match walk.value(target) {
            Ok(()) => walk.budget,
            Err(_) => -1,
        }
    }
}
