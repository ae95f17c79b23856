//! How is an expression evaluated? Names become slots, calls become functions, constants become values.
//!
//! Kubernetes: what is folded here costs nothing at run time, so exactly that is folded which cel-go's optimizer
//! folds (interpreter/decorators.go); and a path like `a.b[c]` is one step with qualifiers, because its parts
//! are charged that way.

use std::collections::HashSet;
use std::sync::Arc;

use super::ast::{Call, Comprehension, Entry, Expr, ExprKind, FieldEntry, Select};
use super::check::{Checked, Reference};
use super::eval;
use super::function::{Overload, Site};
use super::value::{EvalError, Key, List, Map, Value};
use mizzen_go_regexp::Regexp;
use mizzen_value::Str;

/// A step of an evaluation.
#[derive(Debug)]
pub(crate) enum Plan {
    Constant(Value<'static>),
    Attribute(Box<Attribute>),
    /// `&&` stops at false, `||` at true.
    Logical(Vec<Plan>, bool),
    /// `==`, or `!=`.
    Equals(Box<(Plan, Plan)>, bool),
    Call(Box<CallPlan>),
    /// `or`, or `orValue`.
    OrElse(Box<(Plan, Plan)>, bool),
    /// `x in [constants]`.
    Member(Box<Plan>, HashSet<Key>),
    List(Vec<(Plan, bool)>),
    Map(Vec<(Plan, Plan, bool)>),
    /// An object of a type, by its name.
    Object(Str, Vec<(Str, Plan, bool)>),
    Fold(Box<Fold>),
    /// Adds to the accumulator in place: items of a list, or entries of a map.
    Accumulate(usize, Box<CallPlan>),
}

/// A value with a path into it.
#[derive(Debug)]
pub(crate) struct Attribute {
    pub(crate) root: Root,
    pub(crate) qualifiers: Vec<Qualifier>,
    /// Whether only the presence of the last is asked for.
    pub(crate) test: bool,
}

#[derive(Debug)]
pub(crate) enum Root {
    Variable(Str),
    Local(usize),
    Value(Plan),
    Conditional(Box<(Plan, Attribute, Attribute)>),
}

/// One step of a path.
#[derive(Debug, Clone)]
pub(crate) struct Qualifier {
    pub(crate) key: Arc<QualifierKey>,
    pub(crate) optional: bool,
}

#[derive(Debug)]
pub(crate) enum QualifierKey {
    Constant(Value<'static>),
    Plan(Plan),
}

#[derive(Debug)]
pub(crate) struct CallPlan {
    pub(crate) function: Str,
    /// What it may be; exactly one if the types are known.
    pub(crate) overloads: Vec<Arc<Overload>>,
    pub(crate) arguments: Vec<Plan>,
    pub(crate) site: Site,
}

/// A loop, with the slots of its variables.
#[derive(Debug)]
pub(crate) struct Fold {
    pub(crate) range: Plan,
    pub(crate) accumulator: usize,
    pub(crate) variable: usize,
    pub(crate) second: Option<usize>,
    pub(crate) init: Plan,
    pub(crate) condition: Plan,
    pub(crate) step: Plan,
    pub(crate) result: Plan,
}

/// A plan, and how many slots it needs.
#[derive(Debug)]
pub(crate) struct Planned {
    pub(crate) root: Plan,
    pub(crate) n_slots: usize,
}

/// Plans a checked expression; `fold` says whether constants are computed beforehand.
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

type Step = Result<Plan, EvalError>;

impl Planner<'_> {
    fn plan(&mut self, expr: &Expr) -> Step {
        match &expr.kind {
            ExprKind::Literal(literal) => Ok(Plan::Constant(literal.value())),
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
        Ok(Plan::Attribute(Box::new(attribute)))
    }

    fn map(&mut self, entries: &[Entry]) -> Step {
        let plan = |entry: &Entry| {
            Ok((
                self.plan(&entry.key)?,
                self.plan(&entry.value)?,
                entry.optional,
            ))
        };
        let entries: Vec<_> = entries.iter().map(plan).collect::<Result<_, EvalError>>()?;
        if self.fold {
            fold_map(entries)
        } else {
            Ok(Plan::Map(entries))
        }
    }

    fn object(&mut self, name: &Str, fields: &[FieldEntry]) -> Step {
        let plan =
            |field: &FieldEntry| Ok((field.name.clone(), self.plan(&field.value)?, field.optional));
        Ok(Plan::Object(
            name.clone(),
            fields.iter().map(plan).collect::<Result<_, EvalError>>()?,
        ))
    }

    fn name(&self, expr: &Expr, name: &Str) -> Plan {
        if let Some(Reference::Type(name)) = self.checked.references.get(&expr.id) {
            return Plan::Constant(Value::Type(name.clone()));
        }
        let local = self.scopes.iter().rev().find(|(local, _)| local == name);
        let root = match local {
            Some((_, slot)) => Root::Local(*slot),
            None => Root::Variable(name.strip_prefix('.').unwrap_or(name).into()),
        };
        Plan::Attribute(Box::new(Attribute {
            root,
            qualifiers: Vec::new(),
            test: false,
        }))
    }

    /// What a path goes into.
    fn attribute(&mut self, operand: &Expr) -> Result<Attribute, EvalError> {
        Ok(match self.plan(operand)? {
            Plan::Attribute(attribute) if !attribute.test => *attribute,
            other => Attribute {
                root: Root::Value(other),
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
        let constant = |(item, optional): &(Plan, bool)| match item {
            Plan::Constant(value) if !optional => Some(value.clone()),
            _ => None,
        };
        match items.iter().map(constant).collect::<Option<Vec<_>>>() {
            Some(values) if self.fold => Ok(Plan::Constant(List::new(values).into())),
            _ => Ok(Plan::List(items)),
        }
    }

    fn call(&mut self, expr: &Expr, call: &Call) -> Step {
        let name = call.function.as_str();
        if matches!(name, "_[_]" | "_[?_]" | "_?._") {
            return self.index(call, name != "_[_]");
        }
        let plan = |argument: &Expr| self.plan(argument);
        let mut arguments: Vec<Plan> = call
            .target
            .iter()
            .chain(&call.arguments)
            .map(plan)
            .collect::<Result<_, _>>()?;
        let overloads = match self.checked.references.get(&expr.id) {
            Some(Reference::Overloads(overloads)) => overloads.clone(),
            _ => Vec::new(),
        };
        match (name, arguments.len()) {
            ("_&&_", _) => return Ok(Plan::Logical(arguments, false)),
            ("_||_", _) => return Ok(Plan::Logical(arguments, true)),
            ("_?_:_", 3) => return Ok(conditional(arguments)),
            ("_==_" | "_!=_", 2) => {
                let right = arguments.pop().unwrap_or(Plan::Constant(Value::Null));
                let left = arguments.pop().unwrap_or(Plan::Constant(Value::Null));
                return Ok(Plan::Equals(Box::new((left, right)), name == "_!=_"));
            }
            ("or" | "orValue", 2)
                if overloads
                    .iter()
                    .any(|overload| overload.id.starts_with("optional_or")) =>
            {
                let right = arguments.pop().unwrap_or(Plan::Constant(Value::Null));
                let left = arguments.pop().unwrap_or(Plan::Constant(Value::Null));
                return Ok(Plan::OrElse(Box::new((left, right)), name == "orValue"));
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
            optimize(plan)
        } else {
            Ok(Plan::Call(Box::new(plan)))
        }
    }

    fn index(&mut self, call: &Call, optional: bool) -> Step {
        let mut attribute = self.attribute(&call.arguments[0])?;
        let key = match self.plan(&call.arguments[1])? {
            Plan::Constant(value) => QualifierKey::Constant(value),
            other => QualifierKey::Plan(other),
        };
        attribute.qualify(key, optional);
        Ok(Plan::Attribute(Box::new(attribute)))
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
        Ok(Plan::Fold(Box::new(fold)))
    }

    /// Invariant: no two loops share a slot, so that a first value may be computed late.
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
            Root::Conditional(branches) => {
                branches.1.push(qualifier.clone());
                branches.2.push(qualifier);
            }
            _ => self.qualifiers.push(qualifier),
        }
    }
}

fn conditional(mut arguments: Vec<Plan>) -> Plan {
    let branch = |plan: Plan| match plan {
        Plan::Attribute(attribute) => *attribute,
        other => Attribute {
            root: Root::Value(other),
            qualifiers: Vec::new(),
            test: false,
        },
    };
    let otherwise = branch(arguments.pop().unwrap_or(Plan::Constant(Value::Null)));
    let then = branch(arguments.pop().unwrap_or(Plan::Constant(Value::Null)));
    let condition = arguments.pop().unwrap_or(Plan::Constant(Value::Null));
    let root = Root::Conditional(Box::new((condition, then, otherwise)));
    Plan::Attribute(Box::new(Attribute {
        root,
        qualifiers: Vec::new(),
        test: false,
    }))
}

fn fold_map(entries: Vec<(Plan, Plan, bool)>) -> Step {
    let constant = |entry: &(Plan, Plan, bool)| match entry {
        (Plan::Constant(key), Plan::Constant(value), false) => Some((key.clone(), value.clone())),
        _ => None,
    };
    let Some(values) = entries.iter().map(constant).collect::<Option<Vec<_>>>() else {
        return Ok(Plan::Map(entries));
    };
    Ok(Map::new(values).map_or(Plan::Map(entries), |map| Plan::Constant(map.into())))
}

/// Checks a regular expression that is a literal. It is compiled when it is first matched.
fn site(overloads: &[Arc<Overload>], arguments: &[Plan]) -> Result<Site, EvalError> {
    let pattern = overloads.iter().find_map(|overload| overload.pattern);
    let pattern = pattern.and_then(|argument| arguments.get(argument));
    let Some(Plan::Constant(Value::String(pattern))) = pattern else {
        return Ok(Site::default());
    };
    mizzen_go_regexp::check(pattern).map_err(|error| EvalError::new(error.to_string()))?;
    Ok(Site {
        pattern: Some(Regexp::new(pattern)),
    })
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

fn optimize(mut call: CallPlan) -> Step {
    if let ([overload], [_, Plan::Constant(Value::List(list))]) =
        (&call.overloads[..], &call.arguments[..])
        && overload.id == "in_list"
    {
        if list.is_empty() {
            return Ok(Plan::Constant(Value::Bool(false)));
        }
        if let Some(keys) = list.iter().map(|item| Key::of(&item.ok()?)).collect() {
            return Ok(Plan::Member(Box::new(call.arguments.swap_remove(0)), keys));
        }
    }
    if let (true, [Plan::Constant(_)]) = (
        CONVERSIONS.contains(&call.function.as_str()),
        &call.arguments[..],
    ) {
        let Plan::Constant(argument) = call.arguments.swap_remove(0) else {
            unreachable!("matched above")
        };
        return eval::call(&call, &[argument]).map(Plan::Constant);
    }
    Ok(Plan::Call(Box::new(call)))
}

/// Rewrites `accumulator + [item]` so that the list grows in place; also inside a conditional.
fn in_place(step: Plan, slot: usize) -> Plan {
    match step {
        Plan::Call(call) if accumulates(&call, slot) => Plan::Accumulate(slot, call),
        Plan::Attribute(mut attribute) => {
            if let Root::Conditional(branches) = &mut attribute.root
                && let Root::Value(then) = &mut branches.1.root
            {
                let plan = std::mem::replace(then, Plan::Constant(Value::Null));
                *then = in_place(plan, slot);
            }
            Plan::Attribute(attribute)
        }
        other => other,
    }
}

fn accumulates(call: &CallPlan, slot: usize) -> bool {
    let accumulator = matches!(call.arguments.first(), Some(Plan::Attribute(attribute))
        if attribute.qualifiers.is_empty() && matches!(attribute.root, Root::Local(local) if local == slot));
    let appends = &call.function == "_+_"
        && matches!(
            call.arguments.get(1),
            Some(Plan::List(_) | Plan::Constant(Value::List(_)))
        );
    accumulator && (appends || (&call.function == "cel.@mapInsert" && call.arguments.len() == 3))
}
