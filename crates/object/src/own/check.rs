//! Whether what somebody applies has the shape that its kind demands, in upstream's words.

use super::element::Element;
use super::of::is_type;
use super::rule::{Defined, Item, Rule, element_of};
use crate::patch::{go_float, go_text};
use crate::schema::{Shape, Struct, Type};
use mizzen_value::json;
use mizzen_value::{Map, Str, Value};

/// All that is wrong with the shape of `object`, or `None`.
pub(super) fn check(schema: &Struct, object: &Value) -> Option<String> {
    let mut checker = Checker::default();
    checker.map(object, |checker, map| {
        checker.fields(schema, map.iter().filter(|(name, _)| !is_type(name)));
    });
    let texts: Vec<String> = checker.complaints.iter().map(Complaint::to_text).collect();
    match texts.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        many => Some(format!("errors:\n  {}", many.join("\n  "))),
    }
}

/// The type of `kind` and `apiVersion`.
static TEXT: Type = Type {
    shape: Shape::String,
    go: Str::new_static("string"),
};

#[derive(Default)]
struct Checker {
    complaints: Vec<Complaint>,
}

struct Complaint {
    path: String,
    problem: String,
}

impl Complaint {
    fn to_text(&self) -> String {
        match self.path.as_str() {
            "" => self.problem.clone(),
            path => format!("{path}: {}", self.problem),
        }
    }
}

impl Checker {
    fn complain(&mut self, problem: String) {
        self.complaints.push(Complaint {
            path: String::new(),
            problem,
        });
    }

    /// Checks one step further down; what is found there is told from here.
    fn at(&mut self, element: Element, rule: Rule, value: &Value) {
        let before = self.complaints.len();
        self.value(rule, value);
        for complaint in &mut self.complaints[before..] {
            complaint.path.insert_str(0, &element.to_string());
        }
    }

    fn value(&mut self, rule: Rule, value: &Value) {
        match rule {
            _ if value.is_null() => {}
            Rule::Any => {}
            Rule::Scalar(ty) => self.scalar(ty, value),
            Rule::Struct(schema) => {
                self.map(value, |checker, map| checker.fields(schema, map.iter()))
            }
            Rule::Map(item) => self.map(value, |checker, map| checker.members(item, map)),
            Rule::Items(item, keys) => {
                self.list(value, |checker, items| checker.items(item, keys, items))
            }
            Rule::Atomic(ty) => self.atomic(ty, value),
            Rule::Defined(defined) | Rule::Whole(defined) => self.defined(defined, value),
        }
    }

    /// What is owned as a whole has parts all the same.
    fn atomic(&mut self, ty: &Type, value: &Value) {
        match &ty.shape {
            Shape::Struct(schema) => self.value(Rule::Struct(schema), value),
            Shape::Map(item) => self.value(Rule::Map(item), value),
            Shape::List(item) => self.list(value, |checker, items| {
                for (index, value) in items.iter().enumerate() {
                    checker.at(Element::Index(index as i64), Rule::of_type(item), value);
                }
            }),
            _ => {}
        }
    }

    fn map(&mut self, value: &Value, inside: impl FnOnce(&mut Checker, &Map)) {
        match value {
            Value::Map(map) => inside(self, map),
            _ => self.complain(format!("expected map, got &{{{}}}", go_text(value))),
        }
    }

    fn list(&mut self, value: &Value, inside: impl FnOnce(&mut Checker, &[Value])) {
        match value {
            Value::List(items) => inside(self, items),
            _ => self.complain(format!("expected list, got &{{{}}}", go_text(value))),
        }
    }

    fn fields<'a>(&mut self, schema: &Struct, members: impl Iterator<Item = (&'a str, &'a Value)>) {
        // Kubernetes: OpenAPI says of a struct without fields that it is some object, so that it may have any.
        if schema.rest().is_none() && schema.fields().is_empty() {
            return;
        }
        for (name, value) in members {
            // An object inside another says what it is, too.
            if schema.is_kind() && is_type(name) {
                self.at(Element::Name(name.into()), Rule::Scalar(&TEXT), value);
                continue;
            }
            let (rule, known) = Rule::Struct(schema).member(name);
            let declared = known
                || schema
                    .rest()
                    .is_some_and(|rest| Defined::of(rest.root()).allows(name));
            if !declared {
                let problem = "field not declared in schema".into();
                return self.complaints.push(Complaint {
                    path: format!(".{name}"),
                    problem,
                });
            }
            self.at(Element::Name(name.into()), rule, value);
        }
    }

    /// A place that a definition describes: a map, a list that is owned as a whole, or anything.
    fn defined(&mut self, defined: Defined, value: &Value) {
        match value {
            Value::Map(map) if !defined.node.is_list() => {
                for (name, value) in map.iter() {
                    if !defined.allows(name) {
                        let problem = "field not declared in schema".into();
                        return self.complaints.push(Complaint {
                            path: format!(".{name}"),
                            problem,
                        });
                    }
                    self.at(
                        Element::Name(name.into()),
                        Rule::Defined(defined).member(name).0,
                        value,
                    );
                }
            }
            Value::List(items) if !defined.node.is_object() => {
                let item = defined
                    .node
                    .items()
                    .map(|node| Item::Defined(Defined { node, ..defined }));
                for (index, value) in items.iter().enumerate() {
                    let rule = item.map_or(Rule::Any, Rule::of_item);
                    self.at(Element::Index(index as i64), rule, value);
                }
            }
            _ if defined.node.is_object() => self.map(value, |_, _| {}),
            _ if defined.node.is_list() => self.list(value, |_, _| {}),
            _ => {}
        }
    }

    fn members(&mut self, item: &Type, map: &Map) {
        for (name, value) in map.iter() {
            self.at(Element::Name(name.into()), Rule::of_type(item), value);
        }
    }

    fn items(&mut self, item: Item, keys: &[Str], items: &[Value]) {
        let mut seen: Vec<Element> = Vec::with_capacity(items.len());
        for (index, value) in items.iter().enumerate() {
            let element = match element_of(item, keys, value) {
                Ok(element) => element,
                Err(error) => return self.complain(format!("element {index}: {error}")),
            };
            match seen.binary_search(&element) {
                Ok(_) => self.complain(format!("duplicate entries for key {element}")),
                Err(at) => seen.insert(at, element.clone()),
            }
            self.at(element, Rule::of_item(item), value);
        }
    }

    fn scalar(&mut self, ty: &Type, value: &Value) {
        match &ty.shape {
            Shape::Bool if !matches!(value, Value::Bool(_)) => {
                self.complain(format!("expected boolean, got &{{{}}}", go_text(value)));
            }
            Shape::Int32 | Shape::Int64 | Shape::Float if value.as_f64().is_none() => {
                self.complain(format!(
                    "expected numeric (int or float), got {}",
                    go_type(value)
                ));
            }
            Shape::String | Shape::Bytes | Shape::Duration if value.as_str().is_none() => {
                let found = go_syntax(value);
                self.complain(format!(
                    "expected string, got &value.valueUnstructured{{Value:{found}}}"
                ));
            }
            Shape::Time | Shape::MicroTime | Shape::Quantity
                if matches!(value, Value::List(_) | Value::Map(_)) =>
            {
                self.complain(format!("expected any scalar, got &{{{}}}", go_text(value)));
            }
            _ => {}
        }
    }
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Int(_) => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::List(_) => "[]interface {}",
        Value::Map(_) => "map[string]interface {}",
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
            let members = sorted(map)
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

fn sorted(map: &Map) -> impl Iterator<Item = (&str, &Value)> {
    let mut members: Vec<_> = map.iter().collect();
    members.sort_by_key(|(key, _)| *key);
    members.into_iter()
}
