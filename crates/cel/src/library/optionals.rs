//! The optional library.

use super::{list, show};
use crate::{CallSite, EvalError, Library, Outcome, Type, Value};

/// `optional.of` and its accessors. The syntax `a.?b`, `or`, `orValue`, `optMap` and `optFlatMap`
/// belong to the language, because they do not evaluate all operands.
pub(super) fn library() -> Library {
    let value = || Type::parameter("V");
    let (optional, items) = (|| Type::optional(value()), || Type::list(value()));
    let functions = functions! {
        "optional.of" {
            global "optional_of" (value()) -> optional() => |_, it| Ok(Value::some(first(it)?.clone()));
        }
        "optional.ofNonZeroValue" { global "optional_ofNonZeroValue" (value()) -> optional() =>
            |_, it| Ok(match first(it)? {
                value if value.is_zero() => Value::Optional(None),
                value => Value::some(value.clone()),
            });
        }
        "optional.none" { global "optional_none" () -> optional() => |_, _| Ok(Value::Optional(None)); }
        "optional.unwrap" { global "optional_unwrap" (Type::list(optional())) -> items() => unwrap; }
        "unwrapOpt" { member "optional_unwrapOpt" (Type::list(optional())) -> items() => unwrap; }
        "value" { member "optional_value" (optional()) -> value() => |_, it| match first(it)? {
                Value::Optional(Some(value)) => Ok((**value).clone()),
                Value::Optional(None) => Err(EvalError::new("optional.none() dereference")),
                _ => Err(EvalError::no_such_overload()),
            };
        }
        "hasValue" { member "optional_hasValue" (optional()) -> Type::Bool => |_, it| match first(it)? {
                Value::Optional(value) => Ok(value.is_some().into()),
                _ => Err(EvalError::no_such_overload()),
            };
        }
        "first" { member "list_first" (items()) -> optional() => |_, it| item(it, |_| 0); }
        "last" { member "list_last" (items()) -> optional() => |_, it| item(it, |n| n.wrapping_sub(1)); }
    };
    Library::new("cel.lib.optional", (1, 28), functions).with_types(vec![Type::optional(Type::Dyn)])
}

fn first<'v, 'a>(arguments: &'v [Value<'a>]) -> Result<&'v Value<'a>, EvalError> {
    arguments.first().ok_or_else(EvalError::no_such_overload)
}

fn item<'a>(arguments: &[Value<'a>], index: fn(usize) -> usize) -> Outcome<'a> {
    let list = list(arguments, 0)?;
    match list.get(index(list.len())) {
        Some(item) => Ok(Value::some(item?)),
        None => Ok(Value::Optional(None)),
    }
}

fn unwrap<'a>(_: &CallSite, arguments: &[Value<'a>]) -> Outcome<'a> {
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
