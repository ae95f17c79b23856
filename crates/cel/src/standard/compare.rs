//! Equality and ordering.

use std::cmp::Ordering;

use super::arithmetic::same_keys;
use super::cost;
use crate::decl_type::ListSemantics;
use crate::function::{Function, Overload, OverloadFn};
use crate::types::Type;
use crate::value::{EvalError, ListVal, MapVal, Outcome, Value};

/// Whether two values are equal; numbers are compared across types.
pub(crate) fn equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Null, Value::Null) => true,
        (Value::Bool(one), Value::Bool(other)) => one == other,
        (Value::String(one), Value::String(other)) => **one == **other,
        (Value::Bytes(one), Value::Bytes(other)) => one == other,
        (Value::Duration(one), Value::Duration(other)) => one == other,
        (Value::Timestamp(one, _), Value::Timestamp(other, _)) => one == other,
        (Value::Type(one), Value::Type(other)) => one == other,
        (Value::Optional(None), Value::Optional(None)) => true,
        (Value::Optional(Some(one)), Value::Optional(Some(other))) => equal(one, other),
        (Value::Opaque(one), Value::Opaque(other)) => one.equals(&**other),
        (Value::List(one), Value::List(other)) => one.equals(other),
        (Value::Map(one), Value::Map(other)) => one.equals(other),
        _ => compare_numbers(one, other) == Some(Ordering::Equal),
    }
}

impl ListVal<'_> {
    fn equals(&self, other: &ListVal) -> bool {
        if self.len() != other.len() {
            return false;
        }
        let find = |item: &Value, fits: &dyn Fn(&Value, &Value) -> bool| {
            self.iter().flatten().any(|known| fits(&known, item))
        };
        match self.merge {
            ListSemantics::Atomic => self.iter().zip(other.iter()).all(|pair| match pair {
                (Ok(one), Ok(other)) => equal(&one, &other),
                _ => false,
            }),
            ListSemantics::Set => other
                .iter()
                .all(|item| item.is_ok_and(|item| find(&item, &equal))),
            ListSemantics::Map(keys) => {
                let fits = |known: &Value, item: &Value| {
                    same_keys(known, item, keys) && equal(known, item)
                };
                other
                    .iter()
                    .all(|item| item.is_ok_and(|item| find(&item, &fits)))
            }
        }
    }
}

impl MapVal<'_> {
    fn equals(&self, other: &MapVal) -> bool {
        self.kind() == other.kind()
            && self.len() == other.len()
            && self
                .keys()
                .iter()
                .all(|key| match (self.get(key), other.get(key)) {
                    (Some(Ok(one)), Some(Ok(other))) => equal(&one, &other),
                    (None, None) => true,
                    _ => false,
                })
    }
}

/// The order of two values; `None` if they are not comparable.
pub(crate) fn compare(one: &Value, other: &Value) -> Option<Ordering> {
    match (one, other) {
        (Value::Bool(one), Value::Bool(other)) => Some(one.cmp(other)),
        (Value::String(one), Value::String(other)) => Some((**one).cmp(other)),
        (Value::Bytes(one), Value::Bytes(other)) => Some(one.cmp(other)),
        (Value::Duration(one), Value::Duration(other)) => Some(one.cmp(other)),
        (Value::Timestamp(one, _), Value::Timestamp(other, _)) => Some(one.cmp(other)),
        _ => compare_numbers(one, other),
    }
}

fn compare_numbers(one: &Value, other: &Value) -> Option<Ordering> {
    match (one, other) {
        (Value::Int(one), Value::Int(other)) => Some(one.cmp(other)),
        (Value::Uint(one), Value::Uint(other)) => Some(one.cmp(other)),
        (Value::Double(one), Value::Double(other)) => one.partial_cmp(other),
        (Value::Int(one), Value::Uint(other)) => Some(i128::from(*one).cmp(&i128::from(*other))),
        (Value::Double(one), Value::Int(other)) => one.partial_cmp(&(*other as f64)),
        (Value::Double(one), Value::Uint(other)) => one.partial_cmp(&(*other as f64)),
        (Value::Uint(_), Value::Int(_)) | (Value::Int(_) | Value::Uint(_), Value::Double(_)) => {
            compare_numbers(other, one).map(Ordering::reverse)
        }
        _ => None,
    }
}

pub(super) fn functions() -> Vec<Function> {
    vec![
        relation("_<_", |_, arguments| ordered(arguments, Ordering::is_lt)),
        relation("_<=_", |_, arguments| ordered(arguments, Ordering::is_le)),
        relation("_>_", |_, arguments| ordered(arguments, Ordering::is_gt)),
        relation("_>=_", |_, arguments| ordered(arguments, Ordering::is_ge)),
    ]
}

fn ordered<'a>(arguments: &[Value], holds: fn(Ordering) -> bool) -> Outcome<'a> {
    let [one, other] = arguments else {
        return Err(EvalError::no_such_overload());
    };
    compare(one, other)
        .map(|ordering| Value::Bool(holds(ordering)))
        .ok_or_else(|| {
            let is_nan = |value: &Value| matches!(value, Value::Double(double) if double.is_nan());
            match is_nan(one) || is_nan(other) {
                true => EvalError::new("NaN values cannot be ordered"),
                false => EvalError::no_such_overload(),
            }
        })
}

fn relation(name: &'static str, run: OverloadFn) -> Function {
    use Type::{Bool, Bytes, Double, Duration, Int, String, Timestamp, Uint};
    let overloads = [
        ("bool", Bool, Bool),
        ("int64", Int, Int),
        ("int64_double", Int, Double),
        ("int64_uint64", Int, Uint),
        ("uint64", Uint, Uint),
        ("uint64_double", Uint, Double),
        ("uint64_int64", Uint, Int),
        ("double", Double, Double),
        ("double_int64", Double, Int),
        ("double_uint64", Double, Uint),
        ("string", String, String),
        ("bytes", Bytes, Bytes),
        ("timestamp", Timestamp, Timestamp),
        ("duration", Duration, Duration),
    ];
    // Overload IDs need to be unique within one function only.
    let overload = |(id, left, right): (&'static str, Type, Type)| {
        let by_length = matches!(left, String | Bytes);
        let overload = Overload::global(id, vec![left, right], Bool, run);
        if by_length {
            overload.costs(cost::of_comparison, cost::estimate_comparison)
        } else {
            overload
        }
    };
    Function::new(name, overloads.into_iter().map(overload).collect())
}
