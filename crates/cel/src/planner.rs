//! The planner: a checked expression becomes an [`Interpretable`]. Identifiers become slots, calls
//! become overloads, constants are folded.
//!
//! Kubernetes: folded constants cost nothing at run time, so exactly what cel-go's optimizer folds
//! is folded (interpreter/decorators.go); and a path like `a.b[c]` is one attribute with
//! qualifiers, because it is charged that way.

use std::collections::HashSet;
use std::sync::Arc;

use super::ast::{CallExpr, Comprehension, Expr, ExprKind, FieldEntry, MapEntry, Select};
use super::checker::{Checked, ReferenceInfo};
use super::function::{CallSite, Overload};
use super::interpreter;
use super::value::{EvalError, ListVal, MapKey, MapVal, Value};
use mizzen_go_regexp::Regexp;
use mizzen_value::Str;

/// A node of a planned expression.
#[derive(Debug)]
pub(crate) enum Interpretable {
    Constant(Value<'static>),
    Attribute(Box<Attribute>),
    /// `&&` stops at false, `||` at true.
    Logical(Vec<Interpretable>, bool),
    /// `==`, or `!=`.
    Equals(Box<(Interpretable, Interpretable)>, bool),
    Call(Box<CallPlan>),
    /// `or`, or `orValue`.
    OrElse(Box<(Interpretable, Interpretable)>, bool),
    /// `x in [constants]`.
    Member(Box<Interpretable>, HashSet<MapKey>),
    List(Vec<(Interpretable, bool)>),
    Map(Vec<(Interpretable, Interpretable, bool)>),
    /// An object of a type, by its name.
    Object(Str, Vec<(Str, Interpretable, bool)>),
    Fold(Box<Fold>),
    /// Adds to the accumulator in place: items of a list, or entries of a map.
    Accumulate(usize, Box<CallPlan>),
}

/// An attribute: a value with a path of qualifiers.
#[derive(Debug)]
pub(crate) struct Attribute {
    pub(crate) root: AttributeRoot,
    pub(crate) qualifiers: Vec<Qualifier>,
    /// Whether it is a presence test of the last qualifier.
    pub(crate) test: bool,
}

#[derive(Debug)]
pub(crate) enum AttributeRoot {
    Variable(Str),
    Local(usize),
    Value(Interpretable),
    Conditional(Box<(Interpretable, Attribute, Attribute)>),
}

/// One step of an attribute's path.
#[derive(Debug, Clone)]
pub(crate) struct Qualifier {
    pub(crate) key: Arc<QualifierKey>,
    pub(crate) optional: bool,
}

#[derive(Debug)]
pub(crate) enum QualifierKey {
    Constant(Value<'static>),
    Plan(Interpretable),
}

#[derive(Debug)]
pub(crate) struct CallPlan {
    pub(crate) function: Str,
    /// The candidate overloads; exactly one if the types are known.
    pub(crate) overloads: Vec<Arc<Overload>>,
    pub(crate) arguments: Vec<Interpretable>,
    pub(crate) site: CallSite,
}

/// A comprehension with the slots of its variables.
#[derive(Debug)]
pub(crate) struct Fold {
    pub(crate) range: Interpretable,
    pub(crate) accumulator: usize,
    pub(crate) variable: usize,
    pub(crate) second: Option<usize>,
    pub(crate) init: Interpretable,
    pub(crate) condition: Interpretable,
    pub(crate) step: Interpretable,
    pub(crate) result: Interpretable,
}

/// A planned expression and the number of its slots.
#[derive(Debug)]
pub(crate) struct Planned {
    pub(crate) root: Interpretable,
    pub(crate) n_slots: usize,
}

/// Plans a checked expression; `fold` enables constant folding.
pub(crate) fn plan(checked: &Checked, fold: bool) -> Result<Planned, EvalError> {
    let mut planner = Planner {
        checked,
        fold,
        scopes: Vec::new(),
        n_slots: 0,
    };
    let root = planner.plan(&checked.expr)?;
    Ok(Planned {
        root,
        n_slots: planner.n_slots,
    })
}

struct Planner<'a> {
    checked: &'a Checked,
    fold: bool,
    scopes: Vec<(Str, usize)>,
    n_slots: usize,
}

type Step = Result<Interpretable, EvalError>;

impl Planner<'_> {
    fn plan(&mut self, expr: &Expr) -> Step {
        match &expr.kind {
            ExprKind::Literal(literal) => Ok(Interpretable::Constant(literal.value())),
            ExprKind::Ident(name) => Ok(self.name(expr, name)),
            ExprKind::Select(select) => self.select(select),
            ExprKind::Call(call) => self.call(expr, call),
            ExprKind::List(items, optional) => self.list(items, optional),
            ExprKind::Map(entries) => self.map(entries),
            ExprKind::Struct(name, fields) => self.object(name, fields),
            ExprKind::Comprehension(it) => self.fold(it),
        }
    }

    fn select(&mut self, select: &Select) -> Step {
        let mut attribute = self.attribute(&select.operand)?;
        attribute.qualify(QualifierKey::Constant(select.field.clone().into()), false);
        attribute.test = select.test;
        Ok(Interpretable::Attribute(Box::new(attribute)))
    }

    fn map(&mut self, entries: &[MapEntry]) -> Step {
        let plan = |entry: &MapEntry| {
            Ok((
                self.plan(&entry.key)?,
                self.plan(&entry.value)?,
                entry.optional,
            ))
        };
        let entries: Vec<_> = entries.iter().map(plan).collect::<Result<_, EvalError>>()?;
        let constant = |entry: &(Interpretable, Interpretable, bool)| match entry {
            (Interpretable::Constant(key), Interpretable::Constant(value), false) => {
                Some((key.clone(), value.clone()))
            }
            _ => None,
        };
        let constants = entries.iter().map(constant).collect::<Option<Vec<_>>>();
        let folded = constants.filter(|_| self.fold).and_then(MapVal::new);
        Ok(folded.map_or(Interpretable::Map(entries), |map| {
            Interpretable::Constant(map.into())
        }))
    }

    fn object(&mut self, name: &Str, fields: &[FieldEntry]) -> Step {
        let plan =
            |field: &FieldEntry| Ok((field.name.clone(), self.plan(&field.value)?, field.optional));
        Ok(Interpretable::Object(
            name.clone(),
            fields.iter().map(plan).collect::<Result<_, EvalError>>()?,
        ))
    }

    fn name(&self, expr: &Expr, name: &Str) -> Interpretable {
        if let Some(ReferenceInfo::Type(name)) = self.checked.references.get(&expr.id) {
            return Interpretable::Constant(Value::Type(name.clone()));
        }
        let local = self.scopes.iter().rev().find(|(local, _)| local == name);
        let root = match local {
            Some((_, slot)) => AttributeRoot::Local(*slot),
            None => AttributeRoot::Variable(name.strip_prefix('.').unwrap_or(name).into()),
        };
        Interpretable::Attribute(Box::new(Attribute {
            root,
            qualifiers: Vec::new(),
            test: false,
        }))
    }

    /// The attribute for an operand that is qualified.
    fn attribute(&mut self, operand: &Expr) -> Result<Attribute, EvalError> {
        Ok(match self.plan(operand)? {
            Interpretable::Attribute(attribute) if !attribute.test => *attribute,
            other => Attribute {
                root: AttributeRoot::Value(other),
                qualifiers: Vec::new(),
                test: false,
            },
        })
    }

    fn list(&mut self, items: &[Expr], optional: &[usize]) -> Step {
        let plan =
            |(index, item): (usize, &Expr)| Ok((self.plan(item)?, optional.contains(&index)));
        let items: Vec<_> = items
            .iter()
            .enumerate()
            .map(plan)
            .collect::<Result<_, EvalError>>()?;
        let constant = |(item, optional): &(Interpretable, bool)| match item {
            Interpretable::Constant(value) if !optional => Some(value.clone()),
            _ => None,
        };
        match items.iter().map(constant).collect::<Option<Vec<_>>>() {
            Some(values) if self.fold => Ok(Interpretable::Constant(ListVal::new(values).into())),
            _ => Ok(Interpretable::List(items)),
        }
    }

    fn call(&mut self, expr: &Expr, call: &CallExpr) -> Step {
        let name = call.function.as_str();
        if matches!(name, "_[_]" | "_[?_]" | "_?._") {
            return self.index(call, name != "_[_]");
        }
        let plan = |argument: &Expr| self.plan(argument);
        let mut arguments: Vec<Interpretable> = call
            .target
            .iter()
            .chain(&call.arguments)
            .map(plan)
            .collect::<Result<_, _>>()?;
        let overloads = match self.checked.references.get(&expr.id) {
            Some(ReferenceInfo::Overloads(overloads)) => overloads.clone(),
            _ => Vec::new(),
        };
        match (name, arguments.len()) {
            ("_&&_", _) => return Ok(Interpretable::Logical(arguments, false)),
            ("_||_", _) => return Ok(Interpretable::Logical(arguments, true)),
            ("_?_:_", 3) => return Ok(Interpretable::conditional(arguments)),
            ("_==_" | "_!=_", 2) => {
                let right = pop(&mut arguments);
                let left = pop(&mut arguments);
                return Ok(Interpretable::Equals(
                    Box::new((left, right)),
                    name == "_!=_",
                ));
            }
            ("or" | "orValue", 2)
                if overloads
                    .iter()
                    .any(|overload| overload.id.starts_with("optional_or")) =>
            {
                let right = pop(&mut arguments);
                let left = pop(&mut arguments);
                return Ok(Interpretable::OrElse(
                    Box::new((left, right)),
                    name == "orValue",
                ));
            }
            _ => {}
        }
        let site = site(&overloads, &arguments)?;
        let plan = CallPlan {
            function: call.function.clone(),
            overloads,
            arguments,
            site,
        };
        if self.fold {
            plan.optimize()
        } else {
            Ok(Interpretable::Call(Box::new(plan)))
        }
    }

    fn index(&mut self, call: &CallExpr, optional: bool) -> Step {
        let mut attribute = self.attribute(&call.arguments[0])?;
        let key = match self.plan(&call.arguments[1])? {
            Interpretable::Constant(value) => QualifierKey::Constant(value),
            other => QualifierKey::Plan(other),
        };
        attribute.qualify(key, optional);
        Ok(Interpretable::Attribute(Box::new(attribute)))
    }

    fn fold(&mut self, it: &Comprehension) -> Step {
        let (init, range) = (self.plan(&it.init)?, self.plan(&it.range)?);
        let depth = self.scopes.len();
        let accumulator = self.slot();
        let variable = self.slot();
        let second = it.second.as_ref().map(|_| self.slot());
        self.scopes.extend(
            it.second
                .iter()
                .map(|name| (name.clone(), second.unwrap_or(variable))),
        );
        self.scopes.push((it.variable.clone(), variable));
        self.scopes.push((it.accumulator.clone(), accumulator));
        let (condition, step) = (self.plan(&it.condition)?, self.plan(&it.step)?);
        self.scopes.truncate(depth);
        self.scopes.push((it.accumulator.clone(), accumulator));
        let result = self.plan(&it.result)?;
        self.scopes.truncate(depth);
        let step = in_place(step, accumulator);
        let fold = Fold {
            range,
            accumulator,
            variable,
            second,
            init,
            condition,
            step,
            result,
        };
        Ok(Interpretable::Fold(Box::new(fold)))
    }

    /// Invariant: no two comprehensions share a slot, so that an initial value can be computed
    /// lazily.
    fn slot(&mut self) -> usize {
        self.n_slots += 1;
        self.n_slots - 1
    }
}

impl Attribute {
    fn qualify(&mut self, key: QualifierKey, optional: bool) {
        self.push(Qualifier {
            key: Arc::new(key),
            optional,
        });
    }

    fn push(&mut self, qualifier: Qualifier) {
        match &mut self.root {
            AttributeRoot::Conditional(branches) => {
                branches.1.push(qualifier.clone());
                branches.2.push(qualifier);
            }
            _ => self.qualifiers.push(qualifier),
        }
    }
}

impl Interpretable {
    /// `condition ? then : otherwise`.
    fn conditional(mut arguments: Vec<Interpretable>) -> Interpretable {
        let branch = |plan: Interpretable| match plan {
            Interpretable::Attribute(attribute) => *attribute,
            other => Attribute {
                root: AttributeRoot::Value(other),
                qualifiers: Vec::new(),
                test: false,
            },
        };
        let otherwise = branch(pop(&mut arguments));
        let then = branch(pop(&mut arguments));
        let condition = pop(&mut arguments);
        let root = AttributeRoot::Conditional(Box::new((condition, then, otherwise)));
        Interpretable::Attribute(Box::new(Attribute {
            root,
            qualifiers: Vec::new(),
            test: false,
        }))
    }
}

/// Checks a literal regular expression. It is compiled when it is first matched.
fn site(overloads: &[Arc<Overload>], arguments: &[Interpretable]) -> Result<CallSite, EvalError> {
    let pattern = overloads.iter().find_map(|overload| overload.pattern);
    let pattern = pattern.and_then(|argument| arguments.get(argument));
    let Some(Interpretable::Constant(Value::String(pattern))) = pattern else {
        return Ok(CallSite::default());
    };
    mizzen_go_regexp::check(pattern).map_err(|error| EvalError::new(error.to_string()))?;
    Ok(CallSite {
        pattern: Some(Regexp::new(pattern)),
    })
}

/// The last argument, where the number of arguments is checked.
fn pop(arguments: &mut Vec<Interpretable>) -> Interpretable {
    arguments.pop().expect("the arity is checked")
}

const CONVERSIONS: [&str; 10] = [
    "bool",
    "bytes",
    "double",
    "duration",
    "dyn",
    "int",
    "string",
    "timestamp",
    "type",
    "uint",
];

impl CallPlan {
    /// Folds conversions of constants and membership in a list of constants.
    fn optimize(mut self) -> Step {
        if let ([overload], [_, Interpretable::Constant(Value::List(list))]) =
            (&self.overloads[..], &self.arguments[..])
            && overload.id == "in_list"
        {
            if list.is_empty() {
                return Ok(Interpretable::Constant(Value::Bool(false)));
            }
            if let Some(keys) = list
                .iter()
                .map(|item| MapKey::from_value(&item.ok()?))
                .collect()
            {
                return Ok(Interpretable::Member(
                    Box::new(self.arguments.swap_remove(0)),
                    keys,
                ));
            }
        }
        if let (true, [Interpretable::Constant(_)]) = (
            CONVERSIONS.contains(&self.function.as_str()),
            &self.arguments[..],
        ) {
            let Interpretable::Constant(argument) = self.arguments.swap_remove(0) else {
                unreachable!("matched above")
            };
            return interpreter::call(&self, &[argument]).map(Interpretable::Constant);
        }
        Ok(Interpretable::Call(Box::new(self)))
    }
}

/// Rewrites `accumulator + [item]` to append in place; also inside a conditional.
fn in_place(step: Interpretable, slot: usize) -> Interpretable {
    match step {
        Interpretable::Call(call) if call.accumulates(slot) => {
            Interpretable::Accumulate(slot, call)
        }
        Interpretable::Attribute(mut attribute) => {
            if let AttributeRoot::Conditional(branches) = &mut attribute.root
                && let AttributeRoot::Value(then) = &mut branches.1.root
            {
                let plan = std::mem::replace(then, Interpretable::Constant(Value::Null));
                *then = in_place(plan, slot);
            }
            Interpretable::Attribute(attribute)
        }
        other => other,
    }
}

impl CallPlan {
    /// Whether it appends to the accumulator in `slot`.
    fn accumulates(&self, slot: usize) -> bool {
        let accumulator = matches!(self.arguments.first(), Some(Interpretable::Attribute(attribute))
            if attribute.qualifiers.is_empty() && matches!(attribute.root, AttributeRoot::Local(local) if local == slot));
        let appends = &self.function == "_+_"
            && matches!(
                self.arguments.get(1),
                Some(Interpretable::List(_) | Interpretable::Constant(Value::List(_)))
            );
        accumulator
            && (appends || (&self.function == "cel.@mapInsert" && self.arguments.len() == 3))
    }
}
