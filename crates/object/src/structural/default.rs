//! Filling in what the client has not said.

use super::{Node, Structural};
use mizzen_value::{Map, Value};

impl Structural {
    /// Sets every absent property that has a default, at any depth that exists. A null where none is allowed is
    /// the same as absent if there is a default; other nulls are for [`Structural::prune`], or stay.
    pub fn default(&self, object: &mut Value) {
        fill(object, &self.root);
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
