//! Decoding of values that were parsed before: patched documents, YAML.

use super::unstructured::{self, Pruning};
use super::{Decoded, zero_if_null};
use crate::schema::{CanonicalMembers, FieldShape, FieldType, Struct};
use mizzen_value::json;
use mizzen_value::{Map, Str, Value};
use mizzen_value::{go_base64, quantity, time};

/// Decodes a value as a part of an object, which has no kind, as [`decode_value`] does.
pub(crate) fn decode_part_value(ty: &Struct, mut value: Value) -> Option<Value> {
    let Value::Map(map) = &mut value else {
        return None;
    };
    fields(ty, map, false)?;
    Some(value)
}

/// Decodes a value as an object of type `ty`, as [`decode`](super::decode) decodes its text.
///
/// Returns nothing if the text has any error, and for some that it has not; then the text decides.
pub fn decode_value(ty: &Struct, mut value: Value) -> Option<Value> {
    if let Some(rest) = ty.rest() {
        let decoded = unstructured::decode_value(ty, rest, value, Pruning::Done);
        let Decoded { value, complaints } = decoded.ok()?;
        return complaints.is_empty().then_some(value);
    }
    let Value::Map(map) = &mut value else {
        return None;
    };
    fields(ty, map, true)?;
    Some(value)
}

fn fields(ty: &Struct, map: &mut Map, named: bool) -> Option<()> {
    let mut members = CanonicalMembers::default();
    for (name, value) in map.iter_mut() {
        match ty.position(name) {
            Some(position) => {
                let field = &ty.fields()[position];
                decode_in_place(&field.ty, value)?;
                members.add(position, field, value);
            }
            None => {
                let is_type = matches!(name.as_str(), "kind" | "apiVersion");
                if !is_type || !(named || ty.is_kind()) || value.as_str().is_none() {
                    return None;
                }
                members.add_unknown(name);
            }
        }
    }
    members.finish(ty, map);
    Some(())
}

fn decode_in_place(ty: &FieldType, value: &mut Value) -> Option<()> {
    match (&ty.shape, &mut *value) {
        (_, Value::Null) => {}
        (FieldShape::Struct(inner), Value::Map(map)) => fields(inner, map, false)?,
        (FieldShape::Map(item), Value::Map(map)) => {
            for value in map.values_mut() {
                decode_item(item, value)?;
            }
            map.sort();
        }
        (FieldShape::List(item), Value::List(items)) => {
            for value in items {
                decode_item(item, value)?;
            }
        }
        (FieldShape::Bool, Value::Bool(_))
        | (FieldShape::Int64, Value::Int(_))
        | (FieldShape::String | FieldShape::IntOrString, Value::String(_))
        | (FieldShape::Raw, _) => {}
        (FieldShape::Int32 | FieldShape::IntOrString, Value::Int(int)) => {
            i32::try_from(*int).ok()?;
        }
        (FieldShape::Float, Value::Int(_) | Value::Number(_)) => {
            let float = value.as_f64().filter(|float| float.is_finite())?;
            *value = json::float(float);
        }
        (FieldShape::Json, _) => {
            if json::overflow(value).is_some() {
                return None;
            }
            json::rewrite(value);
        }
        (FieldShape::Quantity, Value::Int(_) | Value::Number(_)) => {
            *value = quantity::canonical(&json::to_string(value)).ok()?.into();
        }
        (shape, Value::String(text)) => *value = decode_text(shape, text)?,
        _ => return None,
    }
    Some(())
}

fn decode_item(ty: &FieldType, value: &mut Value) -> Option<()> {
    decode_in_place(ty, value)?;
    if value.is_null() {
        *value = zero_if_null(ty, Value::Null);
    }
    Some(())
}

/// A string of a type that has a canonical form.
fn decode_text(shape: &FieldShape, text: &Str) -> Option<Value> {
    match shape {
        FieldShape::Bytes => go_base64::canonical(text).ok().map(Value::from),
        FieldShape::Quantity => quantity::canonical(text).ok().map(Value::from),
        FieldShape::Time => time::parse_time(text).ok().map(Value::from),
        FieldShape::MicroTime => time::parse_micro_time(text).ok().map(Value::from),
        FieldShape::Duration => time::parse_duration(text).ok().map(Value::from),
        _ => None,
    }
}
