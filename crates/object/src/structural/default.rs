//! Defaulting.

use super::{SchemaNode, Structural};
use mizzen_value::Value;

impl Structural {
    /// Sets every absent property that has a default, at any depth that exists. A null that is not
    /// allowed counts as absent if there is a default; other nulls are left to
    /// [`Structural::prune`], or stay.
    pub fn default(&self, object: &mut Value) {
        fill(object, &self.root);
    }
}

fn fill(value: &mut Value, node: &SchemaNode) {
    match value {
        Value::Map(map) => {
            for (name, below) in node.properties() {
                let Some(default) = below.default() else {
                    continue;
                };
                let is_set = |value: &Value| !value.is_null() || below.is_nullable();
                if !map.get(name).is_some_and(is_set) {
                    map.insert(name.clone(), default.clone());
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
        Value::List(items) => {
            if let Some(below) = node.items() {
                items.iter_mut().for_each(|value| fill_member(value, below));
            }
        }
        _ => {}
    }
}

/// Defaults a list item or a map value, which a default may replace if it is null.
fn fill_member(value: &mut Value, node: &SchemaNode) {
    if value.is_null() && !node.is_nullable() {
        *value = node.default().cloned().unwrap_or_default();
    }
    fill(value, node);
}
