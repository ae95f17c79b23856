//! The encoding of a field set in `fieldsV1`: nested maps whose keys are path elements.
//!
//! `{"f:spec":{"f:ports":{".":{},"k:{\"port\":80}":{…}}}}`. An empty map is a member without
//! children; `.` marks a member that has children.

use smol_str::SmolStrBuilder;

use super::field_set::{FieldSet, FieldSetNode};
use super::path_element::PathElement;
use mizzen_value::json::{self, JsonScanner};
use mizzen_value::{Map, Str, Value};

/// Why a value is not a field set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FieldsError(String);

impl FieldSet {
    /// Parses the JSON text of a set.
    pub fn parse(text: &str) -> Result<FieldSet, FieldsError> {
        let value = json::parse(text.as_bytes()).map_err(|error| FieldsError(error.to_string()))?;
        FieldSet::from_value(&value)
    }

    /// Decodes a set from `fieldsV1`.
    pub fn from_value(value: &Value) -> Result<FieldSet, FieldsError> {
        FieldSet::read(value).map(|(set, _)| set)
    }

    /// Decodes a set, and returns whether [`FieldSet::to_value`] would produce the same value in
    /// the same order.
    pub(super) fn read(value: &Value) -> Result<(FieldSet, bool), FieldsError> {
        let map = match value {
            Value::Map(map) => map,
            Value::Null => return Ok((FieldSet::default(), false)),
            _ => {
                return Err(FieldsError(format!(
                    "expect {{ or n, but found {}",
                    value.go_word()
                )));
            }
        };
        let mut nodes: Vec<FieldSetNode> = Vec::with_capacity(map.len());
        let mut exact = true;
        for (index, (key, below)) in map.iter().enumerate() {
            if key == "." {
                exact &= index == 0 && map.len() > 1 && below.as_map().is_some_and(Map::is_empty);
                continue;
            }
            let Some(element) = PathElement::parse(key)? else {
                exact = false;
                continue;
            };
            let (children, as_is) = FieldSet::read(below)?;
            let member = children.is_empty() || below.get(".").is_some();
            exact &= as_is && nodes.last().is_none_or(|last| last.element < element);
            exact &= matches!(element, PathElement::Name(_)) || text(&element) == key;
            nodes.push(FieldSetNode {
                element,
                member,
                children,
            });
        }
        Ok((FieldSet::from_nodes(nodes), exact))
    }

    /// The value of `fieldsV1`.
    pub fn to_value(&self) -> Value {
        Value::Map(members(self, false))
    }
}

fn members(set: &FieldSet, with_self: bool) -> Map {
    let mut map = Map::with_capacity(set.nodes().len() + usize::from(with_self));
    if with_self {
        map.insert(Str::new_static("."), Value::object());
    }
    for node in set.nodes() {
        let below = match node.children.is_empty() {
            true => Map::default(),
            false => members(&node.children, node.member),
        };
        map.insert(text(&node.element), below);
    }
    map
}

impl PathElement {
    /// Parses a path element; `None` for an unknown type of element, which is ignored.
    fn parse(text: &str) -> Result<Option<PathElement>, FieldsError> {
        let fail = |problem: String| {
            Err(FieldsError(format!(
                "parsing key as path element: {problem}"
            )))
        };
        if text.len() < 2 {
            return fail("key must be 2 characters long:".into());
        }
        let Some((kind, rest)) = text.split_once(':').filter(|(kind, _)| kind.len() == 1) else {
            return fail(format!("missing colon: {text}"));
        };
        Ok(Some(match kind {
            "f" => PathElement::Name(rest.into()),
            "k" => match read_json(rest)? {
                Value::Map(map) => PathElement::key(map.into_iter().collect()),
                _ => return fail(format!("not a key: {rest}")),
            },
            "v" => PathElement::Value(Box::new(read_json(rest)?)),
            "i" => match rest.parse() {
                Ok(index) => PathElement::Index(index),
                Err(_) => {
                    return fail(format!(
                        "strconv.Atoi: parsing {}: invalid syntax",
                        json::quote(rest)
                    ));
                }
            },
            _ => return Ok(None),
        }))
    }
}

fn read_json(text: &str) -> Result<Value, FieldsError> {
    json::read(&mut JsonScanner::new(text.as_bytes()))
        .map_err(|error| FieldsError(error.to_string()))
}

fn text(element: &PathElement) -> Str {
    let mut out = SmolStrBuilder::new();
    match element {
        PathElement::Name(name) => {
            out.push_str("f:");
            out.push_str(name);
        }
        PathElement::Key(fields) => {
            let map: Map = fields.iter().cloned().collect();
            out.push_str("k:");
            out.push_str(&json::to_string(&Value::Map(map)));
        }
        PathElement::Value(value) => {
            out.push_str("v:");
            out.push_str(&json::to_string(value));
        }
        PathElement::Index(index) => {
            out.push_str("i:");
            out.push_str(itoa::Buffer::new().format(*index));
        }
    }
    out.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let answer = FieldSet::parse(text)
            .map_or_else(|error| format!("error: {error}"), |set| set.to_string());
        assert_eq!(answer, expected);
    }

    #[test]
    fn encoding_round_trips() {
        let text = concat!(
            r#"{"f:b":{".":{},"f:x":{}},"f:c":{"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:port":{}}},"#,
            r#""f:d":{".":{},"v:1":{},"v:\"a\\u003cb\"":{},"v:true":{}},"f:e":{"i:0":{},"i:10":{}}}"#,
        );
        check(text, text);
    }

    #[test]
    fn path_elements_are_sorted_when_encoded() {
        check(
            r#"{"f:z":{},"i:2":{},"v:\"b\"":{},"v:2":{},"k:{\"b\":1,\"a\":2}":{},"k:{\"a\":1}":{},"f:a":{}}"#,
            r#"{"f:a":{},"f:z":{},"k:{\"a\":1}":{},"k:{\"a\":2,\"b\":1}":{},"v:2":{},"v:\"b\"":{},"i:2":{}}"#,
        );
    }

    #[test]
    fn unknown_path_elements_are_ignored() {
        check(r#"{"x:a":{},"f:b":{"y:c":{}}}"#, r#"{"f:b":{}}"#);
        check(r#"{".":{}}"#, "{}");
    }

    #[test]
    fn an_invalid_field_set_is_rejected() {
        check(
            r#"{"f":{}}"#,
            "error: parsing key as path element: key must be 2 characters long:",
        );
        check(
            r#"{"fx":{}}"#,
            "error: parsing key as path element: missing colon: fx",
        );
        check(
            r#"{"k:x":{}}"#,
            "error: invalid character 'x' looking for beginning of value",
        );
        check(r#"{"f:a":1}"#, "error: expect { or n, but found number");
        check(r#"{"f:a":{"f:b":null}}"#, r#"{"f:a":{"f:b":{}}}"#);
    }
}
