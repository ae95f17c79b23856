//! Whether an object is what its schema says, in the words and the order of upstream's validator.
//!
//! On an update what was wrong before and has not changed is let through: a schema may become stricter without
//! making objects unchangeable. Kubernetes: kube-openapi's pkg/validation/validate, and
//! apiextensions-apiserver's pkg/apiserver/validation.

use super::Structural;
use super::correlate::Correlated;
use super::node::{Check, Node, Type};
use super::number::is_integer;
use super::result::Outcome;
use crate::violation::{Reason, Violations, show};
use mizzen_value::json;
use mizzen_value::{Map, Value};

impl Structural {
    /// All that is wrong with `new` by its schema. `old` is what it was, on an update.
    pub fn validate(&self, new: &Value, old: Option<&Value>, violations: &mut Violations) {
        let past = old.map(|old| Correlated::new(&self.root, new, old));
        run(&self.root, new, past, "", violations);
    }

    /// The same for the status alone, as it is checked when nothing else can change.
    pub fn validate_status(&self, new: &Value, old: Option<&Value>, violations: &mut Violations) {
        let (Some(node), Some(status)) = (self.root.property("status"), new.get("status")) else {
            return;
        };
        let past = old.and_then(|old| Correlated::new(&self.root, new, old).member("status"));
        run(node, status, past, "status", violations);
    }

    /// All that is wrong with a value that stands at the root of the schema and at `place` in something greater,
    /// such as a default.
    pub fn validate_at(&self, value: &Value, place: &str, violations: &mut Violations) {
        run(&self.root, value, None, place, violations);
    }
}

fn run(
    node: &Node,
    value: &Value,
    past: Option<Correlated>,
    prefix: &str,
    violations: &mut Violations,
) {
    let mut validator = Validator {
        path: String::new(),
        prefix,
    };
    let mut outcome = Outcome::default();
    validator.ratcheted(node, value, past, &mut outcome);
    outcome.report(violations);
}

/// Walks an object along its schema.
pub(super) struct Validator<'a> {
    /// Where we are, as messages name it: `spec.items[0]`.
    pub path: String,
    /// What comes before it in the name of a field.
    prefix: &'a str,
}

impl Validator<'_> {
    /// The name of the field that is to blame.
    pub(super) fn field(&self) -> String {
        match (self.prefix, self.path.trim_start_matches('.')) {
            (_, "") => self.nowhere(),
            ("", path) => path.to_string(),
            (prefix, path) => format!("{prefix}.{path}"),
        }
    }

    /// The name of the field where no field is to blame.
    pub(super) fn nowhere(&self) -> String {
        if self.prefix.is_empty() {
            "<nil>".into()
        } else {
            self.prefix.into()
        }
    }

    /// Checks a value, and lets through what was wrong before and has not changed.
    fn ratcheted(
        &mut self,
        node: &Node,
        value: &Value,
        past: Option<Correlated>,
        outcome: &mut Outcome,
    ) {
        let before = outcome.errors.len();
        self.value(node, value, past, outcome);
        if outcome.errors.len() > before && past.is_some_and(|past| past.is_same()) {
            outcome.errors.truncate(before);
        }
    }

    pub(super) fn value(
        &mut self,
        node: &Node,
        value: &Value,
        past: Option<Correlated>,
        outcome: &mut Outcome,
    ) {
        self.of_type(node, value, outcome);
        if value.is_null() {
            return self.allowed(node, value, outcome);
        }
        for check in &node.checks {
            match check {
                Check::AnyOf(nodes) => self.any_of(nodes, value, outcome),
                Check::OneOf(nodes) => self.one_of(nodes, value, outcome),
                Check::AllOf(nodes) => self.all_of(nodes, value, outcome),
                Check::Not(node) => self.not(node, value, outcome),
                _ => {}
            }
        }
        match value {
            Value::String(text) => self.text(node, text, outcome),
            Value::Int(_) | Value::Number(_) => self.number(node, value, outcome),
            Value::List(items) => self.items(node, items, past, outcome),
            _ => {}
        }
        self.allowed(node, value, outcome);
        if let Value::Map(map) = value {
            self.members(node, map, past, outcome);
        }
        // Counted as upstream counts: one for each of its validators that had something to look at.
        let formatted = !node.format().is_empty();
        let counts = [
            node.ty != Type::Any || formatted,
            formatted && value.as_str().is_some(),
            !matches!(value, Value::Bool(_)),
        ];
        outcome.matches += 4 + counts.iter().filter(|counted| **counted).count();
    }

    /// Kubernetes: with a format, text and lists are taken for what they are, whatever the type.
    fn of_type(&self, node: &Node, value: &Value, outcome: &mut Outcome) {
        let (format, (found, found_format)) = (node.format(), go_type(value));
        let said = node.ty != Type::Any;
        if value.is_null() {
            if said && !node.is_nullable() {
                self.wrong_type(node.ty.words(), "null", outcome);
            } else {
                outcome.matches += 1;
            }
            return;
        }
        if !said && format.is_empty() {
            return;
        }
        let numeric = matches!(node.ty, Type::Integer | Type::Number | Type::IntOrString);
        let fits = node.ty.admits(value);
        let loose = matches!(value, Value::String(_) | Value::List(_));
        if !loose && !format.is_empty() && !fits && found_format != format {
            self.wrong_type(format, found_format, outcome);
        } else if !fits && (numeric || format.is_empty() || !loose) {
            self.wrong_type(node.ty.words(), found, outcome);
        } else {
            outcome.matches += 1;
        }
    }

    fn wrong_type(&self, wanted: &str, found: &str, outcome: &mut Outcome) {
        let found = json::quote(found);
        let message = format!(
            "Invalid value: {found}: {} in body must be of type {wanted}: {found}",
            self.path
        );
        outcome.push(Reason::TypeInvalid, self.field(), message);
    }

    /// Length and pattern, of which the first that fails is told, and the format.
    fn text(&self, node: &Node, text: &str, outcome: &mut Outcome) {
        let path = &self.path;
        let length = |max: &i64| text.chars().count() as i64 > *max;
        for check in &node.checks {
            match check {
                Check::MaxLength(max) if length(max) => {
                    let unit = if *max == 1 { "byte" } else { "bytes" };
                    let message = format!("Too long: may not be more than {max} {unit}");
                    outcome.push(Reason::TooLong, self.field(), message);
                    break;
                }
                Check::MinLength(min) if !length(&(min - 1)) => {
                    let detail = format!("{path} in body should be at least {min} chars long");
                    outcome.invalid(self.field(), &json::quote(text), &detail);
                    break;
                }
                Check::Pattern(pattern) => {
                    let wanted = match pattern.try_match(text) {
                        Ok(true) => continue,
                        Ok(false) => pattern.text.to_string(),
                        Err(error) => format!("{}, but pattern is invalid: {error}", pattern.text),
                    };
                    let detail = format!("{path} in body should match '{wanted}'");
                    outcome.invalid(self.field(), &json::quote(text), &detail);
                    break;
                }
                _ => {}
            }
        }
        for check in &node.checks {
            if let Check::Format(format) = check
                && !format.is_match(text)
            {
                let (name, text) = (format.name, json::quote(text));
                let message =
                    format!("Invalid value: {text}: {path} in body must be of type {name}: {text}");
                outcome.push(Reason::TypeInvalid, self.field(), message);
            }
        }
    }

    fn items(
        &mut self,
        node: &Node,
        items: &[Value],
        past: Option<Correlated>,
        outcome: &mut Outcome,
    ) {
        if let Some(below) = node.items() {
            let (pasts, length) = (
                past.map(|past| past.items()).unwrap_or_default(),
                self.path.len(),
            );
            for (index, value) in items.iter().enumerate() {
                self.path += &format!("[{index}]");
                self.ratcheted(below, value, pasts.get(index).copied().flatten(), outcome);
                self.path.truncate(length);
            }
        }
        let (size, path) = (items.len() as i64, &self.path);
        for check in &node.checks {
            match check {
                Check::MinItems(min) if size < *min => {
                    let detail = format!("{path} in body should have at least {min} items");
                    outcome.invalid(self.field(), &size.to_string(), &detail);
                }
                Check::MaxItems(max) if size > *max => self.too_many(size, *max, outcome),
                Check::UniqueItems if has_duplicates(items) => {
                    let detail = format!("{path} in body shouldn't contain duplicates");
                    outcome.invalid(self.field(), "\"\"", &detail);
                }
                _ => {}
            }
        }
        outcome.matches += 1;
    }

    fn too_many(&self, size: i64, max: i64, outcome: &mut Outcome) {
        let unit = if max == 1 { "item" } else { "items" };
        let message = format!("Too many: {size}: must have at most {max} {unit}");
        outcome.push(Reason::TooMany, self.field(), message);
    }

    /// Whether a value is one of those that are listed, if there are any.
    fn allowed(&self, node: &Node, value: &Value, outcome: &mut Outcome) {
        let listed = node.checks.iter().find_map(|check| match check {
            Check::Enum(values) => Some(values),
            _ => None,
        });
        let Some(listed) =
            listed.filter(|listed| !listed.iter().any(|known| is_same(known, value)))
        else {
            return;
        };
        let words = listed.iter().map(|known| match known {
            Value::String(text) => json::quote(text),
            other => json::quote(&json::to_string(other)),
        });
        let words: Vec<String> = words.collect();
        let message = format!(
            "Unsupported value: {}: supported values: {}",
            show(value),
            words.join(", ")
        );
        outcome.push(Reason::NotSupported, self.field(), message);
    }

    fn members(&mut self, node: &Node, map: &Map, past: Option<Correlated>, outcome: &mut Outcome) {
        let (size, length) = (map.len() as i64, self.path.len());
        for check in &node.checks {
            match check {
                Check::MinProperties(min) if size < *min => {
                    let detail = format!(
                        "{} in body should have at least {min} properties",
                        self.path
                    );
                    outcome.invalid(self.field(), &size.to_string(), &detail);
                }
                Check::MaxProperties(max) if size > *max => self.too_many(size, *max, outcome),
                _ => {}
            }
        }
        if node.forbids_others() {
            for name in map.keys().filter(|name| node.property(name).is_none()) {
                let detail = format!("{}.{name} in body is a forbidden property", self.path);
                outcome.invalid(self.field(), &json::quote(name), &detail);
            }
        }
        if let Some(below) = node.additional() {
            for (name, value) in map.iter().filter(|(name, _)| node.property(name).is_none()) {
                self.path.push('.');
                self.member(name, below, value, past, outcome);
                self.path.truncate(length);
            }
        }
        for (name, below) in node.properties() {
            if let Some(value) = map.get(name) {
                self.path += if length > 0 { "." } else { "" };
                self.member(name, below, value, past, outcome);
                self.path.truncate(length);
            }
        }
        let required = node.checks.iter().find_map(|check| match check {
            Check::Required(names) => Some(names),
            _ => None,
        });
        for name in required
            .into_iter()
            .flatten()
            .filter(|name| !map.contains_key(name))
        {
            self.path.push('.');
            self.path += name;
            outcome.push(Reason::Required, self.field(), "Required value".into());
            self.path.truncate(length);
        }
    }

    /// Kubernetes: kind and version have no past, for both objects were brought to the same version.
    fn member(
        &mut self,
        name: &str,
        node: &Node,
        value: &Value,
        past: Option<Correlated>,
        outcome: &mut Outcome,
    ) {
        let of_type = self.path.is_empty() && matches!(name, "kind" | "apiVersion");
        let past = past.filter(|_| !of_type).and_then(|past| past.member(name));
        self.path += name;
        self.ratcheted(node, value, past, outcome);
    }
}

impl Type {
    /// The type as schemas and messages name it.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Type::Any => "",
            Type::Object => "object",
            Type::Array => "array",
            Type::String => "string",
            Type::Integer => "integer",
            Type::Number => "number",
            Type::Boolean => "boolean",
            Type::IntOrString => "integer,string",
        }
    }

    fn admits(self, value: &Value) -> bool {
        match (self, value) {
            (Type::Object, Value::Map(_))
            | (Type::Array, Value::List(_))
            | (Type::Boolean, Value::Bool(_)) => true,
            (Type::String | Type::IntOrString, Value::String(_)) => true,
            (Type::Integer | Type::Number | Type::IntOrString, Value::Int(_)) => true,
            (Type::Number, Value::Number(_)) => true,
            (Type::Integer | Type::IntOrString, Value::Number(_)) => {
                value.as_f64().is_some_and(is_integer)
            }
            _ => false,
        }
    }
}

impl Node {
    /// The name of the format that is checked, or nothing.
    pub(super) fn format(&self) -> &'static str {
        let format = self.checks.iter().find_map(|check| match check {
            Check::Format(format) => Some(format.name),
            _ => None,
        });
        format.unwrap_or_default()
    }
}

/// The type and the format that Go's validator sees in a value.
/// What OpenAPI calls the type of a value.
pub fn type_name(value: &Value) -> &'static str {
    go_type(value).0
}

fn go_type(value: &Value) -> (&'static str, &'static str) {
    match value {
        Value::Null => ("null", ""),
        Value::Bool(_) => ("boolean", ""),
        Value::Int(_) => ("integer", "int64"),
        Value::Number(_) => ("number", "float64"),
        Value::String(_) => ("string", ""),
        Value::List(_) => ("array", ""),
        Value::Map(_) => ("object", ""),
    }
}

/// Kubernetes: a float is cut to a whole number before it is compared with one, and null is nothing.
fn is_same(known: &Value, value: &Value) -> bool {
    match (known, value) {
        (Value::Null, _) => false,
        (Value::Int(known), Value::Number(_)) => {
            value.as_f64().is_some_and(|value| value as i64 == *known)
        }
        (Value::Number(_), Value::Int(_) | Value::Number(_)) => known.as_f64() == value.as_f64(),
        _ => known == value,
    }
}

fn has_duplicates(items: &[Value]) -> bool {
    let mut seen = std::collections::HashSet::with_capacity(items.len());
    items.iter().any(|item| {
        let mut item = item.clone();
        super::sort(&mut item);
        !seen.insert(json::to_string(&item))
    })
}
