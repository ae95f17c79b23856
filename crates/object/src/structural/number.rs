//! Validation of numbers, with the arithmetic of Go's validator.
//!
//! Kubernetes: an integer is compared with truncated bounds, any other number as a 64-bit float
//! (kube-openapi, validate/values.go).

use std::cmp::Ordering::{self, Equal, Greater, Less};

use super::node::{NodeCheck, NodeType, SchemaNode};
use super::result::ValidationOutcome;
use super::validate::Validator;
use crate::patch::go_float;
use mizzen_value::{Value, go_int};

impl Validator<'_> {
    pub(super) fn number(&self, node: &SchemaNode, value: &Value, outcome: &mut ValidationOutcome) {
        let range = NumberRange::new(node);
        if !range.holds(value) {
            outcome.invalid(
                self.nowhere(),
                "\"\"",
                &range.complaint("Checked", &self.path),
            );
        }
        for check in &node.checks {
            match check {
                NodeCheck::MultipleOf(factor) => self.multiple(&range, *factor, value, outcome),
                NodeCheck::Minimum(limit, open) => {
                    let bound = NumberBound::new("Minimum boundary", Greater, *limit, *open);
                    self.bound(&range, &bound, value, outcome);
                }
                NodeCheck::Maximum(limit, open) => {
                    let bound = NumberBound::new("Maximum boundary", Less, *limit, *open);
                    self.bound(&range, &bound, value, outcome);
                }
                _ => {}
            }
        }
        outcome.matches += 1;
    }

    fn bound(
        &self,
        range: &NumberRange,
        bound: &NumberBound,
        value: &Value,
        outcome: &mut ValidationOutcome,
    ) {
        let limit = bound.limit;
        let fits = range.holds_float(limit);
        if !fits {
            outcome.invalid(
                self.nowhere(),
                "\"\"",
                &range.complaint(bound.name, &self.path),
            );
        }
        let (order, shown) = match value {
            Value::Int(int) if fits => {
                let limit = go_int(limit);
                (Some(int.cmp(&limit)), limit.to_string())
            }
            other => (
                other.as_f64().unwrap_or_default().partial_cmp(&limit),
                go_float(limit),
            ),
        };
        let holds = |order| order == bound.side || order == Equal && !bound.exclusive;
        if !order.is_some_and(holds) {
            let words = match (bound.side, bound.exclusive) {
                (Greater, true) => "greater than",
                (Greater, false) => "greater than or equal to",
                (_, true) => "less than",
                (_, false) => "less than or equal to",
            };
            let detail = format!("{} in body should be {words} {shown}", self.path);
            outcome.invalid(self.field(), &shown_number(value, fits), &detail);
        }
    }

    fn multiple(
        &self,
        range: &NumberRange,
        factor: f64,
        value: &Value,
        outcome: &mut ValidationOutcome,
    ) {
        let fits = range.holds_float(factor);
        if !fits {
            outcome.invalid(
                self.nowhere(),
                "\"\"",
                &range.complaint("MultipleOf", &self.path),
            );
        }
        let (positive, holds, shown) = match value {
            Value::Int(int) if fits => {
                let factor = go_int(factor);
                (
                    factor > 0,
                    factor > 0 && int % factor == 0,
                    factor.to_string(),
                )
            }
            other => {
                let number = other.as_f64().unwrap_or_default();
                let ratio = if factor < 1.0 {
                    1.0 / factor * number
                } else {
                    number / factor
                };
                (factor > 0.0, is_integer(ratio), go_float(factor))
            }
        };
        let path = &self.path;
        if !positive {
            let detail = format!("factor MultipleOf declared for {path} must be positive: {shown}");
            outcome.invalid(self.field(), &shown, &detail);
        } else if !holds {
            let detail = format!("{path} in body should be a multiple of {shown}");
            outcome.invalid(self.field(), &shown_number(value, fits), &detail);
        }
    }
}

/// A `minimum` or `maximum`.
struct NumberBound {
    name: &'static str,
    /// The side of the limit on which numbers are valid.
    side: Ordering,
    limit: f64,
    exclusive: bool,
}

impl NumberBound {
    fn new(name: &'static str, side: Ordering, limit: f64, exclusive: bool) -> NumberBound {
        NumberBound {
            name,
            side,
            limit,
            exclusive,
        }
    }
}

/// The range of a type and its format.
struct NumberRange {
    ty: NodeType,
    format: &'static str,
}

impl NumberRange {
    fn new(node: &SchemaNode) -> NumberRange {
        let format = if matches!(node.ty, NodeType::Integer | NodeType::Number) {
            node.format()
        } else {
            ""
        };
        NumberRange {
            ty: node.ty,
            format,
        }
    }

    fn holds(&self, value: &Value) -> bool {
        match value {
            Value::Int(int) if self.ty == NodeType::Integer => {
                self.format != "int32" || i32::try_from(*int).is_ok()
            }
            other => self.holds_float(other.as_f64().unwrap_or_default()),
        }
    }

    fn holds_float(&self, number: f64) -> bool {
        let whole = number.fract() == 0.0;
        match (self.ty, self.format) {
            (NodeType::Integer, "int32") => {
                whole && (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&number)
            }
            (NodeType::Integer, _) => whole && (i64::MIN as f64..i64::MAX as f64).contains(&number),
            (NodeType::Number, "float") => number.abs() <= f64::from(f32::MAX),
            _ => true,
        }
    }

    fn complaint(&self, what: &str, path: &str) -> String {
        let ty = self.ty.words();
        match self.format {
            "" => format!("{what} value must be of type {ty} (default format) in {path}"),
            format => format!("{what} value must be of type {ty} with format {format} in {path}"),
        }
    }
}

/// Go prints integers and floats differently.
fn shown_number(value: &Value, whole: bool) -> String {
    match value {
        Value::Int(int) if whole => int.to_string(),
        other => go_float(other.as_f64().unwrap_or_default()),
    }
}

/// Whether a float is an integer; small rounding errors are ignored.
pub(super) fn is_integer(number: f64) -> bool {
    const LARGEST: f64 = ((1_u64 << 53) - 1) as f64;
    if !number.is_finite() || number.abs() > LARGEST {
        return false;
    }
    if number == number.trunc() {
        return true;
    }
    // Kubernetes: a negative number is compared as an unsigned one (go-openapi/swag).
    let near = go_int(number) as u64 as f64;
    let difference = (number - near).abs();
    near != 0.0 && difference / (number.abs() + near) < 1e-9
}
