//! Laying a part of an object over it without owning anything: what a policy of the cluster does.

use super::check::check;
use super::element::Element;
use super::merge::merge;
use super::rule::{Defined, Item, Rule};
use crate::schema::{Shape, Struct};
use mizzen_value::{Map, Value};

/// Why a part cannot be laid over an object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LayError {
    /// It does not have the shape of the object's kind.
    #[error("failed to convert patch object to typed object: {0}")]
    Shape(String),
    /// It would replace as a whole what other parts may be missing from.
    #[error("invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {}", .0.join(", "))]
    Atomic(Vec<String>),
}

/// Lays `part` over `object`: what the part does not name stays as it is.
pub fn lay(schema: &Struct, object: &mut Value, part: Value) -> Result<(), LayError> {
    if let Some(complaint) = check(schema, &part) {
        return Err(LayError::Shape(complaint));
    }
    let mut atomics = Atomics {
        path: Vec::new(),
        found: Vec::new(),
    };
    atomics.look(Rule::Struct(schema), &part);
    if !atomics.found.is_empty() {
        return Err(LayError::Atomic(atomics.found));
    }
    merge(schema, object, part);
    Ok(())
}

/// Looks for what has parts, but one owner.
struct Atomics {
    path: Vec<Element>,
    found: Vec<String>,
}

impl Atomics {
    fn look(&mut self, rule: Rule, value: &Value) {
        if matches!(
            (rule, value),
            (
                Rule::Atomic(_) | Rule::Whole(_),
                Value::Map(_) | Value::List(_)
            )
        ) {
            self.found
                .push(self.path.iter().map(Element::to_string).collect());
        }
        match (rule, value) {
            (Rule::Struct(_) | Rule::Defined(_) | Rule::Whole(_), Value::Map(map)) => {
                self.members(rule, map)
            }
            (Rule::Atomic(ty), Value::Map(map)) => {
                if let Shape::Struct(ty) = &ty.shape {
                    self.members(Rule::Struct(ty), map);
                }
            }
            (Rule::Atomic(ty), Value::List(items)) => {
                if let Shape::List(item) = &ty.shape {
                    self.items(Item::Typed(item), items);
                }
            }
            (Rule::Items(item, _), Value::List(items)) => self.items(item, items),
            (Rule::Whole(defined), Value::List(items)) => {
                if let Some(node) = defined.node.items() {
                    self.items(Item::Defined(Defined { node, ..defined }), items);
                }
            }
            _ => {}
        }
    }

    /// What is declared. Kubernetes: keys of plain maps are not looked into (policy/mutating/patch/smd.go).
    fn members(&mut self, rule: Rule, map: &Map) {
        for (name, value) in map.iter() {
            let (rule, declared) = rule.member(name);
            if declared {
                self.at(Element::Name(name.into()), rule, value);
            }
        }
    }

    fn items(&mut self, item: Item, items: &[Value]) {
        for (index, value) in items.iter().enumerate() {
            self.at(Element::Index(index as i64), Rule::of_item(item), value);
        }
    }

    fn at(&mut self, element: Element, rule: Rule, value: &Value) {
        self.path.push(element);
        self.look(rule, value);
        self.path.pop();
    }
}
