//! What a value was before: the place in the old object that a place in the new one came from.
//!
//! Properties are told by name, items of a list only by their keys; whatever the schema does not know has no past.
//! Kubernetes: apiserver/pkg/cel/common/equality.go.

use std::collections::HashMap;

use super::node::{ListType, Node};
use mizzen_value::Value;
use mizzen_value::json;

/// A value, what it was, and what the schema says of both.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Correlated<'a> {
    node: &'a Node,
    new: &'a Value,
    old: &'a Value,
}

impl<'a> Correlated<'a> {
    pub(super) fn new(node: &'a Node, new: &'a Value, old: &'a Value) -> Correlated<'a> {
        Correlated { node, new, old }
    }

    /// What the value was.
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

    /// For every item of the new list what it was. Only lists with keys know.
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

    /// The values of an item's keys; none unless it has them all and they are scalars.
    fn key_of(&self, item: &Value) -> Option<String> {
        let keys = self.node.keys();
        let parts = keys.iter().map(|key| match item.get(key)? {
            Value::Null | Value::List(_) | Value::Map(_) => None,
            scalar => Some(json::to_string(scalar)),
        });
        let parts = parts.collect::<Option<Vec<String>>>()?;
        (!parts.is_empty()).then(|| parts.join("\0"))
    }

    /// Whether nothing has changed here. The items of a list with keys may have moved.
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
