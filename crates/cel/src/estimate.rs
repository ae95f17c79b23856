//! Estimates of sizes and costs before an expression is evaluated, and the cost constants of
//! cel-go.

use super::ast::Expr;
use super::function::Sizing;
use super::types::Type;
use mizzen_value::Str;

/// The cost of traversing one character or byte.
pub const TRAVERSAL: f64 = 0.1;
/// The cost of a character of a regular expression.
pub const REGEX: f64 = 0.25;
/// The cost of creating a list.
pub const LIST: u64 = 10;
/// The cost of creating a map.
pub const MAP: u64 = 30;
/// The cost of creating an object.
pub const STRUCT: u64 = 40;

/// The bounds of a size or of a cost. Arithmetic saturates: `u64::MAX` means unbounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CostRange {
    /// The lower bound.
    pub min: u64,
    /// The upper bound.
    pub max: u64,
}

impl CostRange {
    /// Exactly zero.
    pub const ZERO: CostRange = CostRange::fixed(0);
    /// Exactly one.
    pub const ONE: CostRange = CostRange::fixed(1);
    /// Unbounded.
    pub const UNKNOWN: CostRange = CostRange {
        min: 0,
        max: u64::MAX,
    };

    /// Exactly `n`.
    pub const fn fixed(n: u64) -> CostRange {
        CostRange { min: n, max: n }
    }

    /// The sum.
    #[expect(
        clippy::should_implement_trait,
        reason = "`+` would hide that nothing overflows"
    )]
    pub fn add(self, other: CostRange) -> CostRange {
        CostRange {
            min: self.min.saturating_add(other.min),
            max: self.max.saturating_add(other.max),
        }
    }

    /// The product.
    pub fn multiply(self, other: CostRange) -> CostRange {
        CostRange {
            min: self.min.saturating_mul(other.min),
            max: self.max.saturating_mul(other.max),
        }
    }

    /// Multiplies by a factor, rounded up.
    pub fn scale(self, factor: f64) -> CostRange {
        CostRange {
            min: scale(self.min, factor),
            max: scale(self.max, factor),
        }
    }

    /// The smallest range that includes both.
    pub fn union(self, other: CostRange) -> CostRange {
        CostRange {
            min: self.min.min(other.min),
            max: self.max.max(other.max),
        }
    }
}

/// `n` times `factor`, rounded up.
pub fn scale(n: u64, factor: f64) -> u64 {
    // The cast saturates.
    (n as f64 * factor).ceil() as u64
}

/// The estimated cost of a call, and the size of its result if it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallEstimate {
    /// The cost of the call without its arguments.
    pub cost: CostRange,
    /// The size of the result.
    pub result: Option<CostRange>,
}

impl CallEstimate {
    /// A cost with a result of unknown size.
    pub fn cost(cost: CostRange) -> CallEstimate {
        CallEstimate { cost, result: None }
    }

    /// A cost with a result of a known size.
    pub fn sized(cost: CostRange, result: CostRange) -> CallEstimate {
        CallEstimate {
            cost,
            result: Some(result),
        }
    }
}

/// A node whose size is estimated.
#[derive(Debug, Clone)]
pub struct AstNode<'e> {
    /// Its path in the data: a variable, then field names, `@items`, `@keys`, `@values` or
    /// `@indices`. Empty if it is computed.
    pub path: Vec<Str>,
    /// The type of the node.
    pub kind: Type,
    /// The expression of the node, if it has one.
    pub expr: Option<&'e Expr>,
    /// The size, as far as the expression determines it.
    pub computed: Option<CostRange>,
}

/// Estimates the sizes of the input, usually from a schema.
pub trait SizeEstimator {
    /// The bounds of the size of a node in the data.
    fn size(&self, node: &AstNode) -> Option<CostRange>;
}

/// Estimates no sizes.
pub struct UnknownSizes;

impl SizeEstimator for UnknownSizes {
    fn size(&self, _node: &AstNode) -> Option<CostRange> {
        None
    }
}

impl Sizing<'_> {
    /// The bounds of the size of a node.
    pub fn size(&self, node: &AstNode) -> CostRange {
        node.computed
            .or_else(|| self.0.size(node))
            .unwrap_or(CostRange::UNKNOWN)
    }

    /// A node for the items of a list; `None` if the type has no parameter.
    pub fn items<'e>(&self, list: &AstNode<'e>) -> Option<AstNode<'e>> {
        let kind = list.kind.parameters().first().map(|kind| (*kind).clone())?;
        let mut path = list.path.clone();
        if !path.is_empty() {
            path.push("@items".into());
        }
        Some(AstNode {
            path,
            kind,
            expr: None,
            computed: None,
        })
    }
}
