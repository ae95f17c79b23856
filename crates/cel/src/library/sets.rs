//! Are the items of one list in another? Order and repetition do not count.

use super::{equal, list};
use crate::{CallEstimate, EvalError, Library, List, Node, Range, Sizing, Type, Value};

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
                costs twice, estimate_twice;
        }
        "sets.intersects" {
            global "list_sets_intersects_list" (items(), items()) -> Type::Bool =>
                |_, it| Ok(intersects(list(it, 0)?, list(it, 1)?)?.into()),
                costs once, estimate_once;
        }
    };
    Library::new("cel.lib.ext.sets", (1, 29), functions)
}

fn intersects(one: &List, other: &List) -> Result<bool, EvalError> {
    let (one, other) = (one.to_vec()?, other.to_vec()?);
    Ok(one
        .iter()
        .any(|item| other.iter().any(|known| equal(item, known))))
}

fn contains(outer: &List, inner: &List) -> Result<bool, EvalError> {
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

fn twice(arguments: &[Value], _: &Value) -> u64 {
    pairs(arguments).saturating_mul(2).saturating_add(1)
}

fn estimate_once(sizing: &Sizing, _: Option<&Node>, arguments: &[Node]) -> Option<CallEstimate> {
    let pairs = sizing
        .of(arguments.first()?)
        .multiply(sizing.of(arguments.get(1)?));
    Some(CallEstimate::cost(pairs.add(Range::ONE)))
}

fn estimate_twice(sizing: &Sizing, _: Option<&Node>, arguments: &[Node]) -> Option<CallEstimate> {
    let pairs = sizing
        .of(arguments.first()?)
        .multiply(sizing.of(arguments.get(1)?));
    Some(CallEstimate::cost(pairs.scale(2.0).add(Range::ONE)))
}
