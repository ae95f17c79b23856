//! Validation errors by field, with upstream's messages.

use std::collections::HashSet;
use std::fmt;

use crate::patch::go_float;
use mizzen_value::Value;
use mizzen_value::json;

/// A field path: `spec.containers[0].name`. Built on the stack during validation.
#[derive(Debug, Clone, Copy)]
pub struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    part: PathSegment<'a>,
}

#[derive(Debug, Clone, Copy)]
enum PathSegment<'a> {
    Name(&'a str),
    Index(usize),
    Key(&'a str),
}

impl<'a> Path<'a> {
    /// A field of the root object.
    pub fn new(name: &'a str) -> Path<'a> {
        Path {
            parent: None,
            part: PathSegment::Name(name),
        }
    }

    /// A field of this object.
    pub fn child(&'a self, name: &'a str) -> Path<'a> {
        Path {
            parent: Some(self),
            part: PathSegment::Name(name),
        }
    }

    /// An item of this list.
    pub fn index(&'a self, index: usize) -> Path<'a> {
        Path {
            parent: Some(self),
            part: PathSegment::Index(index),
        }
    }

    /// A key of this map.
    pub fn key(&'a self, key: &'a str) -> Path<'a> {
        Path {
            parent: Some(self),
            part: PathSegment::Key(key),
        }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        match self.part {
            PathSegment::Name("") => Ok(()),
            PathSegment::Name(name) if self.parent.is_some_and(|parent| !parent.is_root()) => {
                write!(f, ".{name}")
            }
            PathSegment::Name(name) => f.write_str(name),
            PathSegment::Index(index) => write!(f, "[{index}]"),
            PathSegment::Key(key) => write!(f, "[{key}]"),
        }
    }
}

impl Path<'_> {
    fn is_root(&self) -> bool {
        self.parent.is_none() && matches!(self.part, PathSegment::Name(""))
    }
}

/// The type of a validation error. Kubernetes: `field.ErrorType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ViolationReason {
    /// It is missing.
    Required,
    /// It has an invalid value.
    Invalid,
    /// It is not one of the supported values.
    NotSupported,
    /// It is a duplicate.
    Duplicate,
    /// It may not be set or changed.
    Forbidden,
    /// It is too long.
    TooLong,
    /// There are too many.
    TooMany,
    /// The object that it refers to does not exist.
    NotFound,
    /// It has a wrong type.
    TypeInvalid,
    /// An internal error.
    Internal,
}

impl ViolationReason {
    /// The reason in a Status cause.
    pub fn word(self) -> &'static str {
        match self {
            ViolationReason::Required => "FieldValueRequired",
            ViolationReason::Invalid => "FieldValueInvalid",
            ViolationReason::NotSupported => "FieldValueNotSupported",
            ViolationReason::Duplicate => "FieldValueDuplicate",
            ViolationReason::Forbidden => "FieldValueForbidden",
            ViolationReason::TooLong => "FieldValueTooLong",
            ViolationReason::TooMany => "FieldValueTooMany",
            ViolationReason::NotFound => "FieldValueNotFound",
            ViolationReason::TypeInvalid => "FieldValueTypeInvalid",
            ViolationReason::Internal => "InternalError",
        }
    }

    fn title(self) -> &'static str {
        match self {
            ViolationReason::Required => "Required value",
            ViolationReason::Invalid => "Invalid value",
            ViolationReason::NotSupported => "Unsupported value",
            ViolationReason::Duplicate => "Duplicate value",
            ViolationReason::Forbidden => "Forbidden",
            ViolationReason::TooLong => "Too long",
            ViolationReason::TooMany => "Too many",
            ViolationReason::NotFound => "Not found",
            ViolationReason::TypeInvalid => "Invalid value",
            ViolationReason::Internal => "Internal error",
        }
    }
}

/// A validation error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The type of the error.
    pub reason: ViolationReason,
    /// The field path.
    pub field: String,
    /// The message of the cause: `Invalid value: "x": must be lower case`.
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

/// All violations in order; and messages of violations that are tolerated because they existed
/// before (ratcheting).
#[derive(Debug, Default)]
pub struct Violations(pub Vec<Violation>, pub Vec<String>);

/// Messages as Go prints an aggregate: a single one as it is, several in brackets, without
/// duplicates. `None` if there are none.
pub fn aggregate(problems: impl IntoIterator<Item = String>) -> Option<String> {
    let mut seen = HashSet::new();
    let distinct: Vec<String> = problems
        .into_iter()
        .filter(|problem| seen.insert(problem.clone()))
        .collect();
    match distinct.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        many => Some(format!("[{}]", many.join(", "))),
    }
}

impl Violations {
    /// Whether there are no violations.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All violations as Go prints an aggregate. `None` if there are none.
    pub fn aggregate(&self) -> Option<String> {
        aggregate(self.0.iter().map(ToString::to_string))
    }

    /// Adds a violation.
    pub fn push(&mut self, reason: ViolationReason, path: impl fmt::Display, message: String) {
        self.0.push(Violation {
            reason,
            field: path.to_string(),
            message,
        });
    }

    /// A value is missing.
    pub fn required(&mut self, path: impl fmt::Display, detail: &str) {
        self.push(
            ViolationReason::Required,
            path,
            join("Required value", detail),
        );
    }

    /// A value is invalid.
    pub fn invalid(&mut self, path: impl fmt::Display, value: impl Into<Value>, detail: &str) {
        self.invalid_shown(path, &show(&value.into()), detail);
    }

    /// A value is invalid, printed by the caller.
    pub fn invalid_shown(&mut self, path: impl fmt::Display, shown: &str, detail: &str) {
        self.push(
            ViolationReason::Invalid,
            path,
            join(&format!("Invalid value: {shown}"), detail),
        );
    }

    /// A value is not one of the supported ones, which are listed in this order.
    pub fn not_supported(
        &mut self,
        path: impl fmt::Display,
        value: impl Into<Value>,
        allowed: &[&str],
    ) {
        let quoted: Vec<String> = allowed.iter().map(|value| json::quote(value)).collect();
        let title = ViolationReason::NotSupported.title();
        let mut message = format!("{title}: {}", show(&value.into()));
        if !quoted.is_empty() {
            message += &format!(": supported values: {}", quoted.join(", "));
        }
        self.push(ViolationReason::NotSupported, path, message);
    }

    /// A value is a duplicate.
    pub fn duplicate(&mut self, path: impl fmt::Display, value: impl Into<Value>) {
        self.push(
            ViolationReason::Duplicate,
            path,
            format!("Duplicate value: {}", show(&value.into())),
        );
    }

    /// A value may not be set or changed.
    pub fn forbidden(&mut self, path: impl fmt::Display, detail: &str) {
        self.push(ViolationReason::Forbidden, path, join("Forbidden", detail));
    }

    /// A string has too many bytes.
    pub fn too_long(&mut self, path: impl fmt::Display, max: usize) {
        let unit = if max == 1 { "byte" } else { "bytes" };
        self.push(
            ViolationReason::TooLong,
            path,
            format!("Too long: may not be more than {max} {unit}"),
        );
    }

    /// A list has too many items.
    pub fn too_many(&mut self, path: impl fmt::Display, actual: usize, max: usize) {
        let unit = if max == 1 { "item" } else { "items" };
        self.push(
            ViolationReason::TooMany,
            path,
            format!("Too many: {actual}: must have at most {max} {unit}"),
        );
    }

    /// A referenced object does not exist.
    pub fn not_found(&mut self, path: impl fmt::Display, value: impl Into<Value>) {
        self.push(
            ViolationReason::NotFound,
            path,
            format!("Not found: {}", show(&value.into())),
        );
    }
}

fn join(title: &str, detail: &str) -> String {
    if detail.is_empty() {
        title.to_string()
    } else {
        format!("{title}: {detail}")
    }
}

/// A value in messages: strings quoted, everything else as JSON.
pub fn show(value: &Value) -> String {
    match value {
        Value::String(text) => json::quote(text),
        Value::Number(_) => go_float(value.as_f64().unwrap_or_default()),
        other => json::to_string(other),
    }
}
