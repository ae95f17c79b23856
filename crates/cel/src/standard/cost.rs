//! Costs of the standard functions.

use super::super::estimate::{AstNode, CallEstimate, CostRange, REGEX, TRAVERSAL, scale};
use super::super::function::Sizing;
use super::super::planner::CallPlan;
use crate::value::Value;

pub(crate) fn call_cost(call: &CallPlan, arguments: &[Value], result: &Value) -> u64 {
    let overload = match &call.overloads[..] {
        [overload] => Some(overload),
        // Kubernetes: libraries are charged by function name, standard functions by overload.
        several if call.function.starts_with(|c: char| c.is_ascii_alphabetic()) => several
            .iter()
            .find(|overload| super::accepts(&overload.parameters, arguments)),
        _ => None,
    };
    overload
        .and_then(|overload| overload.cost)
        .map_or(1, |cost| cost(arguments, result))
}

/// Two values are compared up to the end of the shorter one.
pub(crate) fn comparison_cost(one: u64, other: u64) -> u64 {
    scale(one.min(other), TRAVERSAL)
}

pub(super) fn of_comparison(arguments: &[Value], _: &Value) -> u64 {
    comparison_cost(arguments[0].size(), arguments[1].size())
}

pub(super) fn estimate_comparison(
    _: &Sizing,
    _: Option<&AstNode>,
    arguments: &[AstNode],
) -> Option<CallEstimate> {
    let max = size(arguments.first()?)
        .max
        .min(size(arguments.get(1)?).max);
    Some(CallEstimate::cost(
        CostRange {
            min: u64::from(max > 0),
            max,
        }
        .scale(TRAVERSAL),
    ))
}

pub(super) fn of_sum(arguments: &[Value], _: &Value) -> u64 {
    scale(arguments[0].size() + arguments[1].size(), TRAVERSAL)
}

pub(super) fn estimate_sum(
    _: &Sizing,
    _: Option<&AstNode>,
    arguments: &[AstNode],
) -> Option<CallEstimate> {
    let size = size(arguments.first()?).add(size(arguments.get(1)?));
    Some(CallEstimate::sized(size.scale(TRAVERSAL), size))
}

pub(super) fn of_first(arguments: &[Value], _: &Value) -> u64 {
    scale(arguments[0].size(), TRAVERSAL)
}

/// Kubernetes: `startsWith` and `endsWith` are estimated by their argument, but charged by their
/// target.
pub(super) fn estimate_affix(
    _: &Sizing,
    _: Option<&AstNode>,
    arguments: &[AstNode],
) -> Option<CallEstimate> {
    Some(CallEstimate::cost(
        size(arguments.first()?).scale(TRAVERSAL),
    ))
}

pub(super) fn estimate_to_bytes(
    _: &Sizing,
    _: Option<&AstNode>,
    arguments: &[AstNode],
) -> Option<CallEstimate> {
    let size = size(arguments.first()?);
    let result = CostRange {
        min: size.min,
        max: size.max.wrapping_mul(4),
    };
    Some(CallEstimate::sized(size.scale(TRAVERSAL), result))
}

pub(super) fn estimate_to_string(
    _: &Sizing,
    _: Option<&AstNode>,
    arguments: &[AstNode],
) -> Option<CallEstimate> {
    let size = size(arguments.first()?);
    Some(CallEstimate::sized(
        size.scale(TRAVERSAL),
        CostRange {
            min: size.min / 4,
            max: size.max,
        },
    ))
}

pub(super) fn of_contains(arguments: &[Value], _: &Value) -> u64 {
    scale(arguments[0].size(), TRAVERSAL).saturating_mul(scale(arguments[1].size(), TRAVERSAL))
}

pub(super) fn estimate_contains(
    _: &Sizing,
    target: Option<&AstNode>,
    arguments: &[AstNode],
) -> Option<CallEstimate> {
    let (text, part) = (size(target?), size(arguments.first()?));
    Some(CallEstimate::cost(
        text.scale(TRAVERSAL).multiply(part.scale(TRAVERSAL)),
    ))
}

pub(super) fn of_matches(arguments: &[Value], _: &Value) -> u64 {
    scale(arguments[0].size() + 1, TRAVERSAL).saturating_mul(scale(arguments[1].size(), REGEX))
}

pub(super) fn estimate_matches(
    _: &Sizing,
    target: Option<&AstNode>,
    arguments: &[AstNode],
) -> Option<CallEstimate> {
    let text = size(target?).add(CostRange::ONE).scale(TRAVERSAL);
    Some(CallEstimate::cost(
        text.multiply(size(arguments.first()?).scale(REGEX)),
    ))
}

pub(super) fn of_in_list(arguments: &[Value], _: &Value) -> u64 {
    arguments[1].size()
}

pub(super) fn estimate_in_list(
    _: &Sizing,
    _: Option<&AstNode>,
    arguments: &[AstNode],
) -> Option<CallEstimate> {
    Some(CallEstimate::cost(size(arguments.get(1)?).scale(1.0)))
}

/// The standard functions use computed sizes only.
fn size(node: &AstNode) -> CostRange {
    node.computed.unwrap_or(CostRange::UNKNOWN)
}
