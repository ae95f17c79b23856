//! One step of a path into an object: a field, a list item told by its key or value, or an index.

use std::cmp::Ordering;
use std::fmt;

use mizzen_value::json;
use mizzen_value::{Map, Str, Value};

/// One step of a path into an object.
#[derive(Debug, Clone)]
pub enum Element {
    /// A field of a struct or a key of a map.
    Name(Str),
    /// The list item with these values in its key fields, which are sorted by name.
    Key(Box<[(Str, Value)]>),
    /// The item of a set.
    Value(Box<Value>),
    /// The item at an index.
    Index(i64),
}

impl Element {
    /// The list item with these key fields, given in any order.
    pub fn key(mut fields: Vec<(Str, Value)>) -> Element {
        fields.sort_by(|left, right| left.0.cmp(&right.0));
        Element::Key(fields.into_boxed_slice())
    }

    /// How this compares with the field `name`.
    pub(super) fn cmp_name(&self, name: &str) -> Ordering {
        match self {
            Element::Name(own) => own.as_str().cmp(name),
            _ => Ordering::Greater,
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Element::Name(_) => 0,
            Element::Key(_) => 1,
            Element::Value(_) => 2,
            Element::Index(_) => 3,
        }
    }
}

impl Ord for Element {
    fn cmp(&self, other: &Element) -> Ordering {
        match (self, other) {
            (Element::Name(left), Element::Name(right)) => left.as_str().cmp(right.as_str()),
            (Element::Key(left), Element::Key(right)) => cmp_keys(left, right),
            (Element::Value(left), Element::Value(right)) => cmp_values(left, right),
            (Element::Index(left), Element::Index(right)) => left.cmp(right),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Element {
    fn partial_cmp(&self, other: &Element) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Element {
    fn eq(&self, other: &Element) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Element {}

fn cmp_keys(left: &[(Str, Value)], right: &[(Str, Value)]) -> Ordering {
    let pairs = left.iter().zip(right);
    let first = pairs
        .map(|(left, right)| {
            left.0
                .cmp(&right.0)
                .then_with(|| cmp_values(&left.1, &right.1))
        })
        .find(|order| order.is_ne());
    first.unwrap_or_else(|| left.len().cmp(&right.len()))
}

/// Numbers, text, truth values, lists, maps, null: in this order, and by size within each.
pub(super) fn cmp_values(left: &Value, right: &Value) -> Ordering {
    match (left, right) {
        (Value::Int(left), Value::Int(right)) => left.cmp(right),
        (Value::String(left), Value::String(right)) => left.as_str().cmp(right.as_str()),
        (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
        (Value::List(_), Value::List(_)) | (Value::Map(_), Value::Map(_)) => {
            json::to_string(left).cmp(&json::to_string(right))
        }
        _ => match (left.as_f64(), right.as_f64()) {
            (Some(left), Some(right)) => left.total_cmp(&right),
            _ => value_rank(left).cmp(&value_rank(right)),
        },
    }
}

fn value_rank(value: &Value) -> u8 {
    match value {
        Value::Int(_) | Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::List(_) => 3,
        Value::Map(_) => 4,
        Value::Null => 5,
    }
}

/// The step as messages show it: `.spec`, `[name="web"]`, `[="x"]`, `[3]`.
impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Element::Name(name) => write!(f, ".{name}"),
            Element::Key(fields) => {
                let fields: Vec<String> = fields
                    .iter()
                    .map(|(name, value)| format!("{name}={}", show(value)))
                    .collect();
                write!(f, "[{}]", fields.join(","))
            }
            Element::Value(value) => write!(f, "[={}]", show(value)),
            Element::Index(index) => write!(f, "[{index}]"),
        }
    }
}

fn show(value: &Value) -> String {
    let members = |map: &Map| {
        map.iter()
            .map(|(key, value)| format!("{key}={}", show(value)))
            .collect()
    };
    match value {
        Value::String(text) => json::quote(text),
        Value::List(items) => format!("[{}]", items.iter().map(show).collect::<Vec<_>>().join(",")),
        Value::Map(map) => members(map),
        other => json::to_string(other),
    }
}
