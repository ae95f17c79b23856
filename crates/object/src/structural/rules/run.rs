//! Evaluation of the rules of a node.

use std::sync::Arc;

use super::compile::{Compiled, CompiledRule};
use super::report::{self, RuleLocation};
use super::walk::{BudgetExhausted, OldValue, RuleTarget, RuleWalk};
use super::{CALL_LIMIT, ValidationRule};
use mizzen_cel as cel;
use mizzen_cel::{Activation, DeclType, EvalError, EvalLimits, EvalResult, Outcome, Program};
use mizzen_value::Value;
use mizzen_value::json;

const NO_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";
const NO_BUDGET_FOR_MESSAGE: &str = "messageExpression evaluation failed due to running out of cost budget, no further validation rules will be run";

/// The maximum length of a computed message, in bytes.
const MESSAGE_LIMIT: usize = 5 * 1024;

struct Variables<'a> {
    new: Outcome<'a>,
    old: Option<Outcome<'a>>,
}

impl Activation for Variables<'_> {
    fn variable(&self, name: &str) -> Option<Outcome<'_>> {
        match name {
            "self" => Some(self.new.clone()),
            "oldSelf" => self.old.clone(),
            _ => None,
        }
    }
}

impl<'a> Variables<'a> {
    fn new(new: &'a Value, old: Option<&'a Value>, shape: &'a DeclType) -> Variables<'a> {
        let read = |value| cel::Value::shaped(value, shape);
        Variables {
            new: read(new),
            old: old.map(read),
        }
    }

    /// The variables with an optional old value.
    fn optional(&self) -> Variables<'a> {
        let old = self.old.clone().transpose();
        let old = old.map(|old| cel::Value::Optional(old.map(Arc::new)));
        Variables {
            new: self.new.clone(),
            old: Some(old),
        }
    }
}

impl RuleWalk<'_> {
    /// Runs the rules of a node.
    pub(super) fn run(&mut self, target: RuleTarget) -> Result<(), BudgetExhausted> {
        let RuleTarget { declared, new, .. } = target;
        let Some(rules) = declared.node.rules() else {
            return Ok(());
        };
        let compiled = rules.compiled(declared);
        let mut place = RuleRun {
            location: RuleLocation {
                node: declared.node,
                value: new,
                path: target.path,
            },
            past: target.past,
            walk: self,
        };
        let Some(shape) = &compiled.shape else {
            let error = "rule compiler initialization error: failed to convert to declType for CEL validation rules";
            place.failed(error);
            return Ok(());
        };
        if place.walk.budget <= 0 {
            return Err(place.ended(NO_BUDGET));
        }
        let variables = Variables::new(new, target.old.filter(|_| compiled.uses_old_self), shape);
        place.run_all(&rules.rules, compiled, &variables)
    }
}

/// The run of the rules for one value.
struct RuleRun<'w, 'v, 'a> {
    walk: &'w mut RuleWalk<'v>,
    location: RuleLocation<'a>,
    past: OldValue<'a>,
}

impl RuleRun<'_, '_, '_> {
    fn run_all(
        &mut self,
        rules: &[ValidationRule],
        compiled: &Compiled,
        plain: &Variables,
    ) -> Result<(), BudgetExhausted> {
        let optional = compiled.uses_old_self.then(|| plain.optional());
        for (rule, ready) in rules.iter().zip(&compiled.rules) {
            let program = match &ready.program {
                None => continue,
                Some(Ok(program)) => program,
                Some(Err(error)) => {
                    self.failed(&format!("rule compile error: {error}"));
                    continue;
                }
            };
            // A transition rule does not run without an old value.
            if ready.uses_old_self && plain.old.is_none() && !rule.optional_old_self {
                continue;
            }
            let variables = optional
                .as_ref()
                .filter(|_| rule.optional_old_self)
                .unwrap_or(plain);
            if !self.holds(rule, program, variables)? {
                // Kubernetes: message expressions never see an optional old value
                // (schema/cel/validation.go).
                let detail = self.message(rule, ready, plain)?;
                self.refuse(rule, ready, &detail);
            }
        }
        Ok(())
    }

    /// Whether a rule holds; evaluation errors are reported here.
    fn holds(
        &mut self,
        rule: &ValidationRule,
        program: &Program,
        variables: &Variables,
    ) -> Result<bool, BudgetExhausted> {
        let evaluation = program.evaluate(
            variables,
            EvalLimits {
                cost: CALL_LIMIT,
                interrupted: None,
            },
        );
        if !self.charge(&evaluation) {
            return Err(self.ended(NO_BUDGET));
        }
        let error = match evaluation.value {
            Ok(value) => return Ok(value.as_bool() == Some(true)),
            Err(error) => error,
        };
        let what = report::words(rule);
        if error == EvalError::CostLimit {
            let detail = format!(
                "'{error}': no further validation rules will be run due to call cost exceeds limit for rule: {what}"
            );
            return Err(self.ended(&detail));
        }
        self.failed(&match error.to_string() {
            error if error.starts_with("no such overload") => format!(
                "'{error}': call arguments did not match a supported operator, function or macro signature for rule: {what}"
            ),
            error => format!("{error} evaluating rule: {what}"),
        });
        Ok(true)
    }

    /// The message: the result of the expression, or else the static one.
    fn message(
        &mut self,
        rule: &ValidationRule,
        ready: &CompiledRule,
        variables: &Variables,
    ) -> Result<String, BudgetExhausted> {
        let Some(Ok(program)) = &ready.message else {
            return Ok(report::default(rule));
        };
        let evaluation = program.evaluate(
            variables,
            EvalLimits {
                cost: CALL_LIMIT,
                interrupted: None,
            },
        );
        let wrong = if !self.charge(&evaluation) {
            NO_BUDGET_FOR_MESSAGE.to_owned()
        } else if matches!(evaluation.value, Err(EvalError::CostLimit)) {
            let text = json::quote(&rule.message_expression);
            format!(
                "no further validation rules will be run due to call cost exceeds limit for messageExpression: {text}"
            )
        } else {
            let text = evaluation.value.ok().and_then(|value| {
                let text = value.as_str()?.trim();
                let is_valid =
                    !text.is_empty() && text.len() <= MESSAGE_LIMIT && !text.contains('\n');
                is_valid.then(|| text.to_owned())
            });
            return Ok(text.unwrap_or_else(|| report::default(rule)));
        };
        let violation = self.location.below(rule).failed(&wrong);
        report::push(violation, self.is_tolerated(ready), self.walk.violations);
        Err(BudgetExhausted)
    }

    fn refuse(&mut self, rule: &ValidationRule, ready: &CompiledRule, detail: &str) {
        let violation = self.location.below(rule).refused(&rule.reason, detail);
        report::push(violation, self.is_tolerated(ready), self.walk.violations);
    }

    /// Whether a violation is tolerated: the value is unchanged and the rule is not a transition
    /// rule.
    fn is_tolerated(&self, ready: &CompiledRule) -> bool {
        !ready.uses_old_self && self.past.is_same()
    }

    /// Charges the cost of an evaluation; returns whether the budget suffices.
    fn charge(&mut self, evaluation: &EvalResult) -> bool {
        let cost = i64::try_from(evaluation.cost)
            .ok()
            .filter(|cost| *cost <= self.walk.budget);
        self.walk.budget -= cost.unwrap_or_default();
        cost.is_some()
    }

    fn failed(&mut self, detail: &str) {
        let violation = self.location.failed(detail);
        self.walk.violations.0.push(violation);
    }

    fn ended(&mut self, detail: &str) -> BudgetExhausted {
        self.failed(detail);
        BudgetExhausted
    }
}
