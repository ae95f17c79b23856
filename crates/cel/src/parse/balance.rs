//! How is `a && b && c && d` nested? So that no path is longer than need be: cel-go does it too, and the
//! estimate of costs can tell.

use super::nodes::call;
use crate::ast::{Expr, Id};

/// One tree of all terms; `operators` has one number less than there are terms.
pub(super) fn balance(name: &str, terms: Vec<Expr>, operators: &[Id]) -> Expr {
    let mut terms: Vec<Option<Expr>> = terms.into_iter().map(Some).collect();
    between(name, &mut terms, operators, 0, operators.len())
}

/// The tree of the terms `low..=high`.
fn between(
    name: &str,
    terms: &mut [Option<Expr>],
    operators: &[Id],
    low: usize,
    high: usize,
) -> Expr {
    if low == high {
        return terms[low].take().expect("each term is used once");
    }
    // The operator in the middle is the root, the earlier of two.
    let middle = (low + high) / 2;
    let left = between(name, terms, operators, low, middle);
    let right = between(name, terms, operators, middle + 1, high);
    call(operators[middle], name, vec![left, right])
}
