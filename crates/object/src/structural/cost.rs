//! How much work may it be to validate an object?

use super::Structural;
use super::node::{Check, Node};
use mizzen_go_regexp as go_regexp;
use mizzen_value::Value;

/// What the regular expressions of a schema take, in instructions.
#[derive(Debug, Default)]
pub(super) struct PatternSizes {
    total: u64,
    largest: u64,
}

/// What expressions (CEL) may cost for each byte of text: their own regular expressions are bounded by cost, which
/// counts a pattern's text and not its repetitions.
const RULES_PER_BYTE: u64 = 1000;

impl Structural {
    /// The most steps that regular expressions may take: each is compiled once, and each text is matched by few.
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
    fn add(&mut self, node: &Node) {
        for check in &node.checks {
            match check {
                Check::Pattern(pattern) => {
                    let size = go_regexp::check(&pattern.text).unwrap_or_default() as u64;
                    self.total += size;
                    self.largest = self.largest.max(size);
                }
                Check::AnyOf(nodes) | Check::OneOf(nodes) | Check::AllOf(nodes) => {
                    nodes.iter().for_each(|node| self.add(node));
                }
                Check::Not(node) => self.add(node),
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
