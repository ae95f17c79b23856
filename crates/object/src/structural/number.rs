//! Numbers: ranges, bounds and multiples, with the arithmetic of Go's validator.
//!
//! Kubernetes: a whole number is compared with bounds cut to whole numbers, any other as a 64-bit float
//! (kube-openapi, validate/values.go).

use std::cmp::Ordering::{self, Equal, Greater, Less};

use super::node::{Check, Node, Type};
use super::result::Outcome;
use super::validate::Validator;
use crate::patch::go_float;
use mizzen_value::{Value, go_int};

impl Validator<'_> {
    /// Everything that is said of a number, which `value` is.
    pub(super) fn number(&self, node: &Node, value: &Value, outcome: &mut Outcome) {
        let range = Range::of(node);
        if !range.holds(value) {
            outcome.invalid(
                self.nowhere(),
                "\"\"",
                &range.complaint("Checked", &self.path),
            );
        }
        for check in &node.checks {
            match check {
                Check::MultipleOf(factor) => self.multiple(&range, *factor, value, outcome),
                Check::Minimum(bound, open) => {
                    let words = if *open {
                        "greater than"
                    } else {
                        "greater than or equal to"
                    };
                    let held = |order| order == Greater || order == Equal && !open;
                    self.bound(
                        &range,
                        "Minimum boundary",
                        *bound,
                        words,
                        held,
                        value,
                        outcome,
                    );
                }
                Check::Maximum(bound, open) => {
                    let words = if *open {
                        "less than"
                    } else {
                        "less than or equal to"
                    };
                    let held = |order| order == Less || order == Equal && !open;
                    self.bound(
                        &range,
                        "Maximum boundary",
                        *bound,
                        words,
                        held,
                        value,
                        outcome,
                    );
                }
                _ => {}
            }
        }
        outcome.matches += 1;
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "minimum and maximum differ in all of them"
    )]
    fn bound(
        &self,
        range: &Range,
        what: &str,
        bound: f64,
        words: &str,
        held: impl Fn(Ordering) -> bool,
        value: &Value,
        outcome: &mut Outcome,
    ) {
        let fits = range.holds_float(bound);
        if !fits {
            outcome.invalid(self.nowhere(), "\"\"", &range.complaint(what, &self.path));
        }
        let (order, shown) = match value {
            Value::Int(int) if fits => {
                let bound = go_int(bound);
                (Some(int.cmp(&bound)), bound.to_string())
            }
            other => (
                other.as_f64().unwrap_or_default().partial_cmp(&bound),
                go_float(bound),
            ),
        };
        if !order.is_some_and(held) {
            let detail = format!("{} in body should be {words} {shown}", self.path);
            outcome.invalid(self.field(), &shown_number(value, fits), &detail);
        }
    }

    fn multiple(&self, range: &Range, factor: f64, value: &Value, outcome: &mut Outcome) {
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

/// Which numbers a type and its format can hold.
struct Range {
    ty: Type,
    format: &'static str,
}

impl Range {
    fn of(node: &Node) -> Range {
        let format = if matches!(node.ty, Type::Integer | Type::Number) {
            node.format()
        } else {
            ""
        };
        Range {
            ty: node.ty,
            format,
        }
    }

    fn holds(&self, value: &Value) -> bool {
        match value {
            Value::Int(int) if self.ty == Type::Integer => {
                self.format != "int32" || i32::try_from(*int).is_ok()
            }
            other => self.holds_float(other.as_f64().unwrap_or_default()),
        }
    }

    fn holds_float(&self, number: f64) -> bool {
        let whole = number.fract() == 0.0;
        match (self.ty, self.format) {
            (Type::Integer, "int32") => {
                whole && (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&number)
            }
            (Type::Integer, _) => whole && (i64::MIN as f64..i64::MAX as f64).contains(&number),
            (Type::Number, "float") => number.abs() <= f64::from(f32::MAX),
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

/// Go tells a whole number from a float by how it is compared.
fn shown_number(value: &Value, whole: bool) -> String {
    match value {
        Value::Int(int) if whole => int.to_string(),
        other => go_float(other.as_f64().unwrap_or_default()),
    }
}

/// Whether a float is meant as a whole number: small errors of arithmetic do not count.
pub(super) fn is_integer(number: f64) -> bool {
    const LARGEST: f64 = ((1_u64 << 53) - 1) as f64;
    if !number.is_finite() || number.abs() > LARGEST {
        return false;
    }
    if number == number.trunc() {
        return true;
    }
    // Kubernetes: a negative number is compared with what it is as an unsigned one (go-openapi/swag).
    let near = go_int(number) as u64 as f64;
    let difference = (number - near).abs();
    near != 0.0 && difference / (number.abs() + near) < 1e-9
}
