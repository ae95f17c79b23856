//! Between which bounds will something be? Sizes and costs, before an expression runs.

use super::ast::Expr;
use super::function::Sizing;
use super::types::Type;
use mizzen_value::Str;

/// The cost of going through one character or octet.
pub const TRAVERSAL: f64 = 0.1;
/// The cost of a character of a regular expression.
pub const REGEX: f64 = 0.25;
/// The cost of making a list.
pub const LIST: u64 = 10;
/// The cost of making a map.
pub const MAP: u64 = 30;
/// The cost of making an object.
pub const STRUCT: u64 = 40;

/// Bounds of a size or of a cost. Nothing overflows: the greatest number means "no bound".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// At least.
    pub min: u64,
    /// At most.
    pub max: u64,
}

impl Range {
    /// Nothing.
    pub const ZERO: Range = Range::fixed(0);
    /// One.
    pub const ONE: Range = Range::fixed(1);
    /// Anything.
    pub const UNKNOWN: Range = Range {
        min: 0,
        max: u64::MAX,
    };

    /// Exactly so much.
    pub const fn fixed(n: u64) -> Range {
        Range { min: n, max: n }
    }

    /// The sum.
    #[expect(
        clippy::should_implement_trait,
        reason = "`+` would hide that nothing overflows"
    )]
    pub fn add(self, other: Range) -> Range {
        Range {
            min: self.min.saturating_add(other.min),
            max: self.max.saturating_add(other.max),
        }
    }

    /// The product.
    pub fn multiply(self, other: Range) -> Range {
        Range {
            min: self.min.saturating_mul(other.min),
            max: self.max.saturating_mul(other.max),
        }
    }

    /// So many times, rounded up.
    pub fn scale(self, factor: f64) -> Range {
        Range {
            min: scale(self.min, factor),
            max: scale(self.max, factor),
        }
    }

    /// What includes both.
    pub fn union(self, other: Range) -> Range {
        Range {
            min: self.min.min(other.min),
            max: self.max.max(other.max),
        }
    }
}

/// `n` times `factor`, rounded up.
pub fn scale(n: u64, factor: f64) -> u64 {
    // A cast of what is too great yields the greatest number.
    (n as f64 * factor).ceil() as u64
}

/// What a call costs, and the size of its result where it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallEstimate {
    /// What the call itself costs, without its arguments.
    pub cost: Range,
    /// The size of what it yields.
    pub result: Option<Range>,
}

impl CallEstimate {
    /// A cost, and a result of unknown size.
    pub fn cost(cost: Range) -> CallEstimate {
        CallEstimate { cost, result: None }
    }

    /// A cost, and a result of a known size.
    pub fn sized(cost: Range, result: Range) -> CallEstimate {
        CallEstimate {
            cost,
            result: Some(result),
        }
    }
}

/// An expression of which the size is asked.
#[derive(Debug, Clone)]
pub struct Node<'e> {
    /// Where it is in the data: a variable, then names of fields, `@items`, `@keys`, `@values` or `@indices`.
    /// Empty if it is nowhere.
    pub path: Vec<Str>,
    /// Its type.
    pub kind: Type,
    /// The expression itself, if it is one.
    pub expr: Option<&'e Expr>,
    /// Its size, as far as the expression tells.
    pub computed: Option<Range>,
}

/// What the caller of an estimate knows about sizes, from a schema.
pub trait Sizes {
    /// The bounds of the size of something in the data.
    fn size(&self, node: &Node) -> Option<Range>;
}

/// Nothing is known about sizes.
pub struct NoSizes;

impl Sizes for NoSizes {
    fn size(&self, _node: &Node) -> Option<Range> {
        None
    }
}

impl Sizing<'_> {
    /// The bounds of the size of a node.
    pub fn of(&self, node: &Node) -> Range {
        node.computed
            .or_else(|| self.0.size(node))
            .unwrap_or(Range::UNKNOWN)
    }

    /// A node for the items of a list; `None` if it is something without a parameter.
    pub fn items<'e>(&self, list: &Node<'e>) -> Option<Node<'e>> {
        let kind = list.kind.parameters().first().map(|kind| (*kind).clone())?;
        let mut path = list.path.clone();
        if !path.is_empty() {
            path.push("@items".into());
        }
        Some(Node {
            path,
            kind,
            expr: None,
            computed: None,
        })
    }
}
