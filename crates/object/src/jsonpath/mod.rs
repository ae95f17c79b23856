//! kubectl's JSONPath: `{.spec.replicas}`, `{.items[?(@.kind=="Node")].metadata.name}`, `{range
//! .items[*]}…{end}`.
//!
//! A [`Template`] is text with actions in braces. `parse` parses it, `walk` evaluates its actions,
//! and [`print()`] prints the results. Table columns are templates of one action.
//!
//! Kubernetes: the dialect is client-go's util/jsonpath, oddities included: a quoted key is a path
//! of its own, an index out of bounds is an error, a missing key is not.

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
    parts: Vec<TemplatePart>,
}

#[derive(Debug, Clone, PartialEq)]
enum TemplatePart {
    /// Text, or one action: a path from the current value.
    Action(Vec<PathStep>),
    /// A path, and the template that is repeated for each of its values.
    Range(Vec<PathStep>, Vec<TemplatePart>),
}

#[derive(Debug, Clone, PartialEq)]
enum PathStep {
    /// A constant that replaces the value.
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
    /// The items of a list that match a filter.
    Filter(PathFilter),
    /// The values of several paths.
    Union(Vec<Vec<PathStep>>),
    /// A keyword, which only templates with `range` support.
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
struct PathFilter {
    left: Vec<PathStep>,
    right: Vec<PathStep>,
    operator: FilterOperator,
}

#[derive(Debug, Clone, PartialEq)]
enum FilterOperator {
    Exists,
    Compare(Str),
}

/// Why a template is invalid, or does not match a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PathError(pub String);

impl Template {
    /// Parses a template.
    pub fn parse(text: &str) -> Result<Template, PathError> {
        Ok(Template {
            parts: parse::template(text)?,
        })
    }

    /// Parses a path without braces, as in a CustomResourceDefinition's column.
    pub fn parse_path(path: &str) -> Result<Template, PathError> {
        Template::parse(&format!("{{{path}}}"))
    }

    /// The values of the template's texts and actions, one list for each. A missing key has none.
    pub fn find(&self, value: &Value) -> Result<Vec<Vec<Value>>, PathError> {
        walk::parts(&self.parts, value)
    }

    /// The first value of the template.
    pub fn first(&self, value: &Value) -> Option<Value> {
        self.find(value)
            .ok()?
            .into_iter()
            .next()?
            .into_iter()
            .next()
    }

    /// The template applied to `value`.
    pub fn execute(&self, value: &Value) -> Result<String, PathError> {
        Ok(self.find(value)?.iter().map(|found| print(found)).collect())
    }
}

/// Prints values, separated by spaces.
pub fn print(values: &[Value]) -> String {
    let texts: Vec<String> = values.iter().map(text).collect();
    texts.join(" ")
}

/// Prints a value: strings without quotes, lists and maps as JSON.
pub fn text(value: &Value) -> String {
    match value {
        Value::Null => "<no value>".into(),
        Value::String(text) => text.to_string(),
        Value::Number(_) => value.as_f64().map(go_float).unwrap_or_default(),
        other => json::to_string(other),
    }
}
