//! The interpreter: evaluates a planned expression and counts its cost.
//!
//! Kubernetes: costs are cel-go's (interpreter/runtimecost.go): an identifier costs 1, each
//! qualifier 1, a call what its overload says, a literal nothing; `has()` costs 1 less than its
//! path.

mod fold;

use std::sync::atomic::AtomicBool;

use super::estimate::{LIST, MAP, STRUCT};
use super::planner::{
    Attribute, AttributeRoot, CallPlan, Interpretable, Planned, Qualifier, QualifierKey,
};
use super::standard::{self, equal};
use super::value::{EvalError, MapKey, MapVal, Outcome, Value};

/// The variables of an evaluation.
pub trait Activation {
    /// The value of a variable; `None` if it is not bound.
    fn variable(&self, name: &str) -> Option<Outcome<'_>>;
}

/// Variables by their names.
impl<'v> Activation for [(&str, Value<'v>)] {
    fn variable(&self, name: &str) -> Option<Outcome<'_>> {
        self.iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| Ok(value.clone()))
    }
}

/// Variables by their names.
impl<'v, const N: usize> Activation for [(&str, Value<'v>); N] {
    fn variable(&self, name: &str) -> Option<Outcome<'_>> {
        self.as_slice().variable(name)
    }
}

/// The limits of an evaluation.
#[derive(Debug, Clone, Copy)]
pub struct EvalLimits<'a> {
    /// The maximum cost.
    pub cost: u64,
    /// Set to interrupt the evaluation.
    pub interrupted: Option<&'a AtomicBool>,
}

impl EvalLimits<'_> {
    /// A cost limit.
    pub fn cost(cost: u64) -> Self {
        EvalLimits {
            cost,
            interrupted: None,
        }
    }
}

/// The value of an expression and its cost.
#[derive(Debug, Clone)]
pub struct EvalResult<'a> {
    /// The value, or the error.
    pub value: Outcome<'a>,
    /// The cost of what was evaluated.
    pub cost: u64,
}

pub(crate) fn evaluate<'a>(
    planned: &Planned,
    activation: &'a dyn Activation,
    budget: EvalLimits,
) -> EvalResult<'a> {
    let mut evaluator = Interpreter {
        activation,
        budget,
        cost: 0,
        slots: Vec::new(),
    };
    evaluator.slots.resize_with(planned.n_slots, || Slot::Empty);
    let value = evaluator.eval(&planned.root);
    EvalResult {
        value,
        cost: evaluator.cost,
    }
}

/// Runs the overload that matches the arguments.
pub(crate) fn call<'a>(call: &CallPlan, arguments: &[Value<'a>]) -> Outcome<'a> {
    if arguments
        .first()
        .is_some_and(|first| !first.has_operator(&call.function))
    {
        return Err(EvalError::new(format!(
            "no such overload: {}",
            call.function
        )));
    }
    match &call.overloads[..] {
        [overload] => (overload.run)(&call.site, arguments),
        overloads => {
            let fits = overloads
                .iter()
                .find(|overload| standard::accepts(&overload.parameters, arguments));
            let overload = fits.ok_or_else(|| {
                if !call.function.starts_with(|c: char| c.is_ascii_alphabetic()) {
                    return EvalError::no_such_overload();
                }
                let types: Vec<_> = arguments.iter().map(Value::type_name).collect();
                let (function, types) = (&call.function, types.join(", "));
                EvalError::new(format!("no such overload: {function}({types})"))
            })?;
            (overload.run)(&call.site, arguments)
        }
    }
}

struct Interpreter<'p, 'a, 'b> {
    activation: &'a dyn Activation,
    budget: EvalLimits<'b>,
    cost: u64,
    slots: Vec<Slot<'p, 'a>>,
}

enum Slot<'p, 'a> {
    Empty,
    /// The initial value of an accumulator, not evaluated yet.
    Late(&'p Interpretable),
    Known(Outcome<'a>),
}

impl<'p, 'a> Interpreter<'p, 'a, '_> {
    fn eval(&mut self, plan: &'p Interpretable) -> Outcome<'a> {
        match plan {
            Interpretable::Constant(value) => Ok(value.clone()),
            Interpretable::Attribute(attribute) => self.attribute(attribute),
            Interpretable::Logical(terms, stop) => self.logical(terms, *stop),
            Interpretable::Equals(sides, negate) => self.equals(&sides.0, &sides.1, *negate),
            Interpretable::Call(call) => self.call(call),
            Interpretable::OrElse(sides, value) => match self.eval(&sides.0)? {
                Value::Optional(None) => self.eval(&sides.1),
                Value::Optional(Some(inside)) if *value => Ok((*inside).clone()),
                other => Ok(other),
            },
            Interpretable::Member(item, keys) => {
                let key = MapKey::from_value(&self.eval(item)?);
                Ok(Value::Bool(key.is_some_and(|key| keys.contains(&key))))
            }
            Interpretable::List(items) => self.list(items),
            Interpretable::Map(entries) => self.map(entries),
            Interpretable::Object(kind, fields) => self.object(kind, fields),
            Interpretable::Fold(fold) => self.fold(fold),
            Interpretable::Accumulate(slot, call) => self.accumulate(*slot, call),
        }
    }

    fn charge(&mut self, cost: u64) -> Result<(), EvalError> {
        self.cost = self.cost.saturating_add(cost);
        if self.cost > self.budget.cost {
            Err(EvalError::CostLimit)
        } else {
            Ok(())
        }
    }

    /// Evaluates an attribute as a node of its own.
    fn attribute(&mut self, attribute: &'p Attribute) -> Outcome<'a> {
        let value = self.resolve(attribute);
        if value.as_ref().is_err_and(EvalError::is_fatal) {
            return value;
        }
        if !matches!(attribute.root, AttributeRoot::Conditional(_)) && !attribute.test {
            self.charge(1)?;
        }
        value
    }

    fn resolve(&mut self, attribute: &'p Attribute) -> Outcome<'a> {
        let root = match &attribute.root {
            AttributeRoot::Variable(name) => match self.activation.variable(name) {
                Some(value) => value?,
                None => return Err(EvalError::new(format!("no such attribute(s): {name}"))),
            },
            AttributeRoot::Local(slot) => self.local(*slot)?,
            AttributeRoot::Value(plan) => self.eval(plan)?,
            AttributeRoot::Conditional(branches) => {
                return match self.eval(&branches.0)? {
                    Value::Bool(true) => self.resolve(&branches.1),
                    Value::Bool(false) => self.resolve(&branches.2),
                    _ => Err(EvalError::no_such_overload()),
                };
            }
        };
        self.follow(root, &attribute.qualifiers, attribute.test)
    }

    fn local(&mut self, slot: usize) -> Outcome<'a> {
        match &self.slots[slot] {
            Slot::Known(value) => value.clone(),
            Slot::Empty => Err(EvalError::no_such_overload()),
            Slot::Late(init) => {
                let value = self.eval(init);
                self.slots[slot] = Slot::Known(value.clone());
                value
            }
        }
    }

    /// Resolves qualifiers.
    fn follow(&mut self, root: Value<'a>, qualifiers: &'p [Qualifier], test: bool) -> Outcome<'a> {
        if qualifiers.is_empty() {
            return Ok(root);
        }
        let (mut value, mut optional) = match root {
            Value::Optional(None) if test => return Ok(Value::Bool(false)),
            Value::Optional(None) => return Ok(Value::Optional(None)),
            Value::Optional(Some(inside)) => ((*inside).clone(), true),
            other => (other, false),
        };
        for (index, qualifier) in qualifiers.iter().enumerate() {
            optional |= qualifier.optional;
            let testing = test && index + 1 == qualifiers.len();
            let key = self.key(&qualifier.key)?;
            let found = standard::qualify(&value, &key);
            // An optional qualifier without a value costs nothing.
            if !optional || testing || !matches!(found, Ok(None)) {
                self.charge(1)?;
            }
            match found? {
                found if testing => return Ok(Value::Bool(found.is_some())),
                Some(found) => value = found?,
                None if optional => return Ok(Value::Optional(None)),
                None => return Err(standard::missing(&value, &key)),
            }
        }
        Ok(if optional { Value::some(value) } else { value })
    }

    /// The key of a qualifier. An attribute as a key is not charged as an attribute of its own.
    fn key(&mut self, key: &'p QualifierKey) -> Outcome<'a> {
        let key = match key {
            QualifierKey::Constant(key) => return Ok(key.clone()),
            QualifierKey::Plan(Interpretable::Attribute(attribute)) => self.resolve(attribute),
            QualifierKey::Plan(plan) => self.eval(plan),
        };
        if key.as_ref().is_err_and(|error| !error.is_fatal()) {
            self.charge(1)?;
        }
        key
    }

    fn logical(&mut self, terms: &'p [Interpretable], stop: bool) -> Outcome<'a> {
        let mut error = None;
        for term in terms {
            match self.eval(term) {
                Ok(Value::Bool(value)) if value == stop => return Ok(Value::Bool(stop)),
                Ok(Value::Bool(_)) => {}
                Ok(_) => error = error.or(Some(EvalError::no_such_overload())),
                Err(fatal) if fatal.is_fatal() => return Err(fatal),
                Err(failed) => error = error.or(Some(failed)),
            }
        }
        error.map_or(Ok(Value::Bool(!stop)), Err)
    }

    fn equals(
        &mut self,
        left: &'p Interpretable,
        right: &'p Interpretable,
        negate: bool,
    ) -> Outcome<'a> {
        let (left, right) = self.both(left, right)?;
        let cost = match (&left, &right) {
            (Ok(Value::Opaque(_)), _) if !negate => 1,
            _ => standard::comparison_cost(size(&left), size(&right)),
        };
        self.charge(cost)?;
        Ok(Value::Bool(equal(&left?, &right?) != negate))
    }

    /// Evaluates both sides, even if the first fails.
    fn both(
        &mut self,
        left: &'p Interpretable,
        right: &'p Interpretable,
    ) -> Result<(Outcome<'a>, Outcome<'a>), EvalError> {
        let left = self.strict(left)?;
        Ok((left, self.strict(right)?))
    }

    /// The value, or an error that is not fatal.
    fn strict(&mut self, plan: &'p Interpretable) -> Result<Outcome<'a>, EvalError> {
        match self.eval(plan) {
            Err(fatal) if fatal.is_fatal() => Err(fatal),
            outcome => Ok(outcome),
        }
    }

    fn call(&mut self, call: &'p CallPlan) -> Outcome<'a> {
        if &call.function == "@not_strictly_false" {
            let value = self.strict(&call.arguments[0])?;
            self.charge(1)?;
            return Ok(Value::Bool(!matches!(value, Ok(Value::Bool(false)))));
        }
        let (mut arguments, mut error) = (Vec::with_capacity(call.arguments.len()), None);
        for argument in &call.arguments {
            match self.strict(argument)? {
                Ok(value) => arguments.push(value),
                // A call with more than two arguments fails at once, and is not charged.
                Err(failed) if call.arguments.len() > 2 => return Err(failed),
                Err(failed) => {
                    error = error.or(Some(failed));
                    arguments.push(Value::Null);
                }
            }
        }
        let outcome = error.map_or_else(|| self::call(call, &arguments), Err);
        self.charge(standard::call_cost(
            call,
            &arguments,
            outcome.as_ref().unwrap_or(&Value::Null),
        ))?;
        outcome
    }

    fn list(&mut self, items: &'p [(Interpretable, bool)]) -> Outcome<'a> {
        let mut values = Vec::with_capacity(items.len());
        for (item, optional) in items {
            match self.eval(item)? {
                Value::Optional(inside) if *optional => {
                    values.extend(inside.map(|inside| (*inside).clone()))
                }
                other if *optional => {
                    let shown = standard::show(&other);
                    let message = format!(
                        "cannot initialize optional list element from non-optional value {shown}"
                    );
                    return Err(EvalError::new(message));
                }
                value => values.push(value),
            }
        }
        self.charge(LIST)?;
        Ok(values.into())
    }

    fn map(&mut self, entries: &'p [(Interpretable, Interpretable, bool)]) -> Outcome<'a> {
        let mut values = Vec::with_capacity(entries.len());
        for (key, value, optional) in entries {
            let (key, value) = (self.eval(key)?, self.eval(value)?);
            match value {
                Value::Optional(inside) if *optional => {
                    values.extend(inside.map(|inside| (key, (*inside).clone())))
                }
                other if *optional => return Err(not_optional(&standard::show(&key), &other)),
                value => values.push((key, value)),
            }
        }
        self.charge(MAP)?;
        MapVal::new(values)
            .map(Value::Map)
            .ok_or_else(|| EvalError::new("unsupported key type"))
    }

    fn object(
        &mut self,
        kind: &mizzen_value::Str,
        fields: &'p [(mizzen_value::Str, Interpretable, bool)],
    ) -> Outcome<'a> {
        let mut values = Vec::with_capacity(fields.len());
        for (name, value, optional) in fields {
            match self.eval(value)? {
                Value::Optional(inside) if *optional => {
                    values.extend(inside.map(|inside| (name.clone().into(), (*inside).clone())));
                }
                other if *optional => return Err(not_optional(name, &other)),
                value => values.push((name.clone().into(), value)),
            }
        }
        self.charge(STRUCT)?;
        MapVal::typed(kind.clone(), values)
            .map(Value::Map)
            .ok_or_else(EvalError::no_such_overload)
    }
}

fn size(outcome: &Outcome) -> u64 {
    outcome.as_ref().map_or(1, Value::size)
}

fn not_optional(field: &str, value: &Value) -> EvalError {
    let shown = standard::show(value);
    EvalError::new(format!(
        "cannot initialize optional entry '{field}' from non-optional value {shown}"
    ))
}
