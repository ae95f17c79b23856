//! kubectl's JSONPath: `{.spec.replicas}`, `{.items[?(@.kind=="Node")].metadata.name}`, `{range .items[*]}…{end}`.
//!
//! A [`Template`] is text with actions in braces. `parse` reads it, `walk` finds what its actions lead to, and
//! [`print()`] writes that down. Columns of tables are templates of one action.
//!
//! Kubernetes: the dialect is client-go's util/jsonpath; where that is odd (a quoted key is a path of its own, an
//! index out of bounds is an error, a missing key is not) it is copied.

mod parse;
mod walk;

#[cfg(test)]
mod tests;

use crate::patch::go_float;
use mizzen_value::json;
use mizzen_value::{Str, Value};

/// A parsed template.
#[derive(Debug, Clone, PartialEq)]
pub struct Template {
    parts: Vec<Part>,
}

/// What a template is made of.
#[derive(Debug, Clone, PartialEq)]
enum Part {
    /// Text, or one action: a path from the current value.
    Action(Vec<Step>),
    /// A path, and what is written for each value that it leads to.
    Range(Vec<Step>, Vec<Part>),
}

/// One step of a path.
#[derive(Debug, Clone, PartialEq)]
enum Step {
    /// A constant in place of whatever came before.
    Text(Str),
    Int(i64),
    Float(f64),
    Bool(bool),
    /// A member of a map.
    Field(Str),
    /// Every member or item.
    Wildcard,
    /// A value and everything below it.
    Recursive,
    /// Some items of a list.
    Slice(Slice),
    /// The items of a list that pass.
    Filter(Filter),
    /// What several paths lead to, one after the other.
    Union(Vec<Vec<Step>>),
    /// A word, which only templates with `range` understand.
    Word(Str),
}

/// `[start:end:step]`; `[n]` is one item.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Slice {
    start: Option<i64>,
    end: Option<i64>,
    step: Option<i64>,
    /// The end was not written: it is one after the start.
    one: bool,
}

/// `[?(left operator right)]`.
#[derive(Debug, Clone, PartialEq)]
struct Filter {
    left: Vec<Step>,
    right: Vec<Step>,
    operator: Operator,
}

#[derive(Debug, Clone, PartialEq)]
enum Operator {
    Exists,
    Compare(Str),
}

/// Why a template cannot be read, or does not fit a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PathError(pub String);

impl Template {
    /// Reads a template.
    pub fn parse(text: &str) -> Result<Template, PathError> {
        Ok(Template {
            parts: parse::template(text)?,
        })
    }

    /// Reads a path without braces, as a column of a custom kind has it.
    pub fn parse_path(path: &str) -> Result<Template, PathError> {
        Template::parse(&format!("{{{path}}}"))
    }

    /// What the template's texts and actions lead to in `value`, one list for each. A missing key leads nowhere.
    pub fn find(&self, value: &Value) -> Result<Vec<Vec<Value>>, PathError> {
        walk::parts(&self.parts, value)
    }

    /// The first value that the template leads to.
    pub fn first(&self, value: &Value) -> Option<Value> {
        self.find(value)
            .ok()?
            .into_iter()
            .next()?
            .into_iter()
            .next()
    }

    /// The template filled in.
    pub fn execute(&self, value: &Value) -> Result<String, PathError> {
        Ok(self.find(value)?.iter().map(|found| print(found)).collect())
    }
}

/// Values as people read them, with a space between them.
pub fn print(values: &[Value]) -> String {
    let texts: Vec<String> = values.iter().map(text).collect();
    texts.join(" ")
}

/// A value as people read it: text without quotes, lists and maps as JSON.
pub fn text(value: &Value) -> String {
    match value {
        Value::Null => "<no value>".into(),
        Value::String(text) => text.to_string(),
        Value::Number(_) => value.as_f64().map(go_float).unwrap_or_default(),
        other => json::to_string(other),
    }
}
