//! Access to fields of objects with unknown types.
//!
//! As client-go's accessors do, each returns `None` if a field of the path is missing, and an error
//! if a field has another type.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// A field of an unexpected type, with its path.
///
/// ```
/// use mizzen_sdk::discover;
/// use serde_json::json;
///
/// let error = discover::get_i64(&json!({"spec": {"replicas": "three"}}), &["spec", "replicas"]).unwrap_err();
/// assert_eq!(error.to_string(), ".spec.replicas: expected integer, found string");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(".{path}: expected {expected}, found {found}")]
pub struct FieldError {
    /// The path of the field.
    pub path: String,
    /// The expected type.
    pub expected: &'static str,
    /// The actual type.
    pub found: &'static str,
}

/// The value at a path; `None` if a field on the way is missing or null.
///
/// ```
/// use mizzen_sdk::discover;
/// use serde_json::json;
///
/// let object = json!({"spec": {"replicas": 3}});
/// assert_eq!(discover::get(&object, &["spec", "replicas"])?, Some(&json!(3)));
/// assert_eq!(discover::get(&object, &["status", "replicas"])?, None);
/// # Ok::<(), discover::FieldError>(())
/// ```
pub fn get<'a>(object: &'a Value, path: &[&str]) -> Result<Option<&'a Value>, FieldError> {
    let mut value = object;
    for (depth, name) in path.iter().enumerate() {
        if value.is_null() {
            return Ok(None);
        }
        let Some(map) = value.as_object() else {
            return Err(wrong(&path[..depth], "object", value));
        };
        match map.get(*name) {
            Some(inner) => value = inner,
            None => return Ok(None),
        }
    }
    Ok(Some(value))
}

/// The value at a path, converted by `convert`.
fn get_as<'a, T>(
    object: &'a Value,
    path: &[&str],
    expected: &'static str,
    convert: impl FnOnce(&'a Value) -> Option<T>,
) -> Result<Option<T>, FieldError> {
    get(object, path)?
        .map(|value| convert(value).ok_or_else(|| wrong(path, expected, value)))
        .transpose()
}

/// The string at a path.
///
/// ```
/// use mizzen_sdk::discover;
/// use serde_json::json;
///
/// let object = json!({"metadata": {"name": "web"}});
/// assert_eq!(discover::get_str(&object, &["metadata", "name"])?, Some("web"));
/// # Ok::<(), discover::FieldError>(())
/// ```
pub fn get_str<'a>(object: &'a Value, path: &[&str]) -> Result<Option<&'a str>, FieldError> {
    get_as(object, path, "string", Value::as_str)
}

/// The boolean at a path.
///
/// ```
/// use mizzen_sdk::discover;
/// use serde_json::json;
///
/// let object = json!({"spec": {"paused": true}});
/// assert_eq!(discover::get_bool(&object, &["spec", "paused"])?, Some(true));
/// # Ok::<(), discover::FieldError>(())
/// ```
pub fn get_bool(object: &Value, path: &[&str]) -> Result<Option<bool>, FieldError> {
    get_as(object, path, "boolean", Value::as_bool)
}

/// The integer at a path. A number with a fraction, or beyond 64 bits, is an error.
///
/// ```
/// use mizzen_sdk::discover;
/// use serde_json::json;
///
/// let object = json!({"spec": {"replicas": 3}});
/// assert_eq!(discover::get_i64(&object, &["spec", "replicas"])?, Some(3));
/// # Ok::<(), discover::FieldError>(())
/// ```
pub fn get_i64(object: &Value, path: &[&str]) -> Result<Option<i64>, FieldError> {
    get_as(object, path, "integer", Value::as_i64)
}

/// The number at a path that has a fraction or an exponent. An integer is an error.
///
/// ```
/// use mizzen_sdk::discover;
/// use serde_json::json;
///
/// let object = json!({"spec": {"ratio": 0.5}});
/// assert_eq!(discover::get_f64(&object, &["spec", "ratio"])?, Some(0.5));
/// # Ok::<(), discover::FieldError>(())
/// ```
pub fn get_f64(object: &Value, path: &[&str]) -> Result<Option<f64>, FieldError> {
    get_as(object, path, "float", |value| {
        value.as_f64().filter(|_| value.is_f64())
    })
}

/// The number at a path, in any notation.
///
/// ```
/// use mizzen_sdk::discover;
/// use serde_json::json;
///
/// let object = json!({"spec": {"ratio": 2}});
/// assert_eq!(discover::get_number_as_f64(&object, &["spec", "ratio"])?, Some(2.0));
/// # Ok::<(), discover::FieldError>(())
/// ```
pub fn get_number_as_f64(object: &Value, path: &[&str]) -> Result<Option<f64>, FieldError> {
    get_as(object, path, "number", Value::as_f64)
}

/// The list at a path.
///
/// ```
/// use mizzen_sdk::discover;
/// use serde_json::json;
///
/// let object = json!({"spec": {"ports": [80, 443]}});
/// assert_eq!(discover::get_list(&object, &["spec", "ports"])?.map(|ports| ports.len()), Some(2));
/// # Ok::<(), discover::FieldError>(())
/// ```
pub fn get_list<'a>(
    object: &'a Value,
    path: &[&str],
) -> Result<Option<&'a Vec<Value>>, FieldError> {
    get_as(object, path, "array", Value::as_array)
}

/// The list of strings at a path.
///
/// ```
/// use mizzen_sdk::discover;
/// use serde_json::json;
///
/// let object = json!({"metadata": {"finalizers": ["example.com/clean-up"]}});
/// let finalizers = discover::get_str_list(&object, &["metadata", "finalizers"])?;
/// assert_eq!(finalizers.map(|finalizers| finalizers.len()), Some(1));
/// # Ok::<(), discover::FieldError>(())
/// ```
pub fn get_str_list<'a>(
    object: &'a Value,
    path: &[&str],
) -> Result<Option<Vec<&'a str>>, FieldError> {
    let Some(list) = get_list(object, path)? else {
        return Ok(None);
    };
    let item = |(at, item): (usize, &'a Value)| {
        let place = || format!("{}[{at}]", path.join("."));
        item.as_str().ok_or_else(|| FieldError {
            path: place(),
            expected: "string",
            found: word(item),
        })
    };
    list.iter()
        .enumerate()
        .map(item)
        .collect::<Result<_, _>>()
        .map(Some)
}

/// The map at a path.
///
/// ```
/// use mizzen_sdk::discover;
/// use serde_json::json;
///
/// let object = json!({"spec": {"template": {"spec": {}}}});
/// assert!(discover::get_map(&object, &["spec", "template"])?.is_some_and(|map| map.contains_key("spec")));
/// # Ok::<(), discover::FieldError>(())
/// ```
pub fn get_map<'a>(
    object: &'a Value,
    path: &[&str],
) -> Result<Option<&'a Map<String, Value>>, FieldError> {
    get_as(object, path, "object", Value::as_object)
}

/// The map of strings at a path.
///
/// ```
/// use mizzen_sdk::discover;
/// use serde_json::json;
///
/// let object = json!({"metadata": {"labels": {"app": "web"}}});
/// let labels = discover::get_str_map(&object, &["metadata", "labels"])?.unwrap_or_default();
/// assert_eq!(labels["app"], "web");
/// # Ok::<(), discover::FieldError>(())
/// ```
pub fn get_str_map<'a>(
    object: &'a Value,
    path: &[&str],
) -> Result<Option<BTreeMap<&'a str, &'a str>>, FieldError> {
    str_map(object, path, |_| None)
}

/// The map of strings at a path, in which null stands for the empty string.
///
/// ```
/// use mizzen_sdk::discover;
/// use serde_json::json;
///
/// let object = json!({"metadata": {"labels": {"app": null}}});
/// let labels = discover::get_null_coercing_str_map(&object, &["metadata", "labels"])?.unwrap_or_default();
/// assert_eq!(labels["app"], "");
/// # Ok::<(), discover::FieldError>(())
/// ```
pub fn get_null_coercing_str_map<'a>(
    object: &'a Value,
    path: &[&str],
) -> Result<Option<BTreeMap<&'a str, &'a str>>, FieldError> {
    str_map(object, path, |value| value.is_null().then_some(""))
}

fn str_map<'a>(
    object: &'a Value,
    path: &[&str],
    coerce: impl Fn(&Value) -> Option<&'static str>,
) -> Result<Option<BTreeMap<&'a str, &'a str>>, FieldError> {
    let Some(map) = get_map(object, path)? else {
        return Ok(None);
    };
    let item =
        |(name, value): (&'a String, &'a Value)| match value.as_str().or_else(|| coerce(value)) {
            Some(text) => Ok((name.as_str(), text)),
            None => Err(wrong(&[path, &[name]].concat(), "string", value)),
        };
    map.iter().map(item).collect::<Result<_, _>>().map(Some)
}

/// Sets the list of strings at a path; missing objects are created.
///
/// ```
/// use mizzen_sdk::discover;
/// use serde_json::json;
///
/// let mut object = json!({});
/// discover::set_str_list(&mut object, &["metadata", "finalizers"], ["example.com/clean-up"])?;
/// assert_eq!(object, json!({"metadata": {"finalizers": ["example.com/clean-up"]}}));
/// # Ok::<(), discover::FieldError>(())
/// ```
pub fn set_str_list<S: Into<String>>(
    object: &mut Value,
    path: &[&str],
    list: impl IntoIterator<Item = S>,
) -> Result<(), FieldError> {
    set(
        object,
        path,
        list.into_iter()
            .map(|item| Value::String(item.into()))
            .collect::<Vec<_>>(),
    )
}

/// Sets the map of strings at a path; missing objects are created.
///
/// ```
/// use mizzen_sdk::discover;
/// use serde_json::json;
///
/// let mut object = json!({});
/// discover::set_str_map(&mut object, &["metadata", "labels"], [("app", "web")])?;
/// assert_eq!(object, json!({"metadata": {"labels": {"app": "web"}}}));
/// # Ok::<(), discover::FieldError>(())
/// ```
pub fn set_str_map<N: Into<String>, S: Into<String>>(
    object: &mut Value,
    path: &[&str],
    map: impl IntoIterator<Item = (N, S)>,
) -> Result<(), FieldError> {
    let map: Map<_, _> = map
        .into_iter()
        .map(|(name, value)| (name.into(), Value::String(value.into())))
        .collect();
    set(object, path, map)
}

/// Sets the value at a path; missing objects are created.
///
/// ```
/// use mizzen_sdk::discover;
/// use serde_json::json;
///
/// let mut object = json!({"spec": {"paused": true}});
/// discover::set(&mut object, &["spec", "replicas"], json!(3))?;
/// assert_eq!(object, json!({"spec": {"paused": true, "replicas": 3}}));
/// # Ok::<(), discover::FieldError>(())
/// ```
pub fn set(object: &mut Value, path: &[&str], value: impl Into<Value>) -> Result<(), FieldError> {
    let mut place = object;
    for (depth, name) in path.iter().enumerate() {
        if place.is_null() {
            *place = Value::Object(Map::new());
        }
        let found = word(place);
        let Some(map) = place.as_object_mut() else {
            return Err(FieldError {
                path: path[..depth].join("."),
                expected: "object",
                found,
            });
        };
        place = map.entry(*name).or_insert(Value::Null);
    }
    *place = value.into();
    Ok(())
}

/// Removes the value at a path and returns it.
///
/// ```
/// use mizzen_sdk::discover;
/// use serde_json::json;
///
/// let mut object = json!({"spec": {"paused": true, "replicas": 3}});
/// discover::remove(&mut object, &["spec", "paused"]);
/// assert_eq!(object, json!({"spec": {"replicas": 3}}));
/// # Ok::<(), discover::FieldError>(())
/// ```
pub fn remove(object: &mut Value, path: &[&str]) -> Result<Option<Value>, FieldError> {
    let Some((last, parents)) = path.split_last() else {
        return Ok(None);
    };
    let mut place = object;
    for (depth, name) in parents.iter().enumerate() {
        let found = word(place);
        let Some(map) = place.as_object_mut() else {
            return Err(FieldError {
                path: path[..depth].join("."),
                expected: "object",
                found,
            });
        };
        match map.get_mut(*name) {
            Some(inner) => place = inner,
            None => return Ok(None),
        }
    }
    let found = word(place);
    match place.as_object_mut() {
        Some(map) => Ok(map.remove(*last)),
        None => Err(FieldError {
            path: parents.join("."),
            expected: "object",
            found,
        }),
    }
}

fn wrong(path: &[&str], expected: &'static str, value: &Value) -> FieldError {
    FieldError {
        path: path.join("."),
        expected,
        found: word(value),
    }
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
