//! What did a call cost, and what may it cost? What several libraries share.
//!
//! Kubernetes: the costs decide which rules a CustomResourceDefinition may have, so they are upstream's to the
//! unit (apiserver, cel/library/cost.go).

use crate::{CallEstimate, LIST, Node, REGEX, Range, Sizing, TRAVERSAL, Type, Value, scale};

/// Once through the first argument.
pub(super) fn traverse(arguments: &[Value], _: &Value) -> u64 {
    scale(arguments[0].size(), TRAVERSAL)
}

/// Twice through the first argument.
pub(super) fn traverse_twice(arguments: &[Value], _: &Value) -> u64 {
    scale(2 * arguments[0].size(), TRAVERSAL)
}

/// Twice through the result.
pub(super) fn traverse_result_twice(_: &[Value], result: &Value) -> u64 {
    scale(2 * result.size(), TRAVERSAL)
}

/// Every character against every state of a regular expression; even nothing costs something.
pub(super) fn search(text: u64, pattern: u64) -> u64 {
    scale(text + 1, TRAVERSAL).saturating_mul(scale(pattern, REGEX))
}

/// Once through the whole tree of the first argument.
pub(super) fn traverse_tree(arguments: &[Value], _: &Value) -> u64 {
    tree(&arguments[0])
}

fn tree(value: &Value) -> u64 {
    let octets = |n: usize| (n as f64 * TRAVERSAL) as u64;
    match value {
        Value::String(text) => octets(text.len()),
        Value::Bytes(bytes) => octets(bytes.len()),
        Value::List(list) => list
            .iter()
            .map(|item| item.map_or(1, |item| tree(&item)))
            .sum(),
        Value::Map(map) => {
            let of_value = |key: &Value| {
                map.get(key)
                    .and_then(Result::ok)
                    .map_or(1, |value| tree(&value))
            };
            map.keys().iter().map(|key| tree(key) + of_value(key)).sum()
        }
        _ => 1,
    }
}

/// A list of `size` items made, at so much for each.
pub(super) fn make_list(size: u64, factor: f64) -> u64 {
    ((size as f64 * factor) as u64).saturating_add(1 + LIST)
}

/// Once through the target, or through the first argument.
pub(super) fn estimate_traverse(
    sizing: &Sizing,
    target: Option<&Node>,
    arguments: &[Node],
) -> Option<CallEstimate> {
    Some(CallEstimate::cost(
        subject(sizing, target, arguments)?.scale(TRAVERSAL),
    ))
}

/// The same, and the result is not larger.
pub(super) fn estimate_traverse_sized(
    sizing: &Sizing,
    target: Option<&Node>,
    arguments: &[Node],
) -> Option<CallEstimate> {
    let size = subject(sizing, target, arguments)?;
    Some(CallEstimate::sized(size.scale(TRAVERSAL), size))
}

/// Twice through the target, or through the first argument.
pub(super) fn estimate_traverse_twice(
    sizing: &Sizing,
    target: Option<&Node>,
    arguments: &[Node],
) -> Option<CallEstimate> {
    Some(CallEstimate::cost(
        subject(sizing, target, arguments)?.scale(2.0 * TRAVERSAL),
    ))
}

/// The size of what a function is called on.
pub(super) fn subject(sizing: &Sizing, target: Option<&Node>, arguments: &[Node]) -> Option<Range> {
    target.or(arguments.first()).map(|node| sizing.of(node))
}

/// Each item of the target compared once, or each character of it.
pub(super) fn estimate_compare_items(
    sizing: &Sizing,
    target: Option<&Node>,
    _: &[Node],
) -> Option<CallEstimate> {
    let target = target?;
    let size = sizing.of(target);
    let Some(item) = sizing.items(target) else {
        return Some(CallEstimate::cost(size.scale(TRAVERSAL)));
    };
    let text = match item.kind {
        Type::String | Type::Bytes => sizing.of(&item).scale(TRAVERSAL),
        _ => Range::ZERO,
    };
    Some(CallEstimate::cost(size.multiply(Range::ONE.add(text))))
}

/// A list made with `size` items, at so much for each.
pub(super) fn estimate_make_list(size: Range, factor: f64) -> CallEstimate {
    CallEstimate::sized(size.scale(factor).add(Range::fixed(1 + LIST)), size)
}
