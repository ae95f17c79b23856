//! Reading and writing fields of objects whose type is not known.

use serde_json::{Map, Value};

/// A field that is not what it was taken for. It names the place up to which the path led.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(".{path}: expected {expected}, found {found}")]
pub struct FieldError {
    /// The field.
    pub path: String,
    /// What it should be.
    pub expected: &'static str,
    /// What it is.
    pub found: &'static str,
}

/// The value at a path; none if a field on the way is missing.
pub fn get<'a>(object: &'a Value, path: &[&str]) -> Result<Option<&'a Value>, FieldError> {
    let mut value = object;
    for (depth, name) in path.iter().enumerate() {
        let Some(map) = value.as_object() else { return Err(wrong(&path[..depth], "object", value)) };
        match map.get(*name) {
            Some(inner) => value = inner,
            None => return Ok(None),
        }
    }
    Ok(Some(value))
}

/// The text at a path.
pub fn get_str<'a>(object: &'a Value, path: &[&str]) -> Result<Option<&'a str>, FieldError> {
    get(object, path)?.map(|value| value.as_str().ok_or_else(|| wrong(path, "string", value))).transpose()
}

/// The list at a path.
pub fn get_list<'a>(object: &'a Value, path: &[&str]) -> Result<Option<&'a Vec<Value>>, FieldError> {
    get(object, path)?.map(|value| value.as_array().ok_or_else(|| wrong(path, "array", value))).transpose()
}

/// Sets the value at a path; objects on the way are made.
pub fn set(object: &mut Value, path: &[&str], value: Value) -> Result<(), FieldError> {
    let mut place = object;
    for (depth, name) in path.iter().enumerate() {
        if place.is_null() {
            *place = Value::Object(Map::new());
        }
        let found = word(place);
        let Some(map) = place.as_object_mut() else {
            return Err(FieldError { path: path[..depth].join("."), expected: "object", found });
        };
        place = map.entry(*name).or_insert(Value::Null);
    }
    *place = value;
    Ok(())
}

/// Removes the value at a path; what it was.
pub fn remove(object: &mut Value, path: &[&str]) -> Result<Option<Value>, FieldError> {
    let Some((last, parents)) = path.split_last() else { return Ok(None) };
    let mut place = object;
    for (depth, name) in parents.iter().enumerate() {
        let found = word(place);
        let Some(map) = place.as_object_mut() else {
            return Err(FieldError { path: path[..depth].join("."), expected: "object", found });
        };
        match map.get_mut(*name) {
            Some(inner) => place = inner,
            None => return Ok(None),
        }
    }
    let found = word(place);
    match place.as_object_mut() {
        Some(map) => Ok(map.remove(*last)),
        None => Err(FieldError { path: parents.join("."), expected: "object", found }),
    }
}

fn wrong(path: &[&str], expected: &'static str, value: &Value) -> FieldError {
    FieldError { path: path.join("."), expected, found: word(value) }
}

fn word(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
