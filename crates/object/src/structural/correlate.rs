//! Correlation of a new object with the old one.
//!
//! Properties correlate by name, list items by their map keys; values unknown to the schema do not
//! correlate. Kubernetes: apiserver/pkg/cel/common/equality.go.

use std::collections::HashMap;

use super::node::{ListType, SchemaNode};
use mizzen_value::Value;
use mizzen_value::json;

/// A value, its old value, and their schema.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Correlated<'a> {
    node: &'a SchemaNode,
    new: &'a Value,
    old: &'a Value,
}

impl<'a> Correlated<'a> {
    pub(super) fn new(node: &'a SchemaNode, new: &'a Value, old: &'a Value) -> Correlated<'a> {
        Correlated { node, new, old }
    }

    pub(super) fn old(&self) -> &'a Value {
        self.old
    }

    /// The member `name`, if both have it.
    pub(super) fn member(&self, name: &str) -> Option<Correlated<'a>> {
        let node = self.node.member(name)?;
        Some(Correlated {
            node,
            new: self.new.get(name)?,
            old: self.old.get(name)?,
        })
    }

    /// The old value of every item of the new list, for lists with map keys.
    pub(super) fn items(&self) -> Vec<Option<Correlated<'a>>> {
        let Some(node) = self
            .node
            .items()
            .filter(|_| self.node.list == ListType::Map)
        else {
            return Vec::new();
        };
        let mut olds: HashMap<String, &'a Value> = HashMap::new();
        for old in self.old.list() {
            if let Some(key) = self.key_of(old) {
                olds.entry(key).or_insert(old);
            }
        }
        let past = |new: &'a Value| {
            Some(Correlated {
                node,
                new,
                old: olds.get(&self.key_of(new)?)?,
            })
        };
        self.new.list().iter().map(past).collect()
    }

    /// The values of an item's keys; `None` unless all are present and scalar.
    fn key_of(&self, item: &Value) -> Option<String> {
        let keys = self.node.keys();
        let parts = keys.iter().map(|key| match item.get(key)? {
            Value::Null | Value::List(_) | Value::Map(_) => None,
            scalar => Some(json::to_string(scalar)),
        });
        let parts = parts.collect::<Option<Vec<String>>>()?;
        (!parts.is_empty()).then(|| parts.join("\0"))
    }

    /// Whether nothing has changed here. Items of a list with map keys may have moved.
    pub(super) fn is_same(&self) -> bool {
        match (self.new, self.old) {
            (Value::Map(new), Value::Map(old)) => {
                let same = |name: &str| self.member(name).is_some_and(|below| below.is_same());
                new.len() == old.len() && new.keys().all(|name| same(name))
            }
            (Value::List(new), Value::List(old)) => {
                let by_key = self.node.list == ListType::Map && self.node.items().is_some();
                let all = |items: Vec<Option<Correlated>>| {
                    items
                        .iter()
                        .all(|item| item.as_ref().is_some_and(Correlated::is_same))
                };
                new.len() == old.len()
                    && if by_key {
                        all(self.items())
                    } else {
                        new == old
                    }
            }
            (new, old) => new == old,
        }
    }
}
