//! Filling in what nobody has said, and taking out nulls that mean nothing.

use super::{Node, Structural};
use crate::value::{Map, Value};

impl Structural {
    /// Sets every absent property that has a default, at any depth that exists. A null where none is allowed is
    /// the same as absent.
    pub fn default(&self, object: &mut Value) {
        if !self.preserve {
            drop_nulls(object, &self.root);
        }
        self.default_value(object);
    }

    /// The defaults alone.
    pub fn default_value(&self, value: &mut Value) {
        fill(value, &self.root);
    }
}

/// Takes out nulls where the schema allows none and has no default to put in their place.
pub(super) fn drop_nulls(value: &mut Value, node: &Node) {
    match value {
        Value::Map(map) => map.retain(|name, value| match node.member(name) {
            Some(below) if value.is_null() => below.is_nullable() || below.default().is_some(),
            Some(below) => {
                drop_nulls(value, below);
                true
            }
            None => true,
        }),
        Value::List(items) => {
            if let Some(below) = node.items() {
                items.iter_mut().for_each(|value| drop_nulls(value, below));
            }
        }
        _ => {}
    }
}

fn fill(value: &mut Value, node: &Node) {
    match value {
        Value::Map(map) => fill_map(map, node),
        Value::List(items) => {
            if let Some(below) = node.items() {
                items.iter_mut().for_each(|value| fill_member(value, below));
            }
        }
        _ => {}
    }
}

fn fill_map(map: &mut Map, node: &Node) {
    for (name, below) in node.properties() {
        if let Some(default) = below.default() {
            let slot = map.get(name);
            if slot.is_none_or(|value| value.is_null() && !below.is_nullable()) {
                map.insert(name.clone(), default.clone());
            }
        }
    }
    for (name, value) in map.iter_mut() {
        match (node.property(name), node.additional()) {
            (Some(below), _) => fill(value, below),
            (None, Some(below)) => fill_member(value, below),
            (None, None) => {}
        }
    }
}

/// An item of a list or a member of a map, of which a null may stand for the default.
fn fill_member(value: &mut Value, node: &Node) {
    if value.is_null() && !node.is_nullable() {
        *value = node.default().cloned().unwrap_or_default();
    }
    fill(value, node);
}
