//! Do the rules of a place hold for a value?

use std::sync::Arc;

use super::compile::{Compiled, CompiledRule};
use super::declare::Declared;
use super::report::{self, Blame};
use super::walk::{Exhausted, Past, Walk};
use super::{CALL_LIMIT, Rule};
use crate::violation::Path;
use mizzen_cel as cel;
use mizzen_cel::{Activation, Budget, EvalError, Evaluation, Outcome, Program, Shape};
use mizzen_value::Value;
use mizzen_value::json;

const NO_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";
const NO_BUDGET_FOR_MESSAGE: &str = "messageExpression evaluation failed due to running out of cost budget, no further validation rules will be run";

/// The longest message that an expression may make, in octets.
const MESSAGE_LIMIT: usize = 5 * 1024;

/// What expressions can name.
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
    fn new(new: &'a Value, old: Option<&'a Value>, shape: &'a Shape) -> Variables<'a> {
        let read = |value| cel::Value::shaped(value, shape);
        Variables {
            new: read(new),
            old: old.map(read),
        }
    }

    /// The same with an old value that may be missing.
    fn optional(&self) -> Variables<'a> {
        let old = self.old.clone().transpose();
        let old = old.map(|old| cel::Value::Optional(old.map(Arc::new)));
        Variables {
            new: self.new.clone(),
            old: Some(old),
        }
    }
}

impl Walk<'_> {
    /// Runs the rules of a place.
    pub(super) fn run(
        &mut self,
        declared: Declared,
        new: &Value,
        old: Option<&Value>,
        past: Past,
        path: &Path,
    ) -> Result<(), Exhausted> {
        let Some(rules) = declared.node.rules() else {
            return Ok(());
        };
        let compiled = rules.compiled(declared);
        let mut place = Place {
            blame: Blame {
                node: declared.node,
                value: new,
                path,
            },
            past,
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
        let variables = Variables::new(new, old.filter(|_| compiled.asks_for_old), shape);
        place.run_all(&rules.rules, compiled, &variables)
    }
}

/// A value whose rules are run.
struct Place<'w, 'v, 'a> {
    walk: &'w mut Walk<'v>,
    blame: Blame<'a>,
    past: Past<'a>,
}

impl Place<'_, '_, '_> {
    fn run_all(
        &mut self,
        rules: &[Rule],
        compiled: &Compiled,
        plain: &Variables,
    ) -> Result<(), Exhausted> {
        let optional = compiled.asks_for_old.then(|| plain.optional());
        for (rule, ready) in rules.iter().zip(&compiled.rules) {
            let program = match &ready.program {
                None => continue,
                Some(Ok(program)) => program,
                Some(Err(error)) => {
                    self.failed(&format!("rule compile error: {error}"));
                    continue;
                }
            };
            // A rule about a change has nothing to say where nothing was before.
            if ready.asks_for_old && plain.old.is_none() && !rule.optional_old_self {
                continue;
            }
            let variables = optional
                .as_ref()
                .filter(|_| rule.optional_old_self)
                .unwrap_or(plain);
            if !self.holds(rule, program, variables)? {
                // Kubernetes: messages never see an optional old value (schema/cel/validation.go).
                let detail = self.message(rule, ready, plain)?;
                self.refuse(rule, ready, &detail);
            }
        }
        Ok(())
    }

    /// Whether a rule holds, as far as it can be told: what goes wrong is said here.
    fn holds(
        &mut self,
        rule: &Rule,
        program: &Program,
        variables: &Variables,
    ) -> Result<bool, Exhausted> {
        let evaluation = program.evaluate(
            variables,
            Budget {
                cost: CALL_LIMIT,
                interrupted: None,
            },
        );
        if !self.pay(&evaluation) {
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

    /// What to say: what the expression says, or else what stands in the rule.
    fn message(
        &mut self,
        rule: &Rule,
        ready: &CompiledRule,
        variables: &Variables,
    ) -> Result<String, Exhausted> {
        let Some(Ok(program)) = &ready.message else {
            return Ok(report::default(rule));
        };
        let evaluation = program.evaluate(
            variables,
            Budget {
                cost: CALL_LIMIT,
                interrupted: None,
            },
        );
        let wrong = if !self.pay(&evaluation) {
            NO_BUDGET_FOR_MESSAGE.to_owned()
        } else if matches!(evaluation.value, Err(EvalError::CostLimit)) {
            let text = json::quote(&rule.message_expression);
            format!(
                "no further validation rules will be run due to call cost exceeds limit for messageExpression: {text}"
            )
        } else {
            let text = evaluation
                .value
                .ok()
                .and_then(|value| usable(value.as_str()?));
            return Ok(text.unwrap_or_else(|| report::default(rule)));
        };
        let violation = self.blame.below(rule).failed(&wrong);
        report::push(violation, self.is_let_through(ready), self.walk.violations);
        Err(Exhausted)
    }

    fn refuse(&mut self, rule: &Rule, ready: &CompiledRule, detail: &str) {
        let violation = self.blame.below(rule).refused(&rule.reason, detail);
        report::push(violation, self.is_let_through(ready), self.walk.violations);
    }

    /// What was so before is let through, unless the rule is about the change.
    fn is_let_through(&self, ready: &CompiledRule) -> bool {
        !ready.asks_for_old && self.past.is_same()
    }

    /// Takes what an evaluation did cost, if that much is left.
    fn pay(&mut self, evaluation: &Evaluation) -> bool {
        let cost = i64::try_from(evaluation.cost)
            .ok()
            .filter(|cost| *cost <= self.walk.budget);
        self.walk.budget -= cost.unwrap_or_default();
        cost.is_some()
    }

    fn failed(&mut self, detail: &str) {
        let violation = self.blame.failed(detail);
        self.walk.violations.0.push(violation);
    }

    fn ended(&mut self, detail: &str) -> Exhausted {
        self.failed(detail);
        Exhausted
    }
}

/// A message that can be shown: one line, not empty, not too long.
fn usable(text: &str) -> Option<String> {
    let text = text.trim();
    (!text.is_empty() && text.len() <= MESSAGE_LIMIT && !text.contains('\n'))
        .then(|| text.to_owned())
}
