//! The canonical form of a typed value: Go's field order and `omitempty`.
//!
//! Invariant: canonical(canonical(x)) = canonical(x).

use super::{FieldShape, FieldType, Presence, Struct};
use mizzen_value::json;
use mizzen_value::{Map, Value};

/// Brings `object` into canonical form: fields in schema order, empty ones omitted or written
/// according to their presence, maps sorted by key. Unknown fields are kept, at the end.
/// Kubernetes: a custom resource is an untyped map, so its keys are sorted.
pub fn canonical(ty: &Struct, object: &mut Value) {
    canonical_struct(ty, object, false);
}

/// Like [`canonical`], and as it comes back from storage: empty values that are always written have
/// become null. Kubernetes: storage is protobuf, which does not distinguish an empty list from an
/// absent one.
pub fn canonical_stored(ty: &Struct, object: &mut Value) {
    canonical_struct(ty, object, true);
}

fn canonical_struct(ty: &Struct, object: &mut Value, stored: bool) {
    if let Value::Map(map) = object {
        canonical_fields(ty, map, stored);
    }
}

fn canonical_fields(ty: &Struct, map: &mut Map, stored: bool) {
    map.retain(|name, value| match ty.field(name) {
        Some(field) => {
            canonical_value(&field.ty, value, stored);
            match field.presence {
                Presence::Set => !value.is_null(),
                Presence::NotEmpty => !field.ty.is_zero(value),
                Presence::Always | Presence::Nullable => {
                    let is_container =
                        matches!(field.ty.shape, FieldShape::List(_) | FieldShape::Map(_));
                    if value.is_null() || stored && is_container && value.is_empty() {
                        *value = empty(field.presence, &field.ty);
                    }
                    true
                }
            }
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

/// `kind` and `apiVersion` come first, then the fields.
fn rank(ty: &Struct, name: &str) -> usize {
    match (ty.position(name), name) {
        (Some(position), _) => position + 2,
        (None, "kind") => 0,
        (None, "apiVersion") => 1,
        (None, _) => usize::MAX,
    }
}

impl FieldType {
    /// Whether Go's `omitempty` omits the value.
    fn is_zero(&self, value: &Value) -> bool {
        match self.shape {
            // Go omits a struct value only if every field is zero.
            FieldShape::Struct(_) | FieldShape::Raw | FieldShape::Json => {
                value.is_null() || value.as_map().is_some_and(Map::is_empty)
            }
            FieldShape::Quantity => value.is_null() || value.str() == "0",
            _ => value.is_empty(),
        }
    }
}

fn empty(presence: Presence, ty: &FieldType) -> Value {
    match presence {
        Presence::Nullable => Value::Null,
        _ => {
            let mut zero = ty.zero();
            canonical_value(ty, &mut zero, false);
            zero
        }
    }
}

fn canonical_value(ty: &FieldType, value: &mut Value, stored: bool) {
    match (&ty.shape, value) {
        (FieldShape::Struct(inner) | FieldShape::Or(_, inner), Value::Map(map)) => {
            canonical_fields(inner, map, stored)
        }
        (FieldShape::Or(_, inner), Value::List(items)) => {
            items
                .iter_mut()
                .for_each(|item| canonical_struct(inner, item, stored));
        }
        (FieldShape::List(item), Value::List(items)) => items.iter_mut().for_each(|value| {
            // A null in a list of structs is an empty struct.
            if value.is_null() && item.as_struct().is_some() {
                *value = Value::object();
            }
            canonical_value(item, value, stored)
        }),
        (FieldShape::Map(item), Value::Map(map)) => {
            map.values_mut()
                .for_each(|value| canonical_value(item, value, stored));
            map.sort();
        }
        _ => {}
    }
}
