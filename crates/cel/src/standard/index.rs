//! Indexing and membership of lists and maps.

use super::convert::show;
use super::{cost, equal, refuse};
use crate::function::{CallSite, Function, Overload};
use crate::types::Type;
use crate::value::{EvalError, Outcome, Value};

pub(super) fn functions() -> Vec<Function> {
    let (a, b) = (|| Type::parameter("A"), || Type::parameter("B"));
    let (list, map) = (|| Type::list(a()), || Type::map(a(), b()));
    let sized = [
        ("size_bytes", "bytes_size", Type::Bytes),
        ("size_list", "list_size", list()),
        ("size_map", "map_size", map()),
        ("size_string", "string_size", Type::String),
    ];
    let sizes = sized.into_iter().flat_map(|(global, member, kind)| {
        let member = Overload::member(member, vec![kind.clone()], Type::Int, size);
        [
            Overload::global(global, vec![kind], Type::Int, size),
            member,
        ]
    });
    vec![
        Function::new(
            "_[_]",
            vec![
                Overload::global("index_list", vec![list(), Type::Int], a(), refuse),
                Overload::global("index_map", vec![map(), a()], b(), refuse),
            ],
        ),
        Function::new(
            "@in",
            vec![
                Overload::global("in_list", vec![a(), list()], Type::Bool, is_in)
                    .costs(cost::of_in_list, cost::estimate_in_list),
                Overload::global("in_map", vec![a(), map()], Type::Bool, is_in),
            ],
        ),
        Function::new("size", sizes.collect()),
    ]
}

fn size<'a>(_: &CallSite, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [value @ (Value::String(_) | Value::Bytes(_) | Value::List(_) | Value::Map(_))] => {
            Ok(Value::Int(value.size() as i64))
        }
        _ => Err(EvalError::no_such_overload()),
    }
}

fn is_in<'a>(_: &CallSite, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [item, Value::List(list)] => {
            let mut error = None;
            for known in list.iter() {
                match known {
                    Ok(known) if equal(&known, item) => return Ok(Value::Bool(true)),
                    Ok(_) => {}
                    Err(failed) => error = error.or(Some(failed)),
                }
            }
            error.map_or(Ok(Value::Bool(false)), Err)
        }
        [key, Value::Map(map)] => map.has(key).map(Value::Bool),
        _ => Err(EvalError::no_such_overload()),
    }
}

/// The value of a key or index; `None` if there is none.
pub(crate) fn qualify<'a>(
    value: &Value<'a>,
    key: &Value,
) -> Result<Option<Outcome<'a>>, EvalError> {
    match value {
        Value::Map(map) => Ok(map.get(key)),
        Value::List(list) => Ok(usize::try_from(position(key)?)
            .ok()
            .and_then(|index| list.get(index))),
        _ => Ok(None),
    }
}

/// An index into a list.
fn position(key: &Value) -> Result<i64, EvalError> {
    let unsupported = || EvalError::new(format!("unsupported index value {} in list", show(key)));
    match key {
        Value::Int(int) => Ok(*int),
        Value::Uint(uint) => i64::try_from(*uint).map_err(|_| unsupported()),
        Value::Double(double) if double.fract() == 0.0 && double.abs() < 9.2e18 => {
            Ok(*double as i64)
        }
        Value::Double(_) => Err(unsupported()),
        other => Err(EvalError::new(format!(
            "unsupported index type '{}' in list",
            other.type_name()
        ))),
    }
}

/// The error for a missing key or index.
pub(crate) fn missing(value: &Value, key: &Value) -> EvalError {
    let what = if matches!(value, Value::List(_)) {
        "index out of bounds"
    } else {
        "no such key"
    };
    EvalError::new(format!("{what}: {}", show(key)))
}
