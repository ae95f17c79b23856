//! The canonical form of a typed value: Go's field order and `omitempty`.
//!
//! Invariant: canonical(canonical(x)) = canonical(x).

use super::{FieldShape, FieldType, Presence, Struct, StructField};
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
    arrange(ty, map, stored, |ty, value| {
        canonical_value(ty, value, stored)
    });
}

/// Brings the members of a struct into canonical form, each of them by `canonical_value`.
fn arrange(
    ty: &Struct,
    map: &mut Map,
    stored: bool,
    canonical_value: impl Fn(&FieldType, &mut Value),
) {
    let mut members = CanonicalMembers::default();
    map.retain(|name, value| {
        let Some(position) = ty.position(name) else {
            members.add_unknown(name);
            return true;
        };
        let field = &ty.fields()[position];
        canonical_value(&field.ty, value);
        let is_empty = value.is_null() || stored && field.is_empty_container(value);
        if is_empty && field.is_always() {
            *value = empty(field.presence, &field.ty);
        }
        let is_kept = !field.omits(value);
        if is_kept {
            members.add_kept(position, field);
        }
        is_kept
    });
    if members.n_always < ty.always().len() {
        for (_, field) in ty.always() {
            if !map.contains_key(&field.name) {
                map.insert(field.name.clone(), empty(field.presence, &field.ty));
                members.in_order = false;
            }
        }
    }
    if ty.rest().is_some() {
        map.values_mut().for_each(json::normalize);
        return map.sort();
    }
    if !members.in_order {
        map.sort_by_rank(|name| rank(ty, name));
    }
}

/// The members of a struct that is being built: whether they are in canonical form.
///
/// A decoder adds each member once its value is complete and canonical, and brings the struct into
/// canonical form at its end. For most structs that costs nothing.
#[derive(Debug)]
pub(crate) struct CanonicalMembers {
    /// The least rank of the next member.
    next: usize,
    in_order: bool,
    /// Whether a member is to be omitted, or replaced by an empty value.
    has_empty: bool,
    /// The number of members that are always written.
    n_always: usize,
}

impl Default for CanonicalMembers {
    fn default() -> CanonicalMembers {
        CanonicalMembers {
            next: 0,
            in_order: true,
            has_empty: false,
            n_always: 0,
        }
    }
}

impl CanonicalMembers {
    /// Notes the value of a field. `position` is that of the field in its struct.
    pub(crate) fn add(&mut self, position: usize, field: &StructField, value: &Value) {
        self.has_empty |=
            field.omits(value) || value.is_null() && field.presence == Presence::Always;
        self.add_kept(position, field);
    }

    /// Notes that the struct had members before, or has one again.
    pub(crate) fn disturb(&mut self) {
        self.in_order = false;
    }

    /// Notes a member that is no field: `kind`, `apiVersion`.
    pub(crate) fn add_unknown(&mut self, name: &str) {
        self.add_rank(match name {
            "kind" => 0,
            "apiVersion" => 1,
            _ => usize::MAX,
        });
    }

    /// Notes a field whose value is not omitted, or need not be looked at.
    pub(super) fn add_kept(&mut self, position: usize, field: &StructField) {
        self.n_always += usize::from(field.is_always());
        self.add_rank(position + 2);
    }

    fn add_rank(&mut self, rank: usize) {
        self.in_order &= rank >= self.next;
        self.next = rank;
    }

    /// Whether all are in order, and none is missing or to be omitted.
    pub(super) fn is_complete(&self, ty: &Struct) -> bool {
        self.in_order && !self.has_empty && self.n_always == ty.always().len()
    }

    /// Brings the whole struct into canonical form. The values of its members are.
    pub(crate) fn finish(self, ty: &Struct, map: &mut Map) {
        if !self.is_complete(ty) {
            arrange(ty, map, false, |_, _| {});
        }
    }
}

/// `kind` and `apiVersion` come first, then the fields.
pub(super) fn rank(ty: &Struct, name: &str) -> usize {
    match (ty.position(name), name) {
        (Some(position), _) => position + 2,
        (None, "kind") => 0,
        (None, "apiVersion") => 1,
        (None, _) => usize::MAX,
    }
}

impl StructField {
    /// Whether it is written whatever its value is.
    pub(super) fn is_always(&self) -> bool {
        matches!(self.presence, Presence::Always | Presence::Nullable)
    }

    /// Whether it is a list or map and has no content.
    pub(super) fn is_empty_container(&self, value: &Value) -> bool {
        matches!(self.ty.shape, FieldShape::List(_) | FieldShape::Map(_)) && value.is_empty()
    }

    /// Whether a canonical struct lacks the field because of its value.
    pub(super) fn omits(&self, value: &Value) -> bool {
        match self.presence {
            Presence::Set => value.is_null(),
            Presence::NotEmpty => self.ty.is_zero(value),
            Presence::Always | Presence::Nullable => false,
        }
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

/// The value of a field that is always written and has none.
pub(super) fn empty(presence: Presence, ty: &FieldType) -> Value {
    match presence {
        Presence::Nullable => Value::Null,
        _ => zero(ty),
    }
}

/// Go's zero value, in canonical form.
pub(crate) fn zero(ty: &FieldType) -> Value {
    let mut zero = ty.zero();
    canonical_value(ty, &mut zero, false);
    zero
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
