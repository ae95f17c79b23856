//! Path elements: a field, a list item by key or value, or an index.

use std::cmp::Ordering;
use std::fmt;

use mizzen_value::json;
use mizzen_value::{Map, Str, Value};

/// An element of a field path. Kubernetes: structured-merge-diff's `fieldpath.PathElement`.
#[derive(Debug, Clone)]
pub enum PathElement {
    /// A field of a struct or a key of a map.
    Name(Str),
    /// The list item with these key fields, which are sorted by name.
    Key(Box<[(Str, Value)]>),
    /// The item of a set.
    Value(Box<Value>),
    /// The item at an index.
    Index(i64),
}

impl PathElement {
    /// The list item with these key fields, in any order.
    pub fn key(mut fields: Vec<(Str, Value)>) -> PathElement {
        fields.sort_by(|left, right| left.0.cmp(&right.0));
        PathElement::Key(fields.into_boxed_slice())
    }

    /// Compares this with the field `name`.
    pub(super) fn cmp_name(&self, name: &str) -> Ordering {
        match self {
            PathElement::Name(own) => own.as_str().cmp(name),
            _ => Ordering::Greater,
        }
    }

    fn rank(&self) -> u8 {
        match self {
            PathElement::Name(_) => 0,
            PathElement::Key(_) => 1,
            PathElement::Value(_) => 2,
            PathElement::Index(_) => 3,
        }
    }
}

impl Ord for PathElement {
    fn cmp(&self, other: &PathElement) -> Ordering {
        match (self, other) {
            (PathElement::Name(left), PathElement::Name(right)) => {
                left.as_str().cmp(right.as_str())
            }
            (PathElement::Key(left), PathElement::Key(right)) => {
                let cmp = |(left, right): (&(Str, Value), &(Str, Value))| {
                    left.0
                        .cmp(&right.0)
                        .then_with(|| cmp_values(&left.1, &right.1))
                };
                let mut orders = left.iter().zip(right).map(cmp);
                let first = orders.find(|order| order.is_ne());
                first.unwrap_or_else(|| left.len().cmp(&right.len()))
            }
            (PathElement::Value(left), PathElement::Value(right)) => cmp_values(left, right),
            (PathElement::Index(left), PathElement::Index(right)) => left.cmp(right),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for PathElement {
    fn partial_cmp(&self, other: &PathElement) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for PathElement {
    fn eq(&self, other: &PathElement) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for PathElement {}

/// Compares values: numbers, strings, booleans, lists, maps, null, in this order, and by value
/// within each.
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

/// The element in messages: `.spec`, `[name="web"]`, `[="x"]`, `[3]`.
impl fmt::Display for PathElement {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            PathElement::Name(name) => write!(f, ".{name}"),
            PathElement::Key(fields) => {
                let fields: Vec<String> = fields
                    .iter()
                    .map(|(name, value)| format!("{name}={}", show(value)))
                    .collect();
                write!(f, "[{}]", fields.join(","))
            }
            PathElement::Value(value) => write!(f, "[={}]", show(value)),
            PathElement::Index(index) => write!(f, "[{index}]"),
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
