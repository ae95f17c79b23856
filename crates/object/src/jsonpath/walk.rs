//! The evaluation of paths.

use std::cmp::Ordering;

use super::{FilterOperator, PathError, PathFilter, PathStep, Slice, TemplatePart};
use mizzen_value::Value;

/// The maximum depth of `..`.
const MAX_DEPTH: usize = 256;

/// Evaluates the parts of a template.
pub(super) fn parts(parts: &[TemplatePart], value: &Value) -> Result<Vec<Vec<Value>>, PathError> {
    let mut found = Vec::new();
    for part in parts {
        match part {
            TemplatePart::Action(steps) => found.push(walk(vec![value.clone()], steps)?),
            TemplatePart::Range(steps, body) => {
                for value in walk(vec![value.clone()], steps)? {
                    found.extend(self::parts(body, &value)?);
                }
            }
        }
    }
    Ok(found)
}

fn walk(mut values: Vec<Value>, steps: &[PathStep]) -> Result<Vec<Value>, PathError> {
    for step in steps {
        let constant = |value: Value| vec![value; values.len()];
        values = match step {
            PathStep::Text(text) => vec![text.into()],
            PathStep::Int(number) => constant((*number).into()),
            PathStep::Float(number) => constant(Value::Number(format!("{number:?}").into())),
            PathStep::Bool(truth) => constant((*truth).into()),
            PathStep::Field(name) => values
                .iter()
                .filter_map(|value| value.get(name))
                .cloned()
                .collect(),
            PathStep::Wildcard => values.iter().flat_map(children).cloned().collect(),
            PathStep::Recursive => {
                let mut found = Vec::new();
                values
                    .iter()
                    .for_each(|value| descend(value, 0, &mut found));
                found
            }
            PathStep::Slice(slice) => slice.apply(&values)?,
            PathStep::Filter(filter) => filter.apply(&values)?,
            PathStep::Union(paths) => {
                let mut found = Vec::new();
                for path in paths {
                    found.extend(walk(values.clone(), path)?);
                }
                found
            }
            PathStep::Word(word) => {
                return Err(PathError(format!("unrecognized identifier {word}")));
            }
        };
    }
    Ok(values)
}

fn children(value: &Value) -> Vec<&Value> {
    match value {
        Value::Map(map) => map.values().collect(),
        Value::List(items) => items.iter().collect(),
        _ => Vec::new(),
    }
}

/// Collects a value and all lists and maps below it.
fn descend(value: &Value, depth: usize, found: &mut Vec<Value>) {
    let below = children(value);
    if below.is_empty() || depth > MAX_DEPTH {
        return;
    }
    found.push(value.clone());
    below
        .into_iter()
        .for_each(|value| descend(value, depth + 1, found));
}

impl Slice {
    /// The selected items of lists.
    fn apply(&self, values: &[Value]) -> Result<Vec<Value>, PathError> {
        let mut found = Vec::new();
        for value in values.iter().filter(|value| !value.is_null()) {
            let Value::List(items) = value else {
                return Err(PathError(format!(
                    "{} is not array or slice",
                    value.go_word()
                )));
            };
            let Some((start, end)) = self.bounds(items.len() as i64)? else {
                return Ok(found);
            };
            let step = match self.step {
                None => 1,
                Some(step) if step > 0 => step as usize,
                Some(_) => return Err(PathError("step must be > 0".into())),
            };
            found.extend(items[start..end].iter().step_by(step).cloned());
        }
        Ok(found)
    }

    /// The first index and the one after the last; `None` if the slice is empty.
    fn bounds(&self, length: i64) -> Result<Option<(usize, usize)>, PathError> {
        let from_end = |index: i64| if index < 0 { index + length } else { index };
        let start = from_end(self.start.unwrap_or(0));
        let end = match self.end {
            None => length,
            // The last item: its end is the list's.
            Some(0) if self.one => length,
            Some(end) => from_end(end),
        };
        if start == end {
            return Ok(None);
        }
        let outside = |index: i64| {
            PathError(format!(
                "array index out of bounds: index {index}, length {length}"
            ))
        };
        if start >= length || start < 0 {
            return Err(outside(start));
        }
        if end > length || end < 0 {
            return Err(outside(end - 1));
        }
        if start > end {
            return Err(PathError(format!(
                "starting index {start} is greater than ending index {end}"
            )));
        }
        Ok(Some((start as usize, end as usize)))
    }
}

impl PathFilter {
    /// The items of lists that match.
    fn apply(&self, values: &[Value]) -> Result<Vec<Value>, PathError> {
        let mut found = Vec::new();
        for value in values {
            let Value::List(items) = value else {
                let shown = super::text(value);
                return Err(PathError(format!(
                    "{shown} is not array or slice and cannot be filtered"
                )));
            };
            for item in items {
                if self.matches(item)? {
                    found.push(item.clone());
                }
            }
        }
        Ok(found)
    }

    fn matches(&self, item: &Value) -> Result<bool, PathError> {
        let left = walk(vec![item.clone()], &self.left);
        let FilterOperator::Compare(operator) = &self.operator else {
            return Ok(left.is_ok_and(|left| !left.is_empty()));
        };
        let Some(left) = single(left?)? else {
            return Ok(false);
        };
        let Some(right) = single(walk(vec![item.clone()], &self.right)?)? else {
            return Ok(false);
        };
        let order = compare(&left, &right)?;
        let orderly = !matches!(left, Value::Bool(_));
        Ok(match operator.as_str() {
            "==" => order == Ordering::Equal,
            "!=" => order != Ordering::Equal,
            "<" if orderly => order == Ordering::Less,
            ">" if orderly => order == Ordering::Greater,
            "<=" if orderly => order != Ordering::Greater,
            ">=" if orderly => order != Ordering::Less,
            "<" | ">" | "<=" | ">=" => return Err(PathError("invalid type for comparison".into())),
            other => return Err(PathError(format!("unrecognized filter operator {other}"))),
        })
    }
}

fn single(mut values: Vec<Value>) -> Result<Option<Value>, PathError> {
    match values.len() {
        0 | 1 => Ok(values.pop()),
        _ => Err(PathError("can only compare one element at a time".into())),
    }
}

/// Only values of one type can be compared; integers and floats are different types.
fn compare(left: &Value, right: &Value) -> Result<Ordering, PathError> {
    match (left, right) {
        (Value::String(left), Value::String(right)) => Ok(left.cmp(right)),
        (Value::Int(left), Value::Int(right)) => Ok(left.cmp(right)),
        (Value::Bool(left), Value::Bool(right)) => Ok(left.cmp(right)),
        (Value::Number(_), Value::Number(_)) => {
            let order = left.as_f64().partial_cmp(&right.as_f64());
            Ok(order.unwrap_or(Ordering::Less))
        }
        (Value::Null | Value::List(_) | Value::Map(_), _)
        | (_, Value::Null | Value::List(_) | Value::Map(_)) => {
            Err(PathError("invalid type for comparison".into()))
        }
        _ => Err(PathError("incompatible types for comparison".into())),
    }
}
