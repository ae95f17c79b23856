//! The evaluation of CEL expressions: their variables and cost limits.
//!
//! The objects of a request are variables. Composed variables (`variables.x`) are evaluated lazily, once for all
//! expressions that are evaluated together.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use mizzen_cel as cel;
use mizzen_cel::{Activation, EvalError, EvalLimits, Lazy, LazyFields, MapVal, Outcome, library};
use mizzen_value::{Value, json};

use super::authorizer::AuthorizerChecks;
use super::spec::{PolicyExpression, Variables};

/// The cost limit of one expression.
const CALL: u64 = 1_000_000;

/// The cost budget of all expressions of a policy for one binding and parameter.
pub(super) const BUDGET: u64 = 10_000_000;

/// The cost budget of `matchConditions`.
pub(super) const CONDITIONS_BUDGET: u64 = 2_500_000;

/// After this cost the task yields.
const LONG: u64 = 100_000;

/// How much of the stack nested variables may take.
const STACK: usize = 512 * 1024;

/// The variables of expressions. Missing ones are `null`.
#[derive(Debug, Default)]
pub(super) struct PolicyActivation {
    pub object: Value,
    pub old: Value,
    pub request: Value,
    pub namespace: Value,
    pub params: Value,
    pub questions: Option<Arc<AuthorizerChecks>>,
}

/// The variables that not every expression has.
#[derive(Debug, Clone, Copy)]
pub(super) struct OptionalVariables {
    pub authorizer: bool,
    pub namespace: bool,
}

impl OptionalVariables {
    pub(super) const ALL: OptionalVariables = OptionalVariables {
        authorizer: true,
        namespace: true,
    };
}

/// What is evaluated together.
#[derive(Clone, Copy)]
pub(super) struct ExpressionBatch<'a> {
    pub variables: &'a Variables,
    pub expressions: &'a [&'a PolicyExpression],
    pub optional: OptionalVariables,
    pub budget: u64,
}

/// The cost budget is exceeded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "validation failed due to running out of cost budget, no further validation rules will be run"
)]
pub(super) struct OutOfBudget;

/// The result or error of each expression, and the rest of the budget.
pub(super) type Results<T> = Result<(Vec<Result<T, String>>, u64), OutOfBudget>;

impl PolicyActivation {
    /// Evaluates expressions in order, repeatedly until all authorization checks are decided. `read` converts their values.
    pub(super) async fn evaluate<T>(
        &self,
        evaluation: ExpressionBatch<'_>,
        read: impl Fn(&cel::Value) -> T,
    ) -> Results<T> {
        loop {
            let results = self.evaluate_once(evaluation, &read).await;
            let again = match &self.questions {
                Some(questions) => questions.answer().await,
                None => false,
            };
            if !again {
                return results;
            }
        }
    }

    async fn evaluate_once<T>(
        &self,
        evaluation: ExpressionBatch<'_>,
        read: impl Fn(&cel::Value) -> T,
    ) -> Results<T> {
        let ExpressionBatch {
            variables,
            expressions,
            optional,
            mut budget,
        } = evaluation;
        let stage = EvaluationScope::new(self, variables, optional);
        stage.lazy.get_or_init(|| ComposedVariables(&stage));
        let (mut results, mut seen) = (Vec::with_capacity(expressions.len()), budget);
        for expression in expressions {
            results.push(
                stage
                    .evaluate(expression, &mut budget)?
                    .map(|value| read(&value)),
            );
            if seen - budget > LONG {
                seen = budget;
                tokio::task::yield_now().await;
            }
        }
        Ok((results, budget))
    }
}

/// The variables of one evaluation, with those that have been computed.
struct EvaluationScope<'a> {
    activation: &'a PolicyActivation,
    optional: OptionalVariables,
    variables: &'a Variables,
    values: Vec<OnceLock<Outcome<'a>>>,
    /// Which variables are being evaluated.
    busy: Vec<AtomicBool>,
    lazy: OnceLock<ComposedVariables<'a>>,
    /// The cost of variables since it was last taken.
    cost: AtomicU64,
    /// The stack pointer at the start of the evaluation.
    bottom: AtomicUsize,
}

impl<'a> EvaluationScope<'a> {
    fn new(
        activation: &'a PolicyActivation,
        variables: &'a Variables,
        optional: OptionalVariables,
    ) -> EvaluationScope<'a> {
        EvaluationScope {
            activation,
            optional,
            variables,
            values: variables.iter().map(|_| OnceLock::new()).collect(),
            busy: variables.iter().map(|_| AtomicBool::new(false)).collect(),
            lazy: OnceLock::new(),
            cost: AtomicU64::new(0),
            bottom: AtomicUsize::new(0),
        }
    }

    fn evaluate(
        &'a self,
        expression: &PolicyExpression,
        budget: &mut u64,
    ) -> Result<Result<cel::Value<'a>, String>, OutOfBudget> {
        let program = match &expression.compiled {
            Ok(program) => program,
            Err(problem) => return Ok(Err(format!("compilation error: {problem}"))),
        };
        self.bottom.store(stack(), Ordering::Relaxed);
        let evaluation = program.evaluate(
            self,
            EvalLimits {
                cost: CALL,
                interrupted: None,
            },
        );
        for cost in [self.cost.swap(0, Ordering::Relaxed), evaluation.cost] {
            *budget = budget.checked_sub(cost).ok_or(OutOfBudget)?;
        }
        let text = &expression.text;
        Ok(evaluation
            .value
            .map_err(|error| format!("expression '{text}' resulted in error: {error}")))
    }

    /// The value of a variable.
    fn value(&'a self, name: &str) -> Option<Outcome<'a>> {
        let at = self
            .variables
            .iter()
            .rposition(|(known, _)| known == name)?;
        if let Some(value) = self.values[at].get() {
            return Some(value.clone());
        }
        if self.busy[at].swap(true, Ordering::Relaxed)
            || self.bottom.load(Ordering::Relaxed).abs_diff(stack()) > STACK
        {
            let name = json::quote(name);
            return Some(Err(EvalError::new(format!(
                "composited variable {name} depends on too many others"
            ))));
        }
        let value = self.compute(name, &self.variables[at].1);
        self.busy[at].store(false, Ordering::Relaxed);
        Some(self.values[at].get_or_init(|| value).clone())
    }

    fn compute(&'a self, name: &str, expression: &'a PolicyExpression) -> Outcome<'a> {
        let failed = |what: &str, why: &dyn std::fmt::Display| {
            EvalError::new(format!(
                "composited variable {} fails to {what}: {why}",
                json::quote(name)
            ))
        };
        let program = expression
            .compiled
            .as_ref()
            .map_err(|problem| failed("compile", problem))?;
        let evaluation = program.evaluate(
            self,
            EvalLimits {
                cost: CALL,
                interrupted: None,
            },
        );
        self.cost.fetch_add(evaluation.cost, Ordering::Relaxed);
        evaluation.value.map_err(|error| failed("evaluate", &error))
    }
}

/// Approximately the stack pointer.
#[inline(never)]
fn stack() -> usize {
    let here = 0u8;
    std::ptr::from_ref(std::hint::black_box(&here)).addr()
}

impl Activation for EvaluationScope<'_> {
    fn variable(&self, name: &str) -> Option<Outcome<'_>> {
        let activation = self.activation;
        let questions = activation
            .questions
            .as_ref()
            .filter(|_| self.optional.authorizer);
        Some(Ok(match name {
            "object" => cel::Value::data(&activation.object),
            "oldObject" => cel::Value::data(&activation.old),
            "request" => cel::Value::data(&activation.request),
            "params" => cel::Value::data(&activation.params),
            "namespaceObject" if self.optional.namespace => cel::Value::data(&activation.namespace),
            "namespaceObject" => cel::Value::Null,
            "authorizer" => library::authorizer(questions?.clone()),
            "authorizer.requestResource" => {
                let questions = questions?;
                library::resource_check(questions.clone(), questions.resource().clone())
            }
            "variables" => cel::Value::Map(MapVal::Lazy(Lazy(self.lazy.get()?))),
            _ => return None,
        }))
    }
}

/// The composed variables.
struct ComposedVariables<'a>(&'a EvaluationScope<'a>);

impl LazyFields for ComposedVariables<'_> {
    fn field(&self, name: &str) -> Option<Outcome<'_>> {
        self.0.value(name)
    }
}
