//! Cost functions that several libraries share.
//!
//! Kubernetes: the costs decide which validation rules a CustomResourceDefinition may have, so they
//! equal upstream's (apiserver, cel/library/cost.go).

use crate::{AstNode, CallEstimate, CostRange, LIST, REGEX, Sizing, TRAVERSAL, Type, Value, scale};

/// Traverses the first argument.
pub(super) fn traverse(arguments: &[Value], _: &Value) -> u64 {
    scale(arguments[0].size(), TRAVERSAL)
}

/// Traverses the first argument twice.
pub(super) fn traverse_twice(arguments: &[Value], _: &Value) -> u64 {
    scale(2 * arguments[0].size(), TRAVERSAL)
}

pub(super) fn traverse_result_twice(_: &[Value], result: &Value) -> u64 {
    scale(2 * result.size(), TRAVERSAL)
}

/// Every character against every state of a regular expression; the empty string is charged, too.
pub(super) fn search(text: u64, pattern: u64) -> u64 {
    scale(text + 1, TRAVERSAL).saturating_mul(scale(pattern, REGEX))
}

/// Traverses the whole tree of the first argument.
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

/// Creates a list of `size` items.
pub(super) fn make_list(size: u64, factor: f64) -> u64 {
    ((size as f64 * factor) as u64).saturating_add(1 + LIST)
}

/// Traverses the target, or the first argument.
pub(super) fn estimate_traverse(
    sizing: &Sizing,
    target: Option<&AstNode>,
    arguments: &[AstNode],
) -> Option<CallEstimate> {
    Some(CallEstimate::cost(
        subject(sizing, target, arguments)?.scale(TRAVERSAL),
    ))
}

/// Like [`estimate_traverse`], with a result that is not larger.
pub(super) fn estimate_traverse_sized(
    sizing: &Sizing,
    target: Option<&AstNode>,
    arguments: &[AstNode],
) -> Option<CallEstimate> {
    let size = subject(sizing, target, arguments)?;
    Some(CallEstimate::sized(size.scale(TRAVERSAL), size))
}

/// Traverses the target, or the first argument, twice.
pub(super) fn estimate_traverse_twice(
    sizing: &Sizing,
    target: Option<&AstNode>,
    arguments: &[AstNode],
) -> Option<CallEstimate> {
    Some(CallEstimate::cost(
        subject(sizing, target, arguments)?.scale(2.0 * TRAVERSAL),
    ))
}

/// The size of the target, or of the first argument.
pub(super) fn subject(
    sizing: &Sizing,
    target: Option<&AstNode>,
    arguments: &[AstNode],
) -> Option<CostRange> {
    target.or(arguments.first()).map(|node| sizing.size(node))
}

/// Compares each item, or each character, of the target once.
pub(super) fn estimate_compare_items(
    sizing: &Sizing,
    target: Option<&AstNode>,
    _: &[AstNode],
) -> Option<CallEstimate> {
    let target = target?;
    let size = sizing.size(target);
    let Some(item) = sizing.items(target) else {
        return Some(CallEstimate::cost(size.scale(TRAVERSAL)));
    };
    let text = match item.kind {
        Type::String | Type::Bytes => sizing.size(&item).scale(TRAVERSAL),
        _ => CostRange::ZERO,
    };
    Some(CallEstimate::cost(size.multiply(CostRange::ONE.add(text))))
}

/// Creates a list of `size` items.
pub(super) fn estimate_make_list(size: CostRange, factor: f64) -> CallEstimate {
    CallEstimate::sized(size.scale(factor).add(CostRange::fixed(1 + LIST)), size)
}
