//! The form in which an object carries a set of fields: nested maps whose keys are steps.
//!
//! `{"f:spec":{"f:ports":{".":{},"k:{\"port\":80}":{…}}}}`. An empty map is a member without anything below
//! it; `.` marks a member that has something below it.

use smol_str::SmolStrBuilder;

use super::element::Element;
use super::set::{FieldSet, Node};
use mizzen_value::json::{self, Scanner};
use mizzen_value::{Map, Str, Value};

/// What is no set of fields.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FieldsError(String);

impl FieldSet {
    /// Reads the JSON text of a set.
    pub fn parse(text: &str) -> Result<FieldSet, FieldsError> {
        let value = json::parse(text.as_bytes()).map_err(|error| FieldsError(error.to_string()))?;
        FieldSet::from_value(&value)
    }

    /// Reads a set from the value that an object carries.
    pub fn from_value(value: &Value) -> Result<FieldSet, FieldsError> {
        FieldSet::read(value).map(|(set, _)| set)
    }

    /// Reads a set, and says whether [`FieldSet::to_value`] would give the same value again, in the same order.
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
        let mut nodes: Vec<Node> = Vec::with_capacity(map.len());
        let mut exact = true;
        for (index, (key, below)) in map.iter().enumerate() {
            if key == "." {
                exact &= index == 0 && map.len() > 1 && below.as_map().is_some_and(Map::is_empty);
                continue;
            }
            let Some(element) = read_element(key)? else {
                exact = false;
                continue;
            };
            let (children, as_is) = FieldSet::read(below)?;
            let member = children.is_empty() || below.get(".").is_some();
            exact &= as_is && nodes.last().is_none_or(|last| last.element < element);
            exact &= matches!(element, Element::Name(_)) || text(&element) == key;
            nodes.push(Node {
                element,
                member,
                children,
            });
        }
        Ok((FieldSet::from_nodes(nodes), exact))
    }

    /// The value that an object carries.
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

/// A step as text; `None` if it is of a kind that we do not know and so leave out.
fn read_element(text: &str) -> Result<Option<Element>, FieldsError> {
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
        "f" => Element::Name(rest.into()),
        "k" => match read_json(rest)? {
            Value::Map(map) => Element::key(map.into_iter().collect()),
            _ => return fail(format!("not a key: {rest}")),
        },
        "v" => Element::Value(Box::new(read_json(rest)?)),
        "i" => match rest.parse() {
            Ok(index) => Element::Index(index),
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

fn read_json(text: &str) -> Result<Value, FieldsError> {
    json::read(&mut Scanner::new(text.as_bytes())).map_err(|error| FieldsError(error.to_string()))
}

fn text(element: &Element) -> Str {
    let mut out = SmolStrBuilder::new();
    match element {
        Element::Name(name) => {
            out.push_str("f:");
            out.push_str(name);
        }
        Element::Key(fields) => {
            let map: Map = fields.iter().cloned().collect();
            out.push_str("k:");
            out.push_str(&json::to_string(&Value::Map(map)));
        }
        Element::Value(value) => {
            out.push_str("v:");
            out.push_str(&json::to_string(value));
        }
        Element::Index(index) => {
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
    fn what_is_written_is_what_was_read() {
        let text = concat!(
            r#"{"f:b":{".":{},"f:x":{}},"f:c":{"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:port":{}}},"#,
            r#""f:d":{".":{},"v:1":{},"v:\"a\\u003cb\"":{},"v:true":{}},"f:e":{"i:0":{},"i:10":{}}}"#,
        );
        check(text, text);
    }

    #[test]
    fn steps_are_sorted_when_written() {
        check(
            r#"{"f:z":{},"i:2":{},"v:\"b\"":{},"v:2":{},"k:{\"b\":1,\"a\":2}":{},"k:{\"a\":1}":{},"f:a":{}}"#,
            r#"{"f:a":{},"f:z":{},"k:{\"a\":1}":{},"k:{\"a\":2,\"b\":1}":{},"v:2":{},"v:\"b\"":{},"i:2":{}}"#,
        );
    }

    #[test]
    fn unknown_kinds_of_steps_are_left_out() {
        check(r#"{"x:a":{},"f:b":{"y:c":{}}}"#, r#"{"f:b":{}}"#);
        check(r#"{".":{}}"#, "{}");
    }

    #[test]
    fn what_is_no_set_is_refused() {
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
