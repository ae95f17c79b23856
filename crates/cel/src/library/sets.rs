//! The sets library. Order and duplicates are ignored.

use super::{equal, list};
use crate::{AstNode, CallEstimate, CostRange, EvalError, Library, ListVal, Sizing, Type, Value};

/// `sets.contains`, `sets.equivalent`, `sets.intersects`.
pub(super) fn library() -> Library {
    let items = || Type::list(Type::parameter("T"));
    let functions = functions! {
        "sets.contains" {
            global "list_sets_contains_list" (items(), items()) -> Type::Bool =>
                |_, it| Ok(contains(list(it, 0)?, list(it, 1)?)?.into()),
                costs once, estimate_once;
        }
        "sets.equivalent" {
            global "list_sets_equivalent_list" (items(), items()) -> Type::Bool =>
                |_, it| Ok((contains(list(it, 0)?, list(it, 1)?)? && contains(list(it, 1)?, list(it, 0)?)?).into()),
                costs |it, _| pairs(it).saturating_mul(2).saturating_add(1),
                |sizing, _, it| {
                    let pairs = sizing.size(it.first()?).multiply(sizing.size(it.get(1)?));
                    Some(CallEstimate::cost(pairs.scale(2.0).add(CostRange::ONE)))
                };
        }
        "sets.intersects" {
            global "list_sets_intersects_list" (items(), items()) -> Type::Bool =>
                |_, it| {
                    let (one, other) = (list(it, 0)?.to_vec()?, list(it, 1)?.to_vec()?);
                    let is_known = |item: &Value| other.iter().any(|known| equal(item, known));
                    Ok(one.iter().any(is_known).into())
                },
                costs once, estimate_once;
        }
    };
    Library::new("cel.lib.ext.sets", (1, 29), functions)
}

fn contains(outer: &ListVal, inner: &ListVal) -> Result<bool, EvalError> {
    let (outer, inner) = (outer.to_vec()?, inner.to_vec()?);
    Ok(inner
        .iter()
        .all(|item| outer.iter().any(|other| equal(other, item))))
}

fn pairs(arguments: &[Value]) -> u64 {
    arguments[0].size().wrapping_mul(arguments[1].size())
}

fn once(arguments: &[Value], _: &Value) -> u64 {
    pairs(arguments).saturating_add(1)
}

fn estimate_once(
    sizing: &Sizing,
    _: Option<&AstNode>,
    arguments: &[AstNode],
) -> Option<CallEstimate> {
    let pairs = sizing
        .size(arguments.first()?)
        .multiply(sizing.size(arguments.get(1)?));
    Some(CallEstimate::cost(pairs.add(CostRange::ONE)))
}
