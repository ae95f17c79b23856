//! Strategic merge patch: a merge patch that knows the schema, so that lists are merged by key.
//!
//! A patch looks like the object. Null removes; maps merge; of a list the schema says whether it is merged
//! (structs by a key, scalars as a set) or replaced. Directives inside the patch say what data cannot:
//!
//! | directive | means |
//! |---|---|
//! | `$patch: replace` or `delete` in a map | take the patch instead, or nothing |
//! | `$patch: delete` in a list item | remove the item with this key |
//! | `$patch: replace` in a list item | the other items replace the list |
//! | `$retainKeys: […]` in a map | remove all members but these |
//! | `$setElementOrder/<list>: […]` | the order of the list afterwards |
//! | `$deleteFromPrimitiveList/<list>: […]` | remove these scalars |
//!
//! Reading order: `merge` (maps), `list`, `order` (where items end up), `lookup` (what the schema says), and the
//! way back, `diff`.

mod diff;
mod list;
mod lookup;
mod merge;
mod order;
#[cfg(test)]
mod tests;

pub use diff::strategic_diff;
pub use merge::strategic_merge;

use super::go_text::{go_string, go_text, go_type};
use mizzen_value::{Map, Str, Value};

const DIRECTIVE: &str = "$patch";
const DELETE: &str = "delete";
const REPLACE: &str = "replace";
const MERGE: &str = "merge";
const RETAIN_KEYS: &str = "$retainKeys";
const ELEMENT_ORDER: &str = "$setElementOrder";
const DELETE_LIST: &str = "$deleteFromPrimitiveList";

/// Why a strategic merge patch cannot be applied, with upstream's message, by status code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StrategicError {
    /// A directive is malformed: 400.
    #[error("{0}")]
    BadRequest(String),
    /// A merged list contains lists: 422.
    #[error("{0}")]
    Unprocessable(String),
    /// The patch does not match the object: 500, as upstream responds.
    #[error("{0}")]
    Internal(String),
}

impl StrategicError {
    fn bad_format(directive: &str) -> StrategicError {
        let what = match directive {
            DELETE_LIST => "primitive list",
            RETAIN_KEYS => "retainKeys",
            _ => "setElementOrder list",
        };
        StrategicError::BadRequest(format!("invalid patch format of {what}"))
    }

    fn no_merge_key(item: &Map, key: &str) -> StrategicError {
        let item = go_text(&Value::Map(item.clone()));
        StrategicError::Internal(format!(
            "map: {item} does not contain declared merge key: {key}"
        ))
    }

    fn wrong_type(expected: &str, found: &Value) -> StrategicError {
        StrategicError::Internal(format!(
            "expected a {expected}, but received a {}",
            go_type(found)
        ))
    }

    fn unknown_directive(directive: &Value, map: &Map) -> StrategicError {
        let (directive, map) = (go_string(directive), go_text(&Value::Map(map.clone())));
        StrategicError::Internal(format!("unknown patch type: {directive} in map: {map}"))
    }

    /// Kubernetes: upstream panics here and drops the connection.
    fn not_comparable(value: &Value) -> StrategicError {
        StrategicError::Internal(format!("cannot compare a {}", go_type(value)))
    }
}

/// The value of a merge key: a scalar, compared as Go compares it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum MergeKeyValue {
    Null,
    Bool(bool),
    Int(i64),
    Float(u64),
    Text(Str),
}

impl MergeKeyValue {
    fn from_value(value: &Value) -> Option<MergeKeyValue> {
        Some(match value {
            Value::Null => MergeKeyValue::Null,
            Value::Bool(bool) => MergeKeyValue::Bool(*bool),
            Value::Int(int) => MergeKeyValue::Int(*int),
            Value::Number(_) => MergeKeyValue::Float(value.as_f64().unwrap_or_default().to_bits()),
            Value::String(text) => MergeKeyValue::Text(text.clone()),
            Value::List(_) | Value::Map(_) => return None,
        })
    }

    /// The key of a list item: the item itself, or its member `merge_key`.
    fn of_item(item: &Value, merge_key: Option<&str>) -> Result<MergeKeyValue, StrategicError> {
        let value = match merge_key {
            Some(name) => member(item, name)?,
            None => item,
        };
        MergeKeyValue::from_value(value).ok_or_else(|| StrategicError::not_comparable(value))
    }

    fn of_items(
        items: &[Value],
        merge_key: Option<&str>,
    ) -> Result<Vec<MergeKeyValue>, StrategicError> {
        items
            .iter()
            .map(|item| MergeKeyValue::of_item(item, merge_key))
            .collect()
    }
}

fn as_map(item: &Value) -> Result<&Map, StrategicError> {
    item.as_map()
        .ok_or_else(|| StrategicError::wrong_type("map[string]interface {}", item))
}

fn member<'a>(item: &'a Value, name: &str) -> Result<&'a Value, StrategicError> {
    let map = as_map(item)?;
    map.get(name)
        .ok_or_else(|| StrategicError::no_merge_key(map, name))
}

fn has_directive(item: &Value) -> bool {
    item.get(DIRECTIVE).is_some()
}
