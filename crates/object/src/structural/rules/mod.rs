//! Expressions that must hold (`x-kubernetes-validations`), kept on the node where they stand.
//!
//! [`Structural::validate_rules`] walks an object together with what it was (`walk`), runs the rules of each place
//! (`run`) and says what does not hold (`report`). A place's rules are compiled when an object first comes by
//! (`compile`): a cluster with thousands of definitions pays for those that are used. `declare` says how
//! expressions see the data of a place, and [`examine()`] tells the author of a definition what is wrong with rules.

mod compile;
mod declare;
mod examine;
mod report;
mod run;
#[cfg(test)]
mod tests;
mod walk;

pub use examine::{Verdict, examine};

use std::sync::OnceLock;

use super::correlate::Correlated;
use super::{Structural, resolve};
use crate::violation::{Path, Reason, Violations};
use compile::Compiled;
use declare::Declared;
use mizzen_cel::Shape;
use mizzen_value::{Str, Value};
use walk::{Past, Walk};

/// What all rules together may cost for one object. Kubernetes: about a second (pkg/apis/cel/config.go).
pub const BUDGET: i64 = 10_000_000;

/// What one evaluation may cost.
const CALL_LIMIT: u64 = 1_000_000;

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
    /// The place below that is to blame, as messages name it; may be empty.
    pub field_path: Str,
    /// Whether the rule runs, with an empty `oldSelf`, when there is no old value.
    pub optional_old_self: bool,
}

/// The rules of one place.
#[derive(Debug)]
pub(crate) struct Rules {
    rules: Box<[Rule]>,
    compiled: OnceLock<Box<Compiled>>,
}

impl Rules {
    /// The rules of a schema, if it has any.
    pub(crate) fn read(schema: &Value) -> Option<Rules> {
        let rules = schema["x-kubernetes-validations"].list();
        let rules: Box<[Rule]> = rules.iter().map(|rule| Rule::read(rule, schema)).collect();
        (!rules.is_empty()).then_some(Rules {
            rules,
            compiled: OnceLock::new(),
        })
    }

    /// Ready to be run. Invariant: a node is always declared in the same way.
    fn compiled(&self, declared: Declared) -> &Compiled {
        self.compiled
            .get_or_init(|| Box::new(Compiled::new(&self.rules, declared)))
    }
}

impl Rule {
    fn read(rule: &Value, schema: &Value) -> Rule {
        let text = |name: &str| rule[name].str().into();
        let place = resolve(rule["fieldPath"].str(), schema, true);
        Rule {
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

impl Structural {
    /// How expressions see objects; `name` is that of their type.
    pub fn shape(&self, name: &str) -> Option<Shape> {
        Declared::new(self.root(), true).shape(name)
    }

    /// Whether the schema has expressions anywhere.
    pub fn has_rules(&self) -> bool {
        self.rules
    }

    /// The expressions of the schema, after everything else has been checked. What did not hold before and has not
    /// changed is only warned of. Kubernetes: what is wrong with an object's shape keeps them from being evaluated,
    /// and that is said (customresource/strategy.go).
    pub fn validate_rules(&self, new: &Value, old: Option<&Value>, violations: &mut Violations) {
        if !self.has_rules() {
            return;
        }
        if violations
            .0
            .iter()
            .any(|violation| is_blocking(violation.reason))
        {
            return violations.invalid("<nil>", Value::Null, UNCHECKED);
        }
        let past = Past::new(old.map(|old| Correlated::new(&self.root, new, old)));
        let mut walk = Walk {
            budget: BUDGET,
            violations,
        };
        // What is over budget has been said.
        let _ = walk.value(
            Declared::new(&self.root, true),
            new,
            old,
            past,
            &Path::new(""),
        );
    }

    /// The same for a value that stands at the root of the schema and at `path` in something greater, such as a
    /// default. `resource` says whether it is an object with metadata. Returns what is left of the budget, less than
    /// nothing if it was not enough.
    pub fn validate_rules_at(
        &self,
        value: &Value,
        old: Option<&Value>,
        resource: bool,
        path: &Path,
        budget: i64,
        violations: &mut Violations,
    ) -> i64 {
        let mut walk = Walk { budget, violations };
        let declared = Declared::new(&self.root, resource);
        match walk.value(declared, value, old, Past::new(None), path) {
            Ok(()) => walk.budget,
            Err(_) => -1,
        }
    }
}

fn is_blocking(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::NotSupported
            | Reason::Required
            | Reason::TooLong
            | Reason::TooMany
            | Reason::TypeInvalid
    )
}
