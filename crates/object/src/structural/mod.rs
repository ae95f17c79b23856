//! The shape of a custom kind: the `openAPIV3Schema` of a definition, compiled.
//!
//! A [`Structural`] is what a definition's version needs to take in an object: [`Structural::prune`] takes away
//! what is not declared, [`Structural::default`] fills in what nobody has said, and the checks say all that is
//! wrong: [`Structural::validate`] the schema itself, [`Structural::validate_embedded`] the metadata of objects
//! inside the object, [`Structural::validate_lists`] sets and maps that are written as lists, and
//! [`Structural::validate_rules`] expressions. `custom` puts them in their order.
//!
//! Invariant: prune(prune(x)) = prune(x), default(default(x)) = default(x).

mod alternatives;
mod correlate;
mod cost;
mod default;
mod embedded;
mod field_path;
mod format;
mod list;
mod node;
mod number;
mod pattern;
mod prune;
mod result;
mod rules;
mod validate;

#[cfg(test)]
mod tests;

pub(crate) use embedded::typed as typed_metadata;
pub use field_path::{Place, resolve};
pub use format::is_known_format;
pub(crate) use node::{ListType, Node};
pub use rules::{BUDGET, Rule, Verdict, examine};
pub use validate::type_name;

use std::sync::OnceLock;

use cost::PatternSizes;
use mizzen_value::Value;

/// A compiled schema.
#[derive(Debug)]
pub struct Structural {
    root: Node,
    /// Whether the definition keeps whatever its schema does not know.
    preserve: bool,
    /// Whether there are expressions, embedded objects, lists whose items are told apart.
    rules: bool,
    embedded: bool,
    distinct: bool,
    /// What its regular expressions take; found out when an object first comes by.
    patterns: OnceLock<PatternSizes>,
}

impl Structural {
    /// Compiles a schema that has been accepted. Descriptions and everything else that is only for people
    /// are not kept. `preserve_unknown` is the definition's `preserveUnknownFields`.
    pub fn compile(schema: &Value, preserve_unknown: bool) -> Structural {
        let root = Node::compile(schema);
        Structural {
            preserve: preserve_unknown,
            rules: root.has_rules(),
            embedded: root.any(&Node::is_embedded),
            distinct: root.any(&|node| matches!(node.list, ListType::Set | ListType::Map)),
            patterns: OnceLock::new(),
            root,
        }
    }

    pub(crate) fn root(&self) -> &Node {
        &self.root
    }
}

/// Orders the members of all maps by name, as Go writes them.
pub fn sort(value: &mut Value) {
    match value {
        Value::Map(map) => {
            map.sort();
            map.values_mut().for_each(sort);
        }
        Value::List(items) => items.iter_mut().for_each(sort),
        _ => {}
    }
}
