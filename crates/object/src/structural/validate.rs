//! Schema validation, with the messages and the order of upstream's validator.
//!
//! On an update violations in unchanged values are tolerated (ratcheting), so that a schema can
//! become stricter. Kubernetes: kube-openapi's pkg/validation/validate, and
//! apiextensions-apiserver's pkg/apiserver/validation.

use super::Structural;
use super::correlate::Correlated;
use super::node::{NodeCheck, NodeType, SchemaNode};
use super::number::is_integer;
use super::result::ValidationOutcome;
use crate::violation::{ViolationReason, Violations, show};
use mizzen_value::json;
use mizzen_value::{Map, Value};

impl Structural {
    /// Validates `new` by its schema. `old` is the stored object, on an update.
    pub fn validate(&self, new: &Value, old: Option<&Value>, violations: &mut Violations) {
        let past = old.map(|old| Correlated::new(&self.root, new, old));
        run(&self.root, new, past, "", violations);
    }

    /// Like [`Structural::validate`], for the status alone, for writes to `/status`.
    pub fn validate_status(&self, new: &Value, old: Option<&Value>, violations: &mut Violations) {
        let (Some(node), Some(status)) = (self.root.property("status"), new.get("status")) else {
            return;
        };
        let past = old.and_then(|old| Correlated::new(&self.root, new, old).member("status"));
        run(node, status, past, "status", violations);
    }

    /// Validates a value of the root schema that is at `place` inside of another, such as a
    /// default.
    pub fn validate_at(&self, value: &Value, place: &str, violations: &mut Violations) {
        run(&self.root, value, None, place, violations);
    }
}

fn run(
    node: &SchemaNode,
    value: &Value,
    past: Option<Correlated>,
    prefix: &str,
    violations: &mut Violations,
) {
    let mut validator = Validator {
        path: String::new(),
        prefix,
    };
    let mut outcome = ValidationOutcome::default();
    validator.ratcheted(node, value, past, &mut outcome);
    outcome.report(violations);
}

/// A traversal of an object along its schema.
pub(super) struct Validator<'a> {
    /// The current path: `spec.items[0]`.
    pub path: String,
    /// The prefix of field names.
    prefix: &'a str,
}

impl Validator<'_> {
    /// The name of the field in violations.
    pub(super) fn field(&self) -> String {
        match (self.prefix, self.path.trim_start_matches('.')) {
            (_, "") => self.nowhere(),
            ("", path) => path.to_string(),
            (prefix, path) => format!("{prefix}.{path}"),
        }
    }

    /// The name of the field in violations without a field.
    pub(super) fn nowhere(&self) -> String {
        if self.prefix.is_empty() {
            "<nil>".into()
        } else {
            self.prefix.into()
        }
    }

    /// Validates a value, and tolerates violations in unchanged values.
    fn ratcheted(
        &mut self,
        node: &SchemaNode,
        value: &Value,
        past: Option<Correlated>,
        outcome: &mut ValidationOutcome,
    ) {
        let before = outcome.errors.len();
        self.value(node, value, past, outcome);
        if outcome.errors.len() > before && past.is_some_and(|past| past.is_same()) {
            outcome.errors.truncate(before);
        }
    }

    pub(super) fn value(
        &mut self,
        node: &SchemaNode,
        value: &Value,
        past: Option<Correlated>,
        outcome: &mut ValidationOutcome,
    ) {
        self.of_type(node, value, outcome);
        if value.is_null() {
            return self.allowed(node, value, outcome);
        }
        for check in &node.checks {
            match check {
                NodeCheck::AnyOf(nodes) => self.any_of(nodes, value, outcome),
                NodeCheck::OneOf(nodes) => self.one_of(nodes, value, outcome),
                NodeCheck::AllOf(nodes) => self.all_of(nodes, value, outcome),
                NodeCheck::Not(node) => self.not(node, value, outcome),
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
        // Upstream counts one for each validator that applies.
        let formatted = !node.format().is_empty();
        let counts = [
            node.ty != NodeType::Any || formatted,
            formatted && value.as_str().is_some(),
            !matches!(value, Value::Bool(_)),
        ];
        outcome.matches += 4 + counts.iter().filter(|counted| **counted).count();
    }

    /// Kubernetes: with a format, strings and lists are accepted, whatever the type.
    fn of_type(&self, node: &SchemaNode, value: &Value, outcome: &mut ValidationOutcome) {
        let (format, (found, found_format)) = (node.format(), go_type(value));
        let said = node.ty != NodeType::Any;
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
        let numeric = matches!(
            node.ty,
            NodeType::Integer | NodeType::Number | NodeType::IntOrString
        );
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

    fn wrong_type(&self, wanted: &str, found: &str, outcome: &mut ValidationOutcome) {
        let found = json::quote(found);
        let message = format!(
            "Invalid value: {found}: {} in body must be of type {wanted}: {found}",
            self.path
        );
        outcome.push(ViolationReason::TypeInvalid, self.field(), message);
    }

    /// Validates length and pattern, of which the first failure is reported, and the format.
    fn text(&self, node: &SchemaNode, text: &str, outcome: &mut ValidationOutcome) {
        let path = &self.path;
        let length = |max: &i64| text.chars().count() as i64 > *max;
        for check in &node.checks {
            match check {
                NodeCheck::MaxLength(max) if length(max) => {
                    let unit = if *max == 1 { "byte" } else { "bytes" };
                    let message = format!("Too long: may not be more than {max} {unit}");
                    outcome.push(ViolationReason::TooLong, self.field(), message);
                    break;
                }
                NodeCheck::MinLength(min) if !length(&(min - 1)) => {
                    let detail = format!("{path} in body should be at least {min} chars long");
                    outcome.invalid(self.field(), &json::quote(text), &detail);
                    break;
                }
                NodeCheck::Pattern(pattern) => {
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
            if let NodeCheck::Format(format) = check
                && !format.is_match(text)
            {
                let (name, text) = (format.name, json::quote(text));
                let message =
                    format!("Invalid value: {text}: {path} in body must be of type {name}: {text}");
                outcome.push(ViolationReason::TypeInvalid, self.field(), message);
            }
        }
    }

    fn items(
        &mut self,
        node: &SchemaNode,
        items: &[Value],
        past: Option<Correlated>,
        outcome: &mut ValidationOutcome,
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
                NodeCheck::MinItems(min) if size < *min => {
                    let detail = format!("{path} in body should have at least {min} items");
                    outcome.invalid(self.field(), &size.to_string(), &detail);
                }
                NodeCheck::MaxItems(max) if size > *max => self.too_many(size, *max, outcome),
                NodeCheck::UniqueItems if has_duplicates(items) => {
                    let detail = format!("{path} in body shouldn't contain duplicates");
                    outcome.invalid(self.field(), "\"\"", &detail);
                }
                _ => {}
            }
        }
        outcome.matches += 1;
    }

    fn too_many(&self, size: i64, max: i64, outcome: &mut ValidationOutcome) {
        let unit = if max == 1 { "item" } else { "items" };
        let message = format!("Too many: {size}: must have at most {max} {unit}");
        outcome.push(ViolationReason::TooMany, self.field(), message);
    }

    /// Validates `enum`.
    fn allowed(&self, node: &SchemaNode, value: &Value, outcome: &mut ValidationOutcome) {
        let listed = node.checks.iter().find_map(|check| match check {
            NodeCheck::Enum(values) => Some(values),
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
        outcome.push(ViolationReason::NotSupported, self.field(), message);
    }

    fn members(
        &mut self,
        node: &SchemaNode,
        map: &Map,
        past: Option<Correlated>,
        outcome: &mut ValidationOutcome,
    ) {
        let (size, length) = (map.len() as i64, self.path.len());
        for check in &node.checks {
            match check {
                NodeCheck::MinProperties(min) if size < *min => {
                    let detail = format!(
                        "{} in body should have at least {min} properties",
                        self.path
                    );
                    outcome.invalid(self.field(), &size.to_string(), &detail);
                }
                NodeCheck::MaxProperties(max) if size > *max => self.too_many(size, *max, outcome),
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
                let old = self.old_member(name, past);
                self.path += name;
                self.ratcheted(below, value, old, outcome);
                self.path.truncate(length);
            }
        }
        for (name, below) in node.properties() {
            if let Some(value) = map.get(name) {
                self.path += if length > 0 { "." } else { "" };
                let old = self.old_member(name, past);
                self.path += name;
                self.ratcheted(below, value, old, outcome);
                self.path.truncate(length);
            }
        }
        let required = node.checks.iter().find_map(|check| match check {
            NodeCheck::Required(names) => Some(names),
            _ => None,
        });
        for name in required
            .into_iter()
            .flatten()
            .filter(|name| !map.contains_key(name))
        {
            self.path.push('.');
            self.path += name;
            outcome.push(
                ViolationReason::Required,
                self.field(),
                "Required value".into(),
            );
            self.path.truncate(length);
        }
    }

    /// Kubernetes: `kind` and `apiVersion` have no old value, because both objects were converted
    /// to the same version.
    fn old_member<'o>(&self, name: &str, past: Option<Correlated<'o>>) -> Option<Correlated<'o>> {
        let is_type = self.path.is_empty() && matches!(name, "kind" | "apiVersion");
        past.filter(|_| !is_type)?.member(name)
    }
}

impl NodeType {
    /// The name of the type in schemas and messages.
    pub(crate) fn words(self) -> &'static str {
        match self {
            NodeType::Any => "",
            NodeType::Object => "object",
            NodeType::Array => "array",
            NodeType::String => "string",
            NodeType::Integer => "integer",
            NodeType::Number => "number",
            NodeType::Boolean => "boolean",
            NodeType::IntOrString => "integer,string",
        }
    }

    fn admits(self, value: &Value) -> bool {
        match (self, value) {
            (NodeType::Object, Value::Map(_))
            | (NodeType::Array, Value::List(_))
            | (NodeType::Boolean, Value::Bool(_)) => true,
            (NodeType::String | NodeType::IntOrString, Value::String(_)) => true,
            (NodeType::Integer | NodeType::Number | NodeType::IntOrString, Value::Int(_)) => true,
            (NodeType::Number, Value::Number(_)) => true,
            (NodeType::Integer | NodeType::IntOrString, Value::Number(_)) => {
                value.as_f64().is_some_and(is_integer)
            }
            _ => false,
        }
    }
}

impl SchemaNode {
    /// The name of the validated format, or an empty string.
    pub(super) fn format(&self) -> &'static str {
        let format = self.checks.iter().find_map(|check| match check {
            NodeCheck::Format(format) => Some(format.name),
            _ => None,
        });
        format.unwrap_or_default()
    }
}

/// The OpenAPI type of a value, as Go's validator sees it.
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

/// Kubernetes: a float is truncated before it is compared with an integer, and null never matches.
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
