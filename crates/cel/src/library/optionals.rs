//! Values that may be missing.

use super::{list, show};
use crate::{EvalError, Library, Outcome, Site, Type, Value};
use mizzen_value::time::Moment;

/// `optional.of` and what can be asked of one. The syntax `a.?b`, `or`, `orValue`, `optMap` and `optFlatMap`
/// are the language's, for they do not evaluate all that they are given.
pub(super) fn library() -> Library {
    let value = || Type::parameter("V");
    let (optional, items) = (|| Type::optional(value()), || Type::list(value()));
    let functions = functions! {
        "optional.of" {
            global "optional_of" (value()) -> optional() => |_, it| Ok(Value::some(first(it)?.clone()));
        }
        "optional.ofNonZeroValue" { global "optional_ofNonZeroValue" (value()) -> optional() => of_non_zero; }
        "optional.none" { global "optional_none" () -> optional() => |_, _| Ok(Value::Optional(None)); }
        "optional.unwrap" { global "optional_unwrap" (Type::list(optional())) -> items() => unwrap; }
        "unwrapOpt" { member "optional_unwrapOpt" (Type::list(optional())) -> items() => unwrap; }
        "value" { member "optional_value" (optional()) -> value() => inside; }
        "hasValue" { member "optional_hasValue" (optional()) -> Type::Bool => has_value; }
        "first" { member "list_first" (items()) -> optional() => |_, it| item(it, |_| 0); }
        "last" { member "list_last" (items()) -> optional() => |_, it| item(it, |n| n.wrapping_sub(1)); }
    };
    Library::new("cel.lib.optional", (1, 28), functions).with_types(vec![Type::optional(Type::Dyn)])
}

fn of_non_zero<'a>(_: &Site, arguments: &[Value<'a>]) -> Outcome<'a> {
    let value = first(arguments)?;
    Ok(if is_zero(value) {
        Value::Optional(None)
    } else {
        Value::some(value.clone())
    })
}

fn inside<'a>(_: &Site, arguments: &[Value<'a>]) -> Outcome<'a> {
    match first(arguments)? {
        Value::Optional(Some(value)) => Ok((**value).clone()),
        Value::Optional(None) => Err(EvalError::new("optional.none() dereference")),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn has_value<'a>(_: &Site, arguments: &[Value<'a>]) -> Outcome<'a> {
    match first(arguments)? {
        Value::Optional(value) => Ok(value.is_some().into()),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn first<'v, 'a>(arguments: &'v [Value<'a>]) -> Result<&'v Value<'a>, EvalError> {
    arguments.first().ok_or_else(EvalError::no_such_overload)
}

/// Whether a value is what it would be if nobody had set it. Libraries' values and optionals never are.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(bool) => !bool,
        Value::Int(int) | Value::Duration(int) => *int == 0,
        Value::Uint(uint) => *uint == 0,
        Value::Double(double) => *double == 0.0,
        Value::String(text) => text.is_empty(),
        Value::Bytes(bytes) => bytes.is_empty(),
        Value::List(list) => list.is_empty(),
        Value::Map(map) => map.is_empty(),
        Value::Timestamp(moment, _) => *moment == Moment::ZERO,
        Value::Type(_) | Value::Optional(_) | Value::Opaque(_) => false,
    }
}

fn item<'a>(arguments: &[Value<'a>], index: fn(usize) -> usize) -> Outcome<'a> {
    let list = list(arguments, 0)?;
    match list.get(index(list.len())) {
        Some(item) => Ok(Value::some(item?)),
        None => Ok(Value::Optional(None)),
    }
}

fn unwrap<'a>(_: &Site, arguments: &[Value<'a>]) -> Outcome<'a> {
    let mut values = Vec::new();
    for item in list(arguments, 0)?.iter() {
        match item? {
            Value::Optional(value) => values.extend(value.map(|value| (*value).clone())),
            other => {
                return Err(EvalError::new(format!(
                    "value {} is not optional",
                    show(&other)
                )));
            }
        }
    }
    Ok(values.into())
}
