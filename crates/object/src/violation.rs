//! What is wrong with an object, field by field, in the words that clients know.

use std::collections::HashSet;
use std::fmt;

use crate::patch::go_float;
use mizzen_value::Value;
use mizzen_value::json;

/// A place in an object: `spec.containers[0].name`. Built on the stack while walking down.
#[derive(Debug, Clone, Copy)]
pub struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    part: Part<'a>,
}

#[derive(Debug, Clone, Copy)]
enum Part<'a> {
    Name(&'a str),
    Index(usize),
    Key(&'a str),
}

impl<'a> Path<'a> {
    /// A field of the object itself.
    pub fn new(name: &'a str) -> Path<'a> {
        Path {
            parent: None,
            part: Part::Name(name),
        }
    }

    /// A field below this place.
    pub fn child(&'a self, name: &'a str) -> Path<'a> {
        Path {
            parent: Some(self),
            part: Part::Name(name),
        }
    }

    /// An item of the list at this place.
    pub fn index(&'a self, index: usize) -> Path<'a> {
        Path {
            parent: Some(self),
            part: Part::Index(index),
        }
    }

    /// A member of the map at this place.
    pub fn key(&'a self, key: &'a str) -> Path<'a> {
        Path {
            parent: Some(self),
            part: Part::Key(key),
        }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        match self.part {
            Part::Name("") => Ok(()),
            Part::Name(name) if self.parent.is_some_and(|parent| !parent.is_root()) => {
                write!(f, ".{name}")
            }
            Part::Name(name) => f.write_str(name),
            Part::Index(index) => write!(f, "[{index}]"),
            Part::Key(key) => write!(f, "[{key}]"),
        }
    }
}

impl Path<'_> {
    fn is_root(&self) -> bool {
        self.parent.is_none() && matches!(self.part, Part::Name(""))
    }
}

/// Why a field is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// It must be there.
    Required,
    /// It has a wrong value.
    Invalid,
    /// It is none of the allowed values.
    NotSupported,
    /// It is there twice.
    Duplicate,
    /// It may not be set or changed here.
    Forbidden,
    /// It is too long.
    TooLong,
    /// There are too many.
    TooMany,
    /// What it refers to is not there.
    NotFound,
    /// It has a wrong type.
    TypeInvalid,
    /// The server could not tell.
    Internal,
}

impl Reason {
    /// The reason in a Status cause.
    pub fn word(self) -> &'static str {
        match self {
            Reason::Required => "FieldValueRequired",
            Reason::Invalid => "FieldValueInvalid",
            Reason::NotSupported => "FieldValueNotSupported",
            Reason::Duplicate => "FieldValueDuplicate",
            Reason::Forbidden => "FieldValueForbidden",
            Reason::TooLong => "FieldValueTooLong",
            Reason::TooMany => "FieldValueTooMany",
            Reason::NotFound => "FieldValueNotFound",
            Reason::TypeInvalid => "FieldValueTypeInvalid",
            Reason::Internal => "InternalError",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Reason::Required => "Required value",
            Reason::Invalid => "Invalid value",
            Reason::NotSupported => "Unsupported value",
            Reason::Duplicate => "Duplicate value",
            Reason::Forbidden => "Forbidden",
            Reason::TooLong => "Too long",
            Reason::TooMany => "Too many",
            Reason::NotFound => "Not found",
            Reason::TypeInvalid => "Invalid value",
            Reason::Internal => "Internal error",
        }
    }
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Why it is refused.
    pub reason: Reason,
    /// Where it is.
    pub field: String,
    /// What the cause says: `Invalid value: "x": must be lower case`.
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

/// All that is wrong, in the order in which it was found; and, in words, what is wrong but was so before and is
/// let through.
#[derive(Debug, Default)]
pub struct Violations(pub Vec<Violation>, pub Vec<String>);

/// Problems as Go shows a list of errors: one as it is, more in brackets, none twice. None if there are none.
pub fn in_one(problems: impl IntoIterator<Item = String>) -> Option<String> {
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
    /// Whether nothing is wrong.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them as Go shows a list of errors: one as it is, more in brackets, none twice. None if nothing is wrong.
    pub fn in_one(&self) -> Option<String> {
        in_one(self.0.iter().map(ToString::to_string))
    }

    /// Adds one in full.
    pub fn push(&mut self, reason: Reason, path: impl fmt::Display, message: String) {
        self.0.push(Violation {
            reason,
            field: path.to_string(),
            message,
        });
    }

    /// Something must be there.
    pub fn required(&mut self, path: impl fmt::Display, detail: &str) {
        self.push(Reason::Required, path, join("Required value", detail));
    }

    /// Something has a wrong value.
    pub fn invalid(&mut self, path: impl fmt::Display, value: impl Into<Value>, detail: &str) {
        self.invalid_shown(path, &show(&value.into()), detail);
    }

    /// Something has a wrong value, shown as the caller has it.
    pub fn invalid_shown(&mut self, path: impl fmt::Display, shown: &str, detail: &str) {
        self.push(
            Reason::Invalid,
            path,
            join(&format!("Invalid value: {shown}"), detail),
        );
    }

    /// Something is none of the allowed values, which are listed as given.
    pub fn not_supported(
        &mut self,
        path: impl fmt::Display,
        value: impl Into<Value>,
        allowed: &[&str],
    ) {
        let quoted: Vec<String> = allowed.iter().map(|value| json::quote(value)).collect();
        let title = Reason::NotSupported.title();
        let mut message = format!("{title}: {}", show(&value.into()));
        if !quoted.is_empty() {
            message += &format!(": supported values: {}", quoted.join(", "));
        }
        self.push(Reason::NotSupported, path, message);
    }

    /// Something is there twice.
    pub fn duplicate(&mut self, path: impl fmt::Display, value: impl Into<Value>) {
        self.push(
            Reason::Duplicate,
            path,
            format!("Duplicate value: {}", show(&value.into())),
        );
    }

    /// Something may not be set or changed here.
    pub fn forbidden(&mut self, path: impl fmt::Display, detail: &str) {
        self.push(Reason::Forbidden, path, join("Forbidden", detail));
    }

    /// A text has too many bytes.
    pub fn too_long(&mut self, path: impl fmt::Display, max: usize) {
        let unit = if max == 1 { "byte" } else { "bytes" };
        self.push(
            Reason::TooLong,
            path,
            format!("Too long: may not be more than {max} {unit}"),
        );
    }

    /// A list has too many items.
    pub fn too_many(&mut self, path: impl fmt::Display, actual: usize, max: usize) {
        let unit = if max == 1 { "item" } else { "items" };
        self.push(
            Reason::TooMany,
            path,
            format!("Too many: {actual}: must have at most {max} {unit}"),
        );
    }

    /// What something refers to is not there.
    pub fn not_found(&mut self, path: impl fmt::Display, value: impl Into<Value>) {
        self.push(
            Reason::NotFound,
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

/// A value as messages show it: text in quotation marks, everything else as JSON.
pub fn show(value: &Value) -> String {
    match value {
        Value::String(text) => json::quote(text),
        Value::Number(_) => go_float(value.as_f64().unwrap_or_default()),
        other => json::to_string(other),
    }
}
