//! The one form in which a value of a known shape is written: Go's field order, Go's idea of empty.
//!
//! Invariant: canonical(canonical(x)) = canonical(x).

use super::{Presence, Shape, Struct, Type};
use mizzen_value::json;
use mizzen_value::{Map, Value};

/// Brings `object` into canonical form: fields in schema order, empty ones left out or written as their
/// presence says, free maps sorted by key. Unknown fields are kept, at the end.
/// Kubernetes: an object of a kind that somebody defined is a map through and through, and its keys are sorted.
pub fn canonical(ty: &Struct, object: &mut Value) {
    bring(ty, object, false);
}

/// The same, and as it comes back from storage: what is always written and empty has become null.
/// Kubernetes: storage is protobuf, which does not tell an empty list from none.
pub fn canonical_stored(ty: &Struct, object: &mut Value) {
    bring(ty, object, true);
}

fn bring(ty: &Struct, object: &mut Value, stored: bool) {
    if let Value::Map(map) = object {
        canonical_struct(ty, map, stored);
    }
}

fn canonical_struct(ty: &Struct, map: &mut Map, stored: bool) {
    map.retain(|name, value| match ty.field(name) {
        Some(field) => {
            canonical_value(&field.ty, value, stored);
            keep(field.presence, &field.ty, value, stored)
        }
        None => true,
    });
    for field in ty.fields() {
        let written = matches!(field.presence, Presence::Always | Presence::Nullable);
        if written && !map.contains_key(&field.name) {
            map.insert(field.name.clone(), empty(field.presence, &field.ty));
        }
    }
    if ty.rest().is_some() {
        map.values_mut().for_each(json::normalize);
        return map.sort();
    }
    let ordered = map.keys().map(|name| rank(ty, name)).is_sorted();
    if !ordered {
        map.sort_by_rank(|name| rank(ty, name));
    }
}

/// `kind` and `apiVersion` lead, then come the fields.
fn rank(ty: &Struct, name: &str) -> usize {
    match (ty.position(name), name) {
        (Some(position), _) => position + 2,
        (None, "kind") => 0,
        (None, "apiVersion") => 1,
        (None, _) => usize::MAX,
    }
}

fn keep(presence: Presence, ty: &Type, value: &mut Value, stored: bool) -> bool {
    match presence {
        Presence::Set => !value.is_null(),
        Presence::NotEmpty => !is_zero(ty, value),
        Presence::Always | Presence::Nullable => {
            let emptied =
                stored && matches!(ty.shape, Shape::List(_) | Shape::Map(_)) && value.is_empty();
            if value.is_null() || emptied {
                *value = empty(presence, ty);
            }
            true
        }
    }
}

fn is_zero(ty: &Type, value: &Value) -> bool {
    match ty.shape {
        // A struct value that Go may leave out is one whose every field is zero.
        Shape::Struct(_) | Shape::Raw | Shape::Json => {
            value.is_null() || value.as_map().is_some_and(Map::is_empty)
        }
        Shape::Quantity => value.is_null() || value.str() == "0",
        _ => value.is_empty(),
    }
}

fn empty(presence: Presence, ty: &Type) -> Value {
    match presence {
        Presence::Nullable => Value::Null,
        _ => {
            let mut zero = ty.zero();
            canonical_value(ty, &mut zero, false);
            zero
        }
    }
}

fn canonical_value(ty: &Type, value: &mut Value, stored: bool) {
    match (&ty.shape, value) {
        (Shape::Struct(inner) | Shape::Or(_, inner), Value::Map(map)) => {
            canonical_struct(inner, map, stored)
        }
        (Shape::Or(_, inner), Value::List(items)) => {
            items.iter_mut().for_each(|item| bring(inner, item, stored));
        }
        (Shape::List(item), Value::List(items)) => items.iter_mut().for_each(|value| {
            // A null among structs is a struct without fields.
            if value.is_null() && item.as_struct().is_some() {
                *value = Value::object();
            }
            canonical_value(item, value, stored)
        }),
        (Shape::Map(item), Value::Map(map)) => {
            map.values_mut()
                .for_each(|value| canonical_value(item, value, stored));
            map.sort();
        }
        _ => {}
    }
}
