//! What do expressions see, and what may it cost to look?
//!
//! A [`Scene`] holds a request's objects. Variables are evaluated over it when an expression first asks for them, and
//! once for all expressions that are evaluated together.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use mizzen_cel as cel;
use mizzen_cel::{Activation, EvalError, EvalLimits, Lazy, LazyFields, MapVal, Outcome, library};
use mizzen_value::{Value, json};

use super::questions::Questions;
use super::spec::{Expression, Variables};

/// What one expression may cost.
const CALL: u64 = 1_000_000;

/// What all expressions of a policy may cost for one binding and parameter.
pub(super) const BUDGET: u64 = 10_000_000;

/// What the conditions of a policy or webhook may cost.
pub(super) const CONDITIONS_BUDGET: u64 = 2_500_000;

/// After so much others have their turn.
const LONG: u64 = 100_000;

/// How much of the stack variables of variables may take.
const STACK: usize = 512 * 1024;

/// What expressions see. What is missing is `null`.
#[derive(Debug, Default)]
pub(super) struct Scene {
    pub object: Value,
    pub old: Value,
    pub request: Value,
    pub namespace: Value,
    pub params: Value,
    pub questions: Option<Arc<Questions>>,
}

/// What not every expression sees.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sight {
    pub authorizer: bool,
    pub namespace: bool,
}

impl Sight {
    pub(super) const ALL: Sight = Sight {
        authorizer: true,
        namespace: true,
    };
}

/// All expressions together would have cost more than they may.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "validation failed due to running out of cost budget, no further validation rules will be run"
)]
pub(super) struct OutOfBudget;

/// What became of each expression, or what is wrong with it; and how much of the budget is left.
pub(super) type Results<T> = Result<(Vec<Result<T, String>>, u64), OutOfBudget>;

impl Scene {
    /// Evaluates expressions in order, again and again until all questions about permissions are answered. `read`
    /// takes what is wanted from their values.
    pub(super) async fn evaluate<T>(
        &self,
        variables: &Variables,
        expressions: &[&Expression],
        sight: Sight,
        budget: u64,
        read: impl Fn(&cel::Value) -> T,
    ) -> Results<T> {
        loop {
            let results = self
                .evaluate_once(variables, expressions, sight, budget, &read)
                .await;
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
        variables: &Variables,
        expressions: &[&Expression],
        sight: Sight,
        mut budget: u64,
        read: impl Fn(&cel::Value) -> T,
    ) -> Results<T> {
        let stage = Stage::new(self, variables, sight);
        stage.lazy.get_or_init(|| Computed(&stage));
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

/// A scene with its variables, as far as they are known.
struct Stage<'a> {
    scene: &'a Scene,
    sight: Sight,
    variables: &'a Variables,
    values: Vec<OnceLock<Outcome<'a>>>,
    /// Which variables are being evaluated.
    busy: Vec<AtomicBool>,
    lazy: OnceLock<Computed<'a>>,
    /// What variables did cost since somebody looked.
    cost: AtomicU64,
    /// Where the stack was when the evaluation began.
    bottom: AtomicUsize,
}

impl<'a> Stage<'a> {
    fn new(scene: &'a Scene, variables: &'a Variables, sight: Sight) -> Stage<'a> {
        Stage {
            scene,
            sight,
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
        expression: &Expression,
        budget: &mut u64,
    ) -> Result<Result<cel::Value<'a>, String>, OutOfBudget> {
        let program = match &expression.compiled {
            Ok(program) => program,
            Err(refusal) => return Ok(Err(format!("compilation error: {refusal}"))),
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

    fn compute(&'a self, name: &str, expression: &'a Expression) -> Outcome<'a> {
        let failed = |what: &str, why: &dyn std::fmt::Display| {
            EvalError::new(format!(
                "composited variable {} fails to {what}: {why}",
                json::quote(name)
            ))
        };
        let program = expression
            .compiled
            .as_ref()
            .map_err(|refusal| failed("compile", refusal))?;
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

/// About where the stack is now.
#[inline(never)]
fn stack() -> usize {
    let here = 0u8;
    std::ptr::from_ref(std::hint::black_box(&here)).addr()
}

impl Activation for Stage<'_> {
    fn variable(&self, name: &str) -> Option<Outcome<'_>> {
        let scene = self.scene;
        let questions = scene.questions.as_ref().filter(|_| self.sight.authorizer);
        Some(Ok(match name {
            "object" => cel::Value::data(&scene.object),
            "oldObject" => cel::Value::data(&scene.old),
            "request" => cel::Value::data(&scene.request),
            "params" => cel::Value::data(&scene.params),
            "namespaceObject" if self.sight.namespace => cel::Value::data(&scene.namespace),
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

/// A stage's variables, which are part of it.
struct Computed<'a>(&'a Stage<'a>);

impl LazyFields for Computed<'_> {
    fn field(&self, name: &str) -> Option<Outcome<'_>> {
        self.0.value(name)
    }
}
