//! Taking away what a schema does not declare, and nulls that mean nothing.

use super::{Node, Structural};
use mizzen_value::{Map, Value};

impl Structural {
    /// Takes away what is not declared and says what it was, sorted: `spec.x`, `spec.items[0].y`. What says of
    /// which kind an object is, and its metadata, stay. Nulls that the schema does not allow go, too, unless a default
    /// takes their place. Nothing happens if the definition keeps everything.
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        if self.preserve {
            return Vec::new();
        }
        let pruned = prune(&self.root, object, true);
        drop_nulls(object, &self.root);
        pruned
    }

    /// The same for a value that stands at the root of the schema and need not be an object, such as a default.
    pub fn prune_value(&self, value: &mut Value) -> Vec<String> {
        prune(&self.root, value, false)
    }
}

/// Prunes a value that stands at the root of a schema. `resource` says that it has a kind and metadata.
fn prune(root: &Node, value: &mut Value, resource: bool) -> Vec<String> {
    let mut pruner = Pruner {
        path: String::new(),
        pruned: Vec::new(),
    };
    match value {
        Value::Map(map) if resource => pruner.map(map, Some(root), true, root.preserves()),
        value => pruner.value(value, Some(root), false),
    }
    pruner.pruned.sort();
    pruner.pruned
}

/// Takes out nulls where the schema allows none and has no default to put in their place.
fn drop_nulls(value: &mut Value, node: &Node) {
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

/// Whether a field says of which kind an object is, or is its metadata.
pub(super) fn is_meta(name: &str) -> bool {
    matches!(name, "apiVersion" | "kind" | "metadata")
}

struct Pruner {
    path: String,
    pruned: Vec<String>,
}

impl Pruner {
    /// Prunes a value of which the schema says something, or nothing. The items of a list that keeps everything
    /// keep everything too (`kept`); what they declare is pruned as it says.
    fn value(&mut self, value: &mut Value, node: Option<&Node>, kept: bool) {
        let keep = kept || node.is_some_and(Node::preserves);
        if keep && node.is_none() {
            return;
        }
        match value {
            Value::Map(map) => self.map(map, node, node.is_some_and(Node::is_embedded), keep),
            Value::List(items) => {
                let length = self.path.len();
                for (index, value) in items.iter_mut().enumerate() {
                    self.path += &format!("[{index}]");
                    self.value(value, node.and_then(Node::items), keep);
                    self.path.truncate(length);
                }
            }
            _ => {}
        }
    }

    fn map(&mut self, map: &mut Map, node: Option<&Node>, embedded: bool, keep: bool) {
        let length = self.path.len();
        map.retain(|name, value| {
            if embedded && is_meta(name) {
                return true;
            }
            let below = node.and_then(|node| node.member(name));
            let known = below.is_some()
                || node.is_some_and(|node| node.allows_any_property() || node.forbids_others());
            self.enter(name);
            if known {
                self.value(value, below, false);
            } else if !keep {
                self.record(name, length);
            }
            self.path.truncate(length);
            known || keep
        });
    }

    fn enter(&mut self, name: &str) {
        if !self.path.is_empty() {
            self.path.push('.');
        }
        self.path += name;
    }

    /// Kubernetes: what every object has is left out silently at the top (pruning/algorithm.go).
    fn record(&mut self, name: &str, length: usize) {
        if length > 0 || !is_meta(name) {
            self.pruned.push(self.path.clone());
        }
    }
}
