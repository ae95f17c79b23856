//! The maximum work to validate an object.

use super::Structural;
use super::node::{NodeCheck, SchemaNode};
use mizzen_go_regexp as go_regexp;
use mizzen_value::Value;

/// The sizes of the regular expressions of a schema, in instructions.
#[derive(Debug, Default)]
pub(super) struct PatternSizes {
    total: u64,
    largest: u64,
}

/// The assumed steps of CEL rules per byte of text: their regular expressions are bounded by cost,
/// which counts a pattern's text and not its repetitions.
const RULES_PER_BYTE: u64 = 1000;

impl Structural {
    /// The maximum number of steps of regular expressions: each is compiled once, and each string
    /// is matched by few.
    pub fn validation_cost(&self, object: &Value) -> u64 {
        let sizes = self.patterns.get_or_init(|| {
            let mut sizes = PatternSizes::default();
            sizes.add(&self.root);
            sizes
        });
        let per_byte = sizes.largest + if self.rules { RULES_PER_BYTE } else { 0 };
        match per_byte {
            0 => 0,
            _ => sizes
                .total
                .saturating_add(per_byte.saturating_mul(text_length(object))),
        }
    }
}

impl PatternSizes {
    fn add(&mut self, node: &SchemaNode) {
        for check in &node.checks {
            match check {
                NodeCheck::Pattern(pattern) => {
                    let size = go_regexp::check(&pattern.text).unwrap_or_default() as u64;
                    self.total += size;
                    self.largest = self.largest.max(size);
                }
                NodeCheck::AnyOf(nodes) | NodeCheck::OneOf(nodes) | NodeCheck::AllOf(nodes) => {
                    nodes.iter().for_each(|node| self.add(node));
                }
                NodeCheck::Not(node) => self.add(node),
                _ => {}
            }
        }
        node.below().for_each(|node| self.add(node));
    }
}

fn text_length(value: &Value) -> u64 {
    match value {
        Value::String(text) => text.len() as u64,
        Value::List(items) => items.iter().map(text_length).sum(),
        Value::Map(map) => map.values().map(text_length).sum(),
        _ => 0,
    }
}
