//! Validation of an applied configuration against the schema, with the errors of
//! structured-merge-diff.

use super::path_element::PathElement;
use super::rule::{Defined, ListItemType, OwnershipRule, element_of};
use super::to_field_set::is_type;
use crate::patch::{go_float, go_text, go_type_verb};
use crate::schema::{FieldShape, FieldType, Struct};
use mizzen_value::json;
use mizzen_value::{Map, Str, Value};

/// The errors in `object`, or `None`.
pub(super) fn validate_shape(schema: &Struct, object: &Value) -> Option<String> {
    let mut checker = ShapeValidator::default();
    checker.map(object, |checker, map| {
        checker.fields(schema, map.iter().filter(|(name, _)| !is_type(name)));
    });
    let texts: Vec<String> = checker.complaints.iter().map(ShapeError::to_text).collect();
    match texts.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        many => Some(format!("errors:\n  {}", many.join("\n  "))),
    }
}

/// The type of `kind` and `apiVersion`.
static TEXT: FieldType = FieldType {
    shape: FieldShape::String,
    go: Str::new_static("string"),
};

#[derive(Default)]
struct ShapeValidator {
    complaints: Vec<ShapeError>,
}

struct ShapeError {
    path: String,
    problem: String,
}

impl ShapeError {
    fn to_text(&self) -> String {
        match self.path.as_str() {
            "" => self.problem.clone(),
            path => format!("{path}: {}", self.problem),
        }
    }
}

impl ShapeValidator {
    fn complain(&mut self, problem: String) {
        self.complaints.push(ShapeError {
            path: String::new(),
            problem,
        });
    }

    /// Validates a child; its errors get the path from here.
    fn at(&mut self, element: PathElement, rule: OwnershipRule, value: &Value) {
        let before = self.complaints.len();
        self.value(rule, value);
        for complaint in &mut self.complaints[before..] {
            complaint.path.insert_str(0, &element.to_string());
        }
    }

    fn value(&mut self, rule: OwnershipRule, value: &Value) {
        match rule {
            _ if value.is_null() => {}
            OwnershipRule::Any => {}
            OwnershipRule::Scalar(ty) => self.scalar(ty, value),
            OwnershipRule::Struct(schema) => {
                self.map(value, |checker, map| checker.fields(schema, map.iter()))
            }
            OwnershipRule::Map(item) => self.map(value, |checker, map| checker.members(item, map)),
            OwnershipRule::Items(item, keys) => {
                self.list(value, |checker, items| checker.items(item, keys, items))
            }
            OwnershipRule::Atomic(ty) => self.atomic(ty, value),
            OwnershipRule::Defined(defined) | OwnershipRule::Whole(defined) => {
                self.defined(defined, value)
            }
        }
    }

    /// The parts of an atomic value are validated, too.
    fn atomic(&mut self, ty: &FieldType, value: &Value) {
        match &ty.shape {
            FieldShape::Struct(schema) => self.value(OwnershipRule::Struct(schema), value),
            FieldShape::Map(item) => self.value(OwnershipRule::Map(item), value),
            FieldShape::List(item) => self.list(value, |checker, items| {
                for (index, value) in items.iter().enumerate() {
                    checker.at(
                        PathElement::Index(index as i64),
                        OwnershipRule::of_type(item),
                        value,
                    );
                }
            }),
            _ => {}
        }
    }

    fn map(&mut self, value: &Value, inside: impl FnOnce(&mut ShapeValidator, &Map)) {
        match value {
            Value::Map(map) => inside(self, map),
            _ => self.complain(format!("expected map, got &{{{}}}", go_text(value))),
        }
    }

    fn list(&mut self, value: &Value, inside: impl FnOnce(&mut ShapeValidator, &[Value])) {
        match value {
            Value::List(items) => inside(self, items),
            _ => self.complain(format!("expected list, got &{{{}}}", go_text(value))),
        }
    }

    fn fields<'a>(&mut self, schema: &Struct, members: impl Iterator<Item = (&'a str, &'a Value)>) {
        // Kubernetes: in OpenAPI a struct without fields is an arbitrary object.
        if schema.rest().is_none() && schema.fields().is_empty() {
            return;
        }
        for (name, value) in members {
            // An embedded object has a kind, too.
            if schema.is_kind() && is_type(name) {
                self.at(
                    PathElement::Name(name.into()),
                    OwnershipRule::Scalar(&TEXT),
                    value,
                );
                continue;
            }
            let (rule, known) = OwnershipRule::Struct(schema).member(name);
            let declared = known
                || schema
                    .rest()
                    .is_some_and(|rest| Defined::root(rest.root()).allows(name));
            if !declared {
                let problem = "field not declared in schema".into();
                return self.complaints.push(ShapeError {
                    path: format!(".{name}"),
                    problem,
                });
            }
            self.at(PathElement::Name(name.into()), rule, value);
        }
    }

    /// Validates a value by a structural schema.
    fn defined(&mut self, defined: Defined, value: &Value) {
        match value {
            Value::Map(map) if !defined.node.is_list() => {
                for (name, value) in map.iter() {
                    if !defined.allows(name) {
                        let problem = "field not declared in schema".into();
                        return self.complaints.push(ShapeError {
                            path: format!(".{name}"),
                            problem,
                        });
                    }
                    self.at(
                        PathElement::Name(name.into()),
                        OwnershipRule::Defined(defined).member(name).0,
                        value,
                    );
                }
            }
            Value::List(items) if !defined.node.is_object() => {
                let item = defined
                    .node
                    .items()
                    .map(|node| ListItemType::Defined(Defined { node, ..defined }));
                for (index, value) in items.iter().enumerate() {
                    let rule = item.map_or(OwnershipRule::Any, OwnershipRule::of_item);
                    self.at(PathElement::Index(index as i64), rule, value);
                }
            }
            _ if defined.node.is_object() => self.map(value, |_, _| {}),
            _ if defined.node.is_list() => self.list(value, |_, _| {}),
            _ => {}
        }
    }

    fn members(&mut self, item: &FieldType, map: &Map) {
        for (name, value) in map.iter() {
            self.at(
                PathElement::Name(name.into()),
                OwnershipRule::of_type(item),
                value,
            );
        }
    }

    fn items(&mut self, item: ListItemType, keys: &[Str], items: &[Value]) {
        let mut seen: Vec<PathElement> = Vec::with_capacity(items.len());
        for (index, value) in items.iter().enumerate() {
            let element = match element_of(item, keys, value) {
                Ok(element) => element,
                Err(error) => return self.complain(format!("element {index}: {error}")),
            };
            match seen.binary_search(&element) {
                Ok(_) => self.complain(format!("duplicate entries for key {element}")),
                Err(at) => seen.insert(at, element.clone()),
            }
            self.at(element, OwnershipRule::of_item(item), value);
        }
    }

    fn scalar(&mut self, ty: &FieldType, value: &Value) {
        match &ty.shape {
            FieldShape::Bool if !matches!(value, Value::Bool(_)) => {
                self.complain(format!("expected boolean, got &{{{}}}", go_text(value)));
            }
            FieldShape::Int32 | FieldShape::Int64 | FieldShape::Float
                if value.as_f64().is_none() =>
            {
                self.complain(format!(
                    "expected numeric (int or float), got {}",
                    go_type_verb(value)
                ));
            }
            FieldShape::String | FieldShape::Bytes | FieldShape::Duration
                if value.as_str().is_none() =>
            {
                let found = go_syntax(value);
                self.complain(format!(
                    "expected string, got &value.valueUnstructured{{Value:{found}}}"
                ));
            }
            FieldShape::Time | FieldShape::MicroTime | FieldShape::Quantity
                if matches!(value, Value::List(_) | Value::Map(_)) =>
            {
                self.complain(format!("expected any scalar, got &{{{}}}", go_text(value)));
            }
            _ => {}
        }
    }
}

/// A value as Go's `%#v` prints it.
fn go_syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".into(),
        Value::String(text) => json::quote(text),
        Value::List(items) => {
            let items: Vec<String> = items.iter().map(go_syntax).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Value::Map(map) => {
            let mut members: Vec<_> = map.iter().collect();
            members.sort_by_key(|(key, _)| *key);
            let members = members
                .into_iter()
                .map(|(key, value)| format!("{}:{}", json::quote(key), go_syntax(value)));
            format!(
                "map[string]interface {{}}{{{}}}",
                members.collect::<Vec<_>>().join(", ")
            )
        }
        Value::Number(_) => go_float(value.as_f64().unwrap_or_default()),
        other => json::to_string(other),
    }
}
