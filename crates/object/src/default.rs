//! Schema defaults.
//!
//! Invariant: default(default(x)) = default(x).

use crate::schema::{FieldShape, FieldType, Presence, Struct};
use mizzen_value::{Map, Value};

/// Sets every absent field that has a default, at any depth that exists.
pub fn apply(ty: &Struct, object: &mut Value) {
    if let Some(rest) = ty.rest() {
        rest.default(object);
    } else if let Value::Map(map) = object {
        fill(ty, map);
    }
}

fn fill(ty: &Struct, map: &mut Map) {
    if !ty.reaches_default() {
        return;
    }
    for field in ty.defaulted() {
        let absent = match (field.presence, map.get(&field.name)) {
            (_, None | Some(Value::Null)) => true,
            (Presence::NotEmpty | Presence::Always, Some(value)) => value.is_empty(),
            _ => false,
        };
        if absent {
            map.insert(
                field.name.clone(),
                field.default.clone().unwrap_or_default(),
            );
        }
    }
    for (name, value) in map.iter_mut() {
        if let Some(field) = ty.field(name) {
            descend(&field.ty, value);
        }
    }
}

fn descend(ty: &FieldType, value: &mut Value) {
    match (&ty.shape, value) {
        (FieldShape::Struct(inner), Value::Map(map)) => fill(inner, map),
        (FieldShape::List(item), Value::List(items)) => {
            items.iter_mut().for_each(|value| descend(item, value))
        }
        (FieldShape::Map(item), Value::Map(map)) => {
            map.values_mut().for_each(|value| descend(item, value))
        }
        _ => {}
    }
}
