//! Balancing of `a && b && c && d`, as cel-go does. The cost estimate depends on it.

use super::nodes::call;
use crate::ast::{Expr, Id};

/// A balanced tree of all terms; there is one operator ID less than terms.
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
