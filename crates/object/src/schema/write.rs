//! Writes the canonical form of an object as it is stored.
//!
//! Invariant: the text is that of [`canonical_stored`] and [`json::write`], in one pass.

use std::ops::Range;

use super::canonical::{empty, rank};
use super::{
    CanonicalMembers, FieldShape, FieldType, Presence, Struct, StructField, canonical_stored,
};
use mizzen_value::json;
use mizzen_value::{Map, Value};

/// Appends the canonical text of an object as it is stored. Returns where in it the
/// `metadata.resourceVersion` is, without its quotes, if the object has one.
///
/// The object itself is not brought into canonical form, unless it is a custom resource.
pub fn write_stored(ty: &Struct, object: &mut Value, out: &mut Vec<u8>) -> Option<Range<usize>> {
    let mut writer = CanonicalWriter {
        out,
        positions: Vec::new(),
        version: None,
    };
    // Kubernetes: the numbers of a custom resource are normalized.
    if ty.rest().is_some() {
        canonical_stored(ty, object);
    }
    match object {
        Value::Map(map) if ty.rest().is_some() => writer.untyped(map, Place::Root),
        Value::Map(map) => writer.fields(ty, map, Place::Root),
        other => json::write(other, writer.out),
    }
    writer.version
}

/// Where in an object a struct is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Root,
    Metadata,
    Below,
}

impl Place {
    fn member(self, name: &str) -> Place {
        match (self, name) {
            (Place::Root, "metadata") => Place::Metadata,
            _ => Place::Below,
        }
    }
}

struct CanonicalWriter<'a> {
    out: &'a mut Vec<u8>,
    /// The positions of the members of all open structs in their types.
    positions: Vec<Option<usize>>,
    version: Option<Range<usize>>,
}

impl CanonicalWriter<'_> {
    fn fields(&mut self, ty: &Struct, map: &Map, place: Place) {
        let (first, mut members) = (self.positions.len(), CanonicalMembers::default());
        for name in map.keys() {
            let position = ty.position(name);
            match position {
                Some(position) => members.add_kept(position, &ty.fields()[position]),
                None => members.add_unknown(name),
            }
            self.positions.push(position);
        }
        self.out.push(b'{');
        if members.is_complete(ty) {
            for (index, (name, value)) in map.iter().enumerate() {
                let field = self.positions[first + index].map(|position| &ty.fields()[position]);
                self.member(field, name, value, place);
            }
        } else {
            self.fields_in_disorder(ty, map, place);
        }
        self.close();
        self.positions.truncate(first);
    }

    /// Writes members that are not in order, or of which some are missing.
    fn fields_in_disorder(&mut self, ty: &Struct, map: &Map, place: Place) {
        let missing: Vec<(usize, &str, Value)> = ty
            .always()
            .filter(|(_, field)| !map.contains_key(&field.name))
            .map(|(at, field)| (at + 2, &*field.name, empty(field.presence, &field.ty)))
            .collect();
        let present = map
            .iter()
            .map(|(name, value)| (rank(ty, name), name, value));
        let missing = missing
            .iter()
            .map(|(rank, name, value)| (*rank, *name, value));
        let mut members: Vec<(usize, &str, &Value)> = present.chain(missing).collect();
        members.sort_by_key(|(rank, ..)| *rank);
        for (_, name, value) in members {
            self.member(ty.field(name), name, value, place);
        }
    }

    /// Writes a member, with a comma, unless its value is omitted.
    fn member(&mut self, field: Option<&StructField>, name: &str, value: &Value, place: Place) {
        if field.is_some_and(|field| field.omits(value)) {
            return;
        }
        let start = self.out.len();
        self.key(name);
        let content = self.out.len();
        match field {
            Some(field)
                if field.is_always() && (value.is_null() || field.is_empty_container(value)) =>
            {
                json::write(&empty(field.presence, &field.ty), self.out);
            }
            Some(field) => self.value(&field.ty, value, place.member(name)),
            None => json::write(value, self.out),
        }
        // A struct without members that are written is omitted, too.
        let is_struct = field.is_some_and(|field| {
            field.presence == Presence::NotEmpty
                && matches!(field.ty.shape, FieldShape::Struct(_) | FieldShape::Or(..))
        });
        if is_struct && self.out[content..] == *b"{}" {
            self.out.truncate(start);
            return;
        }
        if place == Place::Metadata && name == "resourceVersion" {
            self.version = Some(content + 1..self.out.len() - 1);
        }
        self.out.push(b',');
    }

    fn value(&mut self, ty: &FieldType, value: &Value, place: Place) {
        match (&ty.shape, value) {
            (FieldShape::Struct(inner) | FieldShape::Or(_, inner), Value::Map(map)) => {
                self.fields(inner, map, place)
            }
            (FieldShape::Or(_, inner), Value::List(items)) => {
                self.items(items, |writer, item| match item {
                    Value::Map(map) => writer.fields(inner, map, Place::Below),
                    other => json::write(other, writer.out),
                });
            }
            (FieldShape::List(item_type), Value::List(items)) => {
                self.items(items, |writer, item| match (item, item_type.as_struct()) {
                    // A null in a list of structs is an empty struct.
                    (Value::Null, Some(inner)) => {
                        writer.fields(inner, &Map::default(), Place::Below)
                    }
                    _ => writer.value(item_type, item, Place::Below),
                });
            }
            (FieldShape::Map(item), Value::Map(map)) => {
                self.out.push(b'{');
                let is_sorted = map.keys().is_sorted();
                let mut members: Vec<_> = Vec::new();
                if !is_sorted {
                    members.extend(map.iter());
                    members.sort_unstable_by_key(|(key, _)| *key);
                }
                let in_order = map.iter().filter(|_| is_sorted);
                for (key, value) in in_order.chain(members) {
                    self.key(key);
                    self.value(item, value, Place::Below);
                    self.out.push(b',');
                }
                self.close();
            }
            (_, value) => json::write(value, self.out),
        }
    }

    fn items(&mut self, items: &[Value], mut write: impl FnMut(&mut Self, &Value)) {
        self.out.push(b'[');
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                self.out.push(b',');
            }
            write(self, item);
        }
        self.out.push(b']');
    }

    /// Writes an object as it is.
    fn untyped(&mut self, map: &Map, place: Place) {
        self.out.push(b'{');
        for (name, value) in map.iter() {
            self.key(name);
            let content = self.out.len();
            match (place, name, value) {
                (Place::Root, "metadata", Value::Map(metadata)) => {
                    self.untyped(metadata, Place::Metadata)
                }
                _ => json::write(value, self.out),
            }
            if place == Place::Metadata && name == "resourceVersion" {
                self.version = Some(content + 1..self.out.len() - 1);
            }
            self.out.push(b',');
        }
        self.close();
    }

    fn key(&mut self, name: &str) {
        json::write_string(name, self.out);
        self.out.push(b':');
    }

    /// Ends a map of which every member is followed by a comma.
    fn close(&mut self) {
        match self.out.last_mut() {
            Some(last) if *last == b',' => *last = b'}',
            _ => self.out.push(b'}'),
        }
    }
}
