//! Pruning: removes undeclared fields, and nulls that are not allowed.

use super::{SchemaNode, Structural};
use mizzen_value::{Map, Value};

impl Structural {
    /// Removes undeclared fields and returns their paths, sorted: `spec.x`, `spec.items[0].y`. The
    /// kind and the metadata of an object stay. Nulls that the schema does not allow are removed,
    /// too, unless a default replaces them. Does nothing if the definition preserves unknown
    /// fields.
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        if self.preserve {
            return Vec::new();
        }
        let pruned = prune(&self.root, object, true);
        drop_nulls(object, &self.root);
        pruned
    }

    /// Like [`Structural::prune`], for a value of the root schema that need not be an object, such
    /// as a default.
    pub fn prune_value(&self, value: &mut Value) -> Vec<String> {
        prune(&self.root, value, false)
    }
}

/// Prunes a value of a root schema. `resource` means that it has a kind and metadata.
fn prune(root: &SchemaNode, value: &mut Value, resource: bool) -> Vec<String> {
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

/// Removes nulls where the schema allows none and has no default for them.
fn drop_nulls(value: &mut Value, node: &SchemaNode) {
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

/// Whether it is `kind`, `apiVersion` or `metadata`.
pub(super) fn is_meta(name: &str) -> bool {
    matches!(name, "apiVersion" | "kind" | "metadata")
}

struct Pruner {
    path: String,
    pruned: Vec<String>,
}

impl Pruner {
    /// Prunes a value, with or without a schema. Items of a list that preserves unknown fields
    /// preserve them, too (`kept`); their declared fields are pruned.
    fn value(&mut self, value: &mut Value, node: Option<&SchemaNode>, kept: bool) {
        let keep = kept || node.is_some_and(SchemaNode::preserves);
        if keep && node.is_none() {
            return;
        }
        match value {
            Value::Map(map) => self.map(map, node, node.is_some_and(SchemaNode::is_embedded), keep),
            Value::List(items) => {
                let length = self.path.len();
                for (index, value) in items.iter_mut().enumerate() {
                    self.path += &format!("[{index}]");
                    self.value(value, node.and_then(SchemaNode::items), keep);
                    self.path.truncate(length);
                }
            }
            _ => {}
        }
    }

    fn map(&mut self, map: &mut Map, node: Option<&SchemaNode>, embedded: bool, keep: bool) {
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

    /// Kubernetes: fields of every object are dropped without a report at the root
    /// (pruning/algorithm.go).
    fn record(&mut self, name: &str, length: usize) {
        if length > 0 || !is_meta(name) {
            self.pruned.push(self.path.clone());
        }
    }
}
