//! `+`, `-`, `*`, `/`, `%`.

use super::cost;
use crate::decl_type::ListSemantics;
use crate::function::{CallSite, Function, Overload, OverloadFn};
use crate::types::Type;
use crate::value::{EvalError, ListVal, Outcome, Value};
use crate::{MapKey, MapVal};
use mizzen_value::time::Moment;

pub(super) fn functions() -> Vec<Function> {
    use Type::{Bytes, Double, Duration, Int, String, Timestamp, Uint};
    let same = |run: OverloadFn, pairs: &[(&'static str, Type)]| -> Vec<Overload> {
        let overload = |(id, kind): &(&'static str, Type)| {
            Overload::global(id, vec![kind.clone(), kind.clone()], kind.clone(), run)
        };
        pairs.iter().map(overload).collect()
    };
    let list = Type::list(Type::parameter("A"));
    let mut adds = vec![
        Overload::global("add_bytes", vec![Bytes, Bytes], Bytes, add)
            .costs(cost::of_sum, cost::estimate_sum),
        Overload::global("add_double", vec![Double, Double], Double, add),
        Overload::global(
            "add_duration_duration",
            vec![Duration, Duration],
            Duration,
            add,
        ),
        Overload::global(
            "add_duration_timestamp",
            vec![Duration, Timestamp],
            Timestamp,
            add,
        ),
        Overload::global(
            "add_timestamp_duration",
            vec![Timestamp, Duration],
            Timestamp,
            add,
        ),
    ];
    adds.extend(same(add, &[("add_int64", Int)]));
    adds.extend([
        Overload::global("add_list", vec![list.clone(), list.clone()], list, add),
        Overload::global("add_string", vec![String, String], String, add)
            .costs(cost::of_sum, cost::estimate_sum),
    ]);
    adds.extend(same(add, &[("add_uint64", Uint)]));
    let mut subtracts = same(
        subtract,
        &[
            ("subtract_double", Double),
            ("subtract_duration_duration", Duration),
            ("subtract_int64", Int),
        ],
    );
    subtracts.extend([
        Overload::global(
            "subtract_timestamp_duration",
            vec![Timestamp, Duration],
            Timestamp,
            subtract,
        ),
        Overload::global(
            "subtract_timestamp_timestamp",
            vec![Timestamp, Timestamp],
            Duration,
            subtract,
        ),
    ]);
    subtracts.extend(same(subtract, &[("subtract_uint64", Uint)]));
    vec![
        Function::new("_+_", adds),
        Function::new(
            "_/_",
            same(
                divide,
                &[
                    ("divide_double", Double),
                    ("divide_int64", Int),
                    ("divide_uint64", Uint),
                ],
            ),
        ),
        Function::new(
            "_%_",
            same(modulo, &[("modulo_int64", Int), ("modulo_uint64", Uint)]),
        ),
        Function::new(
            "_*_",
            same(
                multiply,
                &[
                    ("multiply_double", Double),
                    ("multiply_int64", Int),
                    ("multiply_uint64", Uint),
                ],
            ),
        ),
        Function::new(
            "-_",
            vec![
                Overload::global("negate_double", vec![Double], Double, negate),
                Overload::global("negate_int64", vec![Int], Int, negate),
            ],
        ),
        Function::new("_-_", subtracts),
    ]
}

fn add<'a>(_: &CallSite, arguments: &[Value<'a>]) -> Outcome<'a> {
    Ok(match arguments {
        [Value::Int(left), Value::Int(right)] => {
            Value::Int(left.checked_add(*right).ok_or_else(int_overflow)?)
        }
        [Value::Uint(left), Value::Uint(right)] => {
            Value::Uint(left.checked_add(*right).ok_or_else(uint_overflow)?)
        }
        [Value::Double(left), Value::Double(right)] => Value::Double(left + right),
        [Value::String(left), Value::String(right)] => format!("{}{}", &**left, &**right).into(),
        [Value::Bytes(left), Value::Bytes(right)] => {
            Value::Bytes([&left[..], &right[..]].concat().into())
        }
        [Value::Duration(left), Value::Duration(right)] => {
            Value::Duration(left.checked_add(*right).ok_or_else(int_overflow)?)
        }
        [Value::Duration(span), Value::Timestamp(moment, offset)]
        | [Value::Timestamp(moment, offset), Value::Duration(span)] => {
            shift(moment, *offset, i128::from(*span))?
        }
        [Value::List(left), Value::List(right)] => left.concatenate(right)?.into(),
        _ => return Err(EvalError::no_such_overload()),
    })
}

fn subtract<'a>(_: &CallSite, arguments: &[Value<'a>]) -> Outcome<'a> {
    Ok(match arguments {
        [Value::Int(left), Value::Int(right)] => {
            Value::Int(left.checked_sub(*right).ok_or_else(int_overflow)?)
        }
        [Value::Uint(left), Value::Uint(right)] => {
            Value::Uint(left.checked_sub(*right).ok_or_else(uint_overflow)?)
        }
        [Value::Double(left), Value::Double(right)] => Value::Double(left - right),
        [Value::Duration(left), Value::Duration(right)] => {
            Value::Duration(left.checked_sub(*right).ok_or_else(int_overflow)?)
        }
        [Value::Timestamp(moment, offset), Value::Duration(span)] => {
            shift(moment, *offset, -i128::from(*span))?
        }
        [Value::Timestamp(left, _), Value::Timestamp(right, _)] => {
            let span = i64::try_from(nanos(left) - nanos(right));
            Value::Duration(span.map_err(|_| int_overflow())?)
        }
        _ => return Err(EvalError::no_such_overload()),
    })
}

fn multiply<'a>(_: &CallSite, arguments: &[Value<'a>]) -> Outcome<'a> {
    Ok(match arguments {
        [Value::Int(left), Value::Int(right)] => {
            Value::Int(left.checked_mul(*right).ok_or_else(int_overflow)?)
        }
        [Value::Uint(left), Value::Uint(right)] => {
            Value::Uint(left.checked_mul(*right).ok_or_else(uint_overflow)?)
        }
        [Value::Double(left), Value::Double(right)] => Value::Double(left * right),
        _ => return Err(EvalError::no_such_overload()),
    })
}

fn divide<'a>(_: &CallSite, arguments: &[Value<'a>]) -> Outcome<'a> {
    Ok(match arguments {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => {
            return Err(EvalError::new("division by zero"));
        }
        [Value::Int(left), Value::Int(right)] => {
            Value::Int(left.checked_div(*right).ok_or_else(int_overflow)?)
        }
        [Value::Uint(left), Value::Uint(right)] => Value::Uint(left / right),
        [Value::Double(left), Value::Double(right)] => Value::Double(left / right),
        _ => return Err(EvalError::no_such_overload()),
    })
}

fn modulo<'a>(_: &CallSite, arguments: &[Value<'a>]) -> Outcome<'a> {
    Ok(match arguments {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => {
            return Err(EvalError::new("modulus by zero"));
        }
        [Value::Int(left), Value::Int(right)] => {
            Value::Int(left.checked_rem(*right).ok_or_else(int_overflow)?)
        }
        [Value::Uint(left), Value::Uint(right)] => Value::Uint(left % right),
        _ => return Err(EvalError::no_such_overload()),
    })
}

fn negate<'a>(_: &CallSite, arguments: &[Value<'a>]) -> Outcome<'a> {
    Ok(match arguments {
        [Value::Int(int)] => Value::Int(int.checked_neg().ok_or_else(int_overflow)?),
        [Value::Double(double)] => Value::Double(-double),
        _ => return Err(EvalError::no_such_overload()),
    })
}

impl<'a> ListVal<'a> {
    /// Kubernetes: lists that are sets or maps are merged (cel/common/valuesunstructured.go).
    fn concatenate(&self, right: &ListVal<'a>) -> Result<ListVal<'a>, EvalError> {
        let mut items = self.to_vec()?;
        for item in right.iter() {
            let item = item?;
            let same = match self.merge {
                ListSemantics::Atomic => None,
                ListSemantics::Set => items.iter().position(|known| super::equal(known, &item)),
                ListSemantics::Map(keys) => {
                    items.iter().position(|known| same_keys(known, &item, keys))
                }
            };
            match same {
                Some(index) => items[index] = item,
                None => items.push(item),
            }
        }
        Ok(ListVal::new(items).with_merge(self.merge))
    }
}

/// Whether two items have the same values in these fields.
pub(super) fn same_keys(one: &Value, other: &Value, keys: &[mizzen_value::Str]) -> bool {
    let (Value::Map(one), Value::Map(other)) = (one, other) else {
        return false;
    };
    let key = |map: &MapVal, name: &str| {
        let value = map.field(name);
        value
            .and_then(Result::ok)
            .and_then(|value| MapKey::from_value(&value))
    };
    keys.iter().all(|name| key(one, name) == key(other, name))
}

const MIN_SECONDS: i64 = -62_135_596_800;
const MAX_SECONDS: i64 = 253_402_300_799;

/// A timestamp between the years 1 and 9999.
pub(super) fn moment(seconds: i64, nanos: u32) -> Result<Moment, EvalError> {
    match seconds {
        MIN_SECONDS..=MAX_SECONDS => Ok(Moment { seconds, nanos }),
        _ => Err(EvalError::new("timestamp overflow")),
    }
}

fn nanos(moment: &Moment) -> i128 {
    i128::from(moment.seconds) * 1_000_000_000 + i128::from(moment.nanos)
}

fn shift<'a>(from: &Moment, offset: i32, span: i128) -> Outcome<'a> {
    let nanos = nanos(from) + span;
    let seconds = nanos.div_euclid(1_000_000_000) as i64;
    let moment = moment(seconds, nanos.rem_euclid(1_000_000_000) as u32)?;
    Ok(Value::Timestamp(moment, offset))
}

pub(super) fn int_overflow() -> EvalError {
    EvalError::new("integer overflow")
}

pub(super) fn uint_overflow() -> EvalError {
    EvalError::new("unsigned integer overflow")
}
