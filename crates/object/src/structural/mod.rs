//! Structural schemas: the compiled `openAPIV3Schema` of a custom resource.
//!
//! [`Structural::prune`] removes undeclared fields, [`Structural::default`] sets defaults, and
//! validation reports every violation: [`Structural::validate`] of the schema,
//! [`Structural::validate_embedded`] of the metadata of embedded objects,
//! [`Structural::validate_lists`] of sets and maps as lists, and [`Structural::validate_rules`] of
//! CEL rules. `custom` runs them in order.
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
pub use field_path::{FieldPathTarget, resolve};
pub use format::is_known_format;
pub(crate) use node::{ListType, SchemaNode};
pub use rules::{BUDGET, RuleOptions, RuleVerdict, ValidationRule, examine};
pub use validate::type_name;

use std::sync::OnceLock;

use cost::PatternSizes;
use mizzen_value::Value;

/// A compiled structural schema.
#[derive(Debug)]
pub struct Structural {
    root: SchemaNode,
    /// The definition's `preserveUnknownFields`.
    preserve: bool,
    /// Whether there are CEL rules, embedded objects, or sets and maps as lists.
    rules: bool,
    embedded: bool,
    distinct: bool,
    /// The sizes of its regular expressions, computed at the first validation.
    patterns: OnceLock<PatternSizes>,
}

impl Structural {
    /// Compiles an accepted schema. Descriptions and other documentation are not kept.
    /// `preserve_unknown` is the definition's `preserveUnknownFields`.
    pub fn compile(schema: &Value, preserve_unknown: bool) -> Structural {
        let root = SchemaNode::compile(schema);
        Structural {
            preserve: preserve_unknown,
            rules: root.has_rules(),
            embedded: root.any(&SchemaNode::is_embedded),
            distinct: root.any(&|node| matches!(node.list, ListType::Set | ListType::Map)),
            patterns: OnceLock::new(),
            root,
        }
    }

    pub(crate) fn root(&self) -> &SchemaNode {
        &self.root
    }
}

/// Sorts the members of all maps by key, as Go prints them.
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
