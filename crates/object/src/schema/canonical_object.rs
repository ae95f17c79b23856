//! An object that knows whether it is in canonical form.

use std::ops::{Deref, DerefMut};

use super::canonical::rank;
use super::{Struct, StructField, canonical};
use mizzen_value::{Map, Value};

/// An object in canonical form, until it is changed.
///
/// The stages of a write hand it on, so that each of them can rely on the form and none has to
/// establish it again. Reads go through to the [`Value`]. A mutable borrow may change anything and
/// ends the form; [`restore`](CanonicalObject::restore) brings it back, and costs nothing if no
/// stage has changed the object.
///
/// ```
/// use mizzen_object::schema::{self, CanonicalObject};
/// use mizzen_value::{json, value};
///
/// let types = "
/// group example
/// version v1
/// type Limit
///   1 min ?int32
///   2 max ?int32
/// ";
/// let types = schema::parse([("example.kinds", types)]).unwrap();
/// let limit = &types.types["example/v1.Limit"];
/// let mut object = CanonicalObject::from(value!({ "max": 2, "min": 1 }));
/// object.restore(limit);
/// assert_eq!(json::to_string(&object), r#"{"min":1,"max":2}"#);
/// ```
#[derive(Debug, Clone, Default)]
pub struct CanonicalObject {
    value: Value,
    is_canonical: bool,
}

impl CanonicalObject {
    /// A value that is in canonical form.
    pub fn assume(value: Value) -> CanonicalObject {
        CanonicalObject {
            value,
            is_canonical: true,
        }
    }

    /// Brings the object into the canonical form of `ty`, unless it is.
    pub fn restore(&mut self, ty: &Struct) {
        if !self.is_canonical {
            canonical(ty, &mut self.value);
            self.is_canonical = true;
        }
        debug_assert!(self.is_in_form_of(ty), "{:?}", self.value);
    }

    /// Changes the object by a function that keeps its form.
    pub fn edit_in_form<T>(&mut self, edit: impl FnOnce(&mut Value) -> T) -> T {
        edit(&mut self.value)
    }

    /// Sets a member of an object of type `ty`, in its place.
    pub fn set_field(&mut self, ty: &Struct, name: &str, value: Value) {
        let map = self.value.make_map();
        match ty.rest() {
            Some(_) => set_by_rank(map, name, value, str::to_owned),
            None => set_by_rank(map, name, value, |name| rank(ty, name)),
        }
    }

    /// Removes a member of an object of type `ty`.
    pub fn remove_field(&mut self, ty: &Struct, name: &str) {
        let is_always = ty.field(name).is_some_and(StructField::is_always);
        self.is_canonical &= self.value.remove(name).is_none() || !is_always;
    }

    /// Sets a member of the metadata of an object of type `ty`, in its place.
    pub fn set_metadata(&mut self, ty: &Struct, name: &str, value: impl Into<Value>) {
        let object_meta = ty.field("metadata").and_then(|field| field.ty.as_struct());
        match (object_meta, self.value.get_mut("metadata")) {
            // Kubernetes: a custom resource is an untyped map.
            (Some(_), Some(Value::Map(metadata))) if ty.rest().is_some() => {
                set_by_rank(metadata, name, value.into(), str::to_owned);
            }
            (Some(object_meta), Some(Value::Map(metadata))) => {
                set_by_rank(metadata, name, value.into(), |name| rank(object_meta, name));
            }
            _ => self.entry("metadata").set(name, value),
        }
    }

    /// Removes a member of the metadata.
    pub fn remove_metadata(&mut self, name: &str) {
        if let Some(Value::Map(metadata)) = self.value.get_mut("metadata")
            && metadata.remove(name).is_some()
        {
            // Empty metadata is omitted.
            self.is_canonical &= !metadata.is_empty();
        }
    }

    /// The object itself.
    pub fn into_value(self) -> Value {
        self.value
    }

    fn is_in_form_of(&self, ty: &Struct) -> bool {
        let mut arranged = self.value.clone();
        canonical(ty, &mut arranged);
        let text = |value: &Value| mizzen_value::json::to_string(value);
        text(&arranged) == text(&self.value)
    }
}

/// Sets a member of a map that is ordered by `rank`.
fn set_by_rank<R: Ord>(map: &mut Map, name: &str, value: Value, rank: impl Fn(&str) -> R) {
    if let Some(slot) = map.get_mut(name) {
        *slot = value;
        return;
    }
    let own = rank(name);
    let later = map.keys().position(|key| rank(key) > own);
    map.insert_at(later.unwrap_or(map.len()), name, value);
}

/// Nothing is known about the form of the value.
impl From<Value> for CanonicalObject {
    fn from(value: Value) -> CanonicalObject {
        CanonicalObject {
            value,
            is_canonical: false,
        }
    }
}

impl Deref for CanonicalObject {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.value
    }
}

impl DerefMut for CanonicalObject {
    fn deref_mut(&mut self) -> &mut Value {
        self.is_canonical = false;
        &mut self.value
    }
}
