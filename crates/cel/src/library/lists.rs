//! The lists libraries of Kubernetes and cel-go.

use std::cmp::Ordering;

use super::{MAX_ITEMS, compare, cost, equal, int, list};
use crate::ast::{ACCUMULATOR, Comprehension, Expr, ExprKind, Literal};
use crate::{
    AstNode, CallEstimate, CallSite, CostEstimateFn, CostRange, EvalError, ExprFactory, Function,
    Library, ListVal, Macro, MacroError, Outcome, Overload, Sizing, TRAVERSAL, Type, Value,
};
use mizzen_value::Str;

/// A row for each ordered type: its name, and the overload IDs for lists of it.
macro_rules! by_type {
    ($($type:ident $name:literal $wire:literal,)*) => {
        &[$(Ordered {
            kind: Type::$type,
            sorted: concat!("list_", $name, "_is_sorted_bool"),
            max: concat!("list_", $name, "_max_", $name),
            min: concat!("list_", $name, "_min_", $name),
            sort: concat!("list_", $wire, "_sort"),
            sort_by: concat!("list_", $wire, "_sortByAssociatedKeys"),
        },)*]
    };
}

struct Ordered {
    kind: Type,
    sorted: &'static str,
    max: &'static str,
    min: &'static str,
    sort: &'static str,
    sort_by: &'static str,
}

const ORDERED: &[Ordered] = by_type! {
    Int "int" "int",
    Uint "uint" "uint",
    Double "double" "double",
    Bool "bool" "bool",
    Duration "duration" "google.protobuf.Duration",
    Timestamp "timestamp" "google.protobuf.Timestamp",
    String "string" "string",
    Bytes "bytes" "bytes",
};

/// Kubernetes' functions, which do not create lists.
pub(super) fn comparisons() -> Library {
    use Type::{Double, Duration, Int, Uint};
    let any = || Type::parameter("A");
    let mut functions = functions! {
        "sum" {
            member "list_int_sum_int" (Type::list(Int)) -> Int => |_, it| total(it, Value::Int(0));
            member "list_uint_sum_uint" (Type::list(Uint)) -> Uint => |_, it| total(it, Value::Uint(0));
            member "list_double_sum_double" (Type::list(Double)) -> Double =>
                |_, it| total(it, Value::Double(0.0));
            member "list_duration_sum_duration" (Type::list(Duration)) -> Duration =>
                |_, it| total(it, Value::Duration(0));
        }
        "indexOf" { member "list_a_index_of_int" (Type::list(any()), any()) -> Int => |_, it| position(it, |items, is_same| items.iter().position(is_same)); }
        "lastIndexOf" {
            member "list_a_last_index_of_int" (Type::list(any()), any()) -> Int => |_, it| position(it, |items, is_same| items.iter().rposition(is_same));
        }
    };
    let each = |name, overload: &dyn Fn(&Ordered) -> Overload| {
        Function::new(name, ORDERED.iter().map(overload).collect())
    };
    let of = |row: &Ordered| vec![Type::list(row.kind.clone())];
    functions.extend([
        each("isSorted", &|row| {
            Overload::member(row.sorted, of(row), Type::Bool, |_, it| {
                let items = list(it, 0)?.to_vec()?;
                let is_ordered =
                    |left: &Value, right: &Value| compare(left, right) != Some(Ordering::Greater);
                Ok(items.is_sorted_by(is_ordered).into())
            })
        }),
        each("max", &|row| {
            Overload::member(row.max, of(row), row.kind.clone(), max)
        }),
        each("min", &|row| {
            Overload::member(row.min, of(row), row.kind.clone(), min)
        }),
    ]);
    for overload in functions
        .iter_mut()
        .flat_map(|function| &mut function.overloads)
    {
        overload.cost = Some(cost::traverse_tree);
        overload.estimate = Some(cost::estimate_compare_items);
    }
    Library::new("kubernetes.lists", (1, 0), functions)
}

/// cel-go's functions, which create lists.
pub(super) fn library() -> Library {
    use Type::{Dyn, Int};
    let items = || Type::list(Type::parameter("T"));
    let mut functions = functions! {
        "slice" {
            member "list_slice" (items(), Int, Int) -> items() => slice, costs result_cost, estimate_slice;
        }
        "flatten" {
            member "list_flatten" (Type::list(items())) -> items() => flatten,
                costs flatten_cost, estimate_flatten;
            member "list_flatten_int" (Type::list(Dyn), Int) -> Type::list(Dyn) => flatten,
                costs flatten_cost, estimate_flatten;
        }
        "lists.range" {
            global "lists_range" (Int) -> Type::list(Int) => range, costs result_cost,
                |_, _, arguments| {
                    let size = CostRange::fixed(literal(arguments.first()?, u64::MAX));
                    Some(cost::estimate_make_list(size, 1.0))
                };
        }
        "reverse" { member "list_reverse" (items()) -> items() => reverse, costs result_cost,
                |sizing, target, _| Some(cost::estimate_make_list(sizing.size(target?), 1.0));
        }
        "distinct" {
            member "list_distinct" (items()) -> items() => distinct, costs self_compare_cost, estimate_pairs;
        }
    };
    let sort = |row: &Ordered| {
        let kind = || Type::list(row.kind.clone());
        Overload::member(row.sort, vec![kind()], kind(), sort)
            .costs(self_compare_cost, estimate_of(&row.kind))
    };
    let sort_by = |row: &Ordered| {
        let parameters = vec![items(), Type::list(row.kind.clone())];
        Overload::member(row.sort_by, parameters, items(), |_, it| {
            sorted(list(it, 0)?, list(it, 1)?)
        })
        .costs(
            |it, result| self_compare_cost(&it[1..], result),
            estimate_of(&row.kind),
        )
    };
    functions.push(Function::new("sort", ORDERED.iter().map(sort).collect()));
    functions.push(Function::new(
        "@sortByAssociatedKeys",
        ORDERED.iter().map(sort_by).collect(),
    ));
    let sort_by = Macro {
        name: "sortBy",
        member: true,
        arity: Some(2),
        expand: expand_sort_by,
    };
    Library::new("cel.lib.ext.lists", (1, 34), functions).with_macros(vec![sort_by])
}

/// The index that `find` returns for the second argument; -1 if there is none.
fn position<'a>(
    arguments: &[Value<'a>],
    find: impl Fn(&[Value<'a>], &dyn Fn(&Value<'a>) -> bool) -> Option<usize>,
) -> Outcome<'a> {
    let items = list(arguments, 0)?.to_vec()?;
    let found = find(&items, &|item| equal(item, &arguments[1]));
    Ok(Value::Int(found.map_or(-1, |index| index as i64)))
}

fn reverse<'a>(_: &CallSite, arguments: &[Value<'a>]) -> Outcome<'a> {
    let mut items = list(arguments, 0)?.to_vec()?;
    items.reverse();
    Ok(items.into())
}

fn max<'a>(_: &CallSite, arguments: &[Value<'a>]) -> Outcome<'a> {
    best(arguments, "max", Ordering::Less)
}

fn min<'a>(_: &CallSite, arguments: &[Value<'a>]) -> Outcome<'a> {
    best(arguments, "min", Ordering::Greater)
}

/// The first item that is not beaten: an item is beaten if it compares as `beaten` with another.
fn best<'a>(arguments: &[Value<'a>], name: &str, beaten: Ordering) -> Outcome<'a> {
    let items = list(arguments, 0)?.to_vec()?;
    let better = |kept: Value<'a>, next: Value<'a>| {
        if compare(&kept, &next) == Some(beaten) {
            next
        } else {
            kept
        }
    };
    items
        .into_iter()
        .reduce(better)
        .ok_or_else(|| EvalError::new(format!("{name} called on empty list")))
}

fn total<'a>(arguments: &[Value<'a>], zero: Value<'a>) -> Outcome<'a> {
    list(arguments, 0)?
        .iter()
        .try_fold(zero, |sum, item| add(&sum, &item?))
}

fn add<'a>(left: &Value<'a>, right: &Value<'a>) -> Outcome<'a> {
    let overflow = |kind: &'static str| move || EvalError::new(kind);
    match (left, right) {
        (Value::Int(left), Value::Int(right)) => left
            .checked_add(*right)
            .map(Value::Int)
            .ok_or_else(overflow("integer overflow")),
        (Value::Uint(left), Value::Uint(right)) => left
            .checked_add(*right)
            .map(Value::Uint)
            .ok_or_else(overflow("unsigned integer overflow")),
        (Value::Double(left), Value::Double(right)) => Ok(Value::Double(left + right)),
        (Value::Duration(left), Value::Duration(right)) => left
            .checked_add(*right)
            .map(Value::Duration)
            .ok_or_else(overflow("duration overflow")),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn slice<'a>(_: &CallSite, arguments: &[Value<'a>]) -> Outcome<'a> {
    let (list, start, end) = (list(arguments, 0)?, int(arguments, 1)?, int(arguments, 2)?);
    let refuse = |why: String| {
        Err(EvalError::new(format!(
            "cannot slice({start}, {end}), {why}"
        )))
    };
    let (Ok(from), Ok(to)) = (usize::try_from(start), usize::try_from(end)) else {
        return refuse("negative indexes not supported".into());
    };
    if from > to {
        return refuse("start index must be less than or equal to end index".into());
    }
    if to > list.len() {
        return refuse(format!("list is length {}", list.len()));
    }
    let items: Result<Vec<Value>, EvalError> =
        (from..to).filter_map(|index| list.get(index)).collect();
    Ok(items?.into())
}

fn flatten<'a>(_: &CallSite, arguments: &[Value<'a>]) -> Outcome<'a> {
    let Value::List(list) = &arguments[0] else {
        let names: Vec<Str> = arguments.iter().map(Value::type_name).collect();
        let message = format!(
            "no such overload: {}.flatten({})",
            names[0],
            names[1..].join(", ")
        );
        return Err(EvalError::new(message));
    };
    let depth = if arguments.len() > 1 {
        int(arguments, 1)?
    } else {
        1
    };
    let depth = u64::try_from(depth).map_err(|_| EvalError::new("level must be non-negative"))?;
    let mut flat = Vec::new();
    flatten_into(list, depth, &mut flat)?;
    Ok(flat.into())
}

fn flatten_into<'a>(
    list: &ListVal<'a>,
    depth: u64,
    flat: &mut Vec<Value<'a>>,
) -> Result<(), EvalError> {
    for item in list.iter() {
        match item? {
            Value::List(inner) if depth > 0 => flatten_into(&inner, depth - 1, flat)?,
            _ if flat.len() >= MAX_ITEMS => return Err(EvalError::CostLimit),
            item => flat.push(item),
        }
    }
    Ok(())
}

fn range<'a>(_: &CallSite, arguments: &[Value<'a>]) -> Outcome<'a> {
    let n_items = int(arguments, 0)?;
    if n_items > MAX_ITEMS as i64 {
        return Err(EvalError::CostLimit);
    }
    Ok((0..n_items).map(Value::Int).collect::<Vec<_>>().into())
}

fn distinct<'a>(_: &CallSite, arguments: &[Value<'a>]) -> Outcome<'a> {
    let mut unique: Vec<Value> = Vec::new();
    for item in list(arguments, 0)?.iter() {
        let item = item?;
        if !unique.iter().any(|known| equal(&item, known)) {
            unique.push(item);
        }
    }
    Ok(unique.into())
}

fn sort<'a>(_: &CallSite, arguments: &[Value<'a>]) -> Outcome<'a> {
    let list = list(arguments, 0)?;
    sorted(list, list)
}

fn sorted<'a>(list: &ListVal<'a>, keys: &ListVal<'a>) -> Outcome<'a> {
    let (items, keys) = (list.to_vec()?, keys.to_vec()?);
    if items.len() != keys.len() {
        return Err(EvalError::new(format!(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, but got {} and {} \
             elements respectively",
            items.len(),
            keys.len()
        )));
    }
    if keys
        .first()
        .is_some_and(|key| compare(key, key).is_none() && !matches!(key, Value::Double(_)))
    {
        return Err(EvalError::new("list elements must be comparable"));
    }
    if keys
        .iter()
        .any(|key| key.type_name() != keys[0].type_name())
    {
        return Err(EvalError::new("list elements must have the same type"));
    }
    let mut pairs: Vec<(Value, Value)> = keys.into_iter().zip(items).collect();
    pairs.sort_by(|(left, _), (right, _)| compare(left, right).unwrap_or(Ordering::Equal));
    Ok(pairs
        .into_iter()
        .map(|(_, item)| item)
        .collect::<Vec<_>>()
        .into())
}

/// `list.sortBy(x, key)`: binds the list, maps it to its keys, and sorts the one by the other.
fn expand_sort_by(
    expander: &mut dyn ExprFactory,
    target: Option<&Expr>,
    arguments: &[Expr],
) -> Result<Option<Expr>, MacroError> {
    const INPUT: &str = "@__sortBy_input__";
    let [variable, key] = arguments else {
        return Ok(None);
    };
    let Some(target) = target else {
        return Ok(None);
    };
    if matches!(
        target.kind,
        ExprKind::Literal(_) | ExprKind::Map(_) | ExprKind::Struct(..)
    ) {
        let message = "sortBy can only be applied to a list, identifier, comprehension, call or select expression";
        return Err(MacroError::new(target, message));
    }
    let name = variable
        .as_ident()
        .ok_or_else(|| MacroError::new(variable, "argument is not an identifier"))?;
    if name == ACCUMULATOR || name == "__result__" {
        return Err(MacroError::new(
            variable,
            "iteration variable overwrites accumulator variable",
        ));
    }
    let keys = map(expander, INPUT, name.clone(), key.clone());
    let input = expander.ident(INPUT);
    let result = expander.member_call("@sortByAssociatedKeys", input, vec![keys]);
    let bind = Comprehension {
        range: expander.list(Vec::new()),
        variable: "#unused".into(),
        second: None,
        accumulator: INPUT.into(),
        init: target.clone(),
        condition: expander.literal(Literal::Bool(false)),
        step: expander.ident(INPUT),
        result,
    };
    Ok(Some(expander.comprehension(bind)))
}

fn map(expander: &mut dyn ExprFactory, input: &str, variable: Str, transform: Expr) -> Expr {
    let (accumulator, item) = (expander.accumulator(), expander.list(vec![transform]));
    let comprehension = Comprehension {
        range: expander.ident(input),
        variable,
        second: None,
        accumulator: ACCUMULATOR.into(),
        init: expander.list(Vec::new()),
        condition: expander.literal(Literal::Bool(true)),
        step: expander.call("_+_", vec![accumulator, item]),
        result: expander.accumulator(),
    };
    expander.comprehension(comprehension)
}

fn result_cost(_: &[Value], result: &Value) -> u64 {
    cost::make_list(result.size(), 1.0)
}

fn flatten_cost(arguments: &[Value], _: &Value) -> u64 {
    let depth = arguments.get(1).and_then(Value::as_int).unwrap_or(1);
    cost::make_list(arguments[0].size(), depth as f64)
}

/// Compares every item with every other; strings cost a little more.
fn self_compare_cost(arguments: &[Value], _: &Value) -> u64 {
    let size = arguments[0].size();
    let first = arguments[0].as_list().and_then(|list| list.get(0));
    let is_text = matches!(first, Some(Ok(Value::String(_) | Value::Bytes(_))));
    cost::make_list(
        size.wrapping_mul(size),
        if is_text { 2.0 + TRAVERSAL } else { 2.0 },
    )
}

fn estimate_slice(
    sizing: &Sizing,
    target: Option<&AstNode>,
    arguments: &[AstNode],
) -> Option<CallEstimate> {
    let size = sizing.size(target?);
    let (start, end) = (
        literal(arguments.first()?, 0),
        literal(arguments.get(1)?, size.max),
    );
    Some(cost::estimate_make_list(
        CostRange::fixed(end.wrapping_sub(start)),
        1.0,
    ))
}

fn estimate_flatten(
    sizing: &Sizing,
    target: Option<&AstNode>,
    arguments: &[AstNode],
) -> Option<CallEstimate> {
    let depth = arguments
        .first()
        .map_or(1, |depth| literal(depth, u64::MAX));
    Some(cost::estimate_make_list(sizing.size(target?), depth as f64))
}

/// The size of the list, or of the keys it is sorted by.
fn estimate_pairs_at(
    sizing: &Sizing,
    target: Option<&AstNode>,
    arguments: &[AstNode],
    factor: f64,
) -> Option<CallEstimate> {
    let size = sizing.size(arguments.first().or(target)?);
    Some(cost::estimate_make_list(size.multiply(size), factor))
}

fn estimate_pairs(
    sizing: &Sizing,
    target: Option<&AstNode>,
    arguments: &[AstNode],
) -> Option<CallEstimate> {
    estimate_pairs_at(sizing, target, arguments, 2.0)
}

fn estimate_of(kind: &Type) -> CostEstimateFn {
    if matches!(kind, Type::String | Type::Bytes) {
        |sizing, target, arguments| estimate_pairs_at(sizing, target, arguments, 2.0 + TRAVERSAL)
    } else {
        estimate_pairs
    }
}

/// An integer literal; negative ones count as zero.
fn literal(node: &AstNode, otherwise: u64) -> u64 {
    match node.expr.and_then(|expr| expr.as_literal()) {
        Some(Literal::Int(int)) => u64::try_from(*int).unwrap_or(0),
        _ => otherwise,
    }
}
