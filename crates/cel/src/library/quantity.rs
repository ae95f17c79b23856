//! The quantity library.

use std::cmp::Ordering;

use super::{cost, opaque, text};
use crate::{CallSite, EvalError, Library, Opaque, Outcome, Type, Value};
use mizzen_value::quantity::{Quantity, QuantityError, QuantityFormat};

/// A quantity.
///
/// Kubernetes: whether it is an integer depends on its notation, not on its amount: `1000m` is not,
/// nor is `100000Gi` (apimachinery, resource/quantity.go, AsInt64). So upstream's 64-bit form is
/// kept, too.
#[derive(Debug, Clone, Copy)]
pub(super) struct QuantityVal {
    quantity: Quantity,
    short: Option<Short>,
}

/// A 64-bit number and its decimal exponent.
#[derive(Debug, Clone, Copy)]
struct Short {
    value: i64,
    scale: i32,
}

impl QuantityVal {
    pub(super) fn parse(text: &str) -> Result<QuantityVal, QuantityError> {
        if text.trim() != text {
            return Err(QuantityError::Format);
        }
        Ok(QuantityVal {
            quantity: Quantity::parse(text)?,
            short: Short::parse(text),
        })
    }

    fn from_int(value: i64) -> QuantityVal {
        QuantityVal {
            quantity: Quantity::from_int(value, QuantityFormat::Exponent),
            short: Some(Short { value, scale: 0 }),
        }
    }

    fn add(&self, other: &QuantityVal) -> QuantityVal {
        let short = self
            .short
            .zip(other.short)
            .and_then(|(left, right)| left.add(right));
        QuantityVal {
            quantity: self.quantity.add(&other.quantity),
            short,
        }
    }

    fn negated(&self) -> QuantityVal {
        let negate = |short: Short| {
            Some(Short {
                value: short.value.checked_neg()?,
                ..short
            })
        };
        QuantityVal {
            quantity: self.quantity.negated(),
            short: self.short.and_then(negate),
        }
    }

    fn as_int(&self) -> Option<i64> {
        let short = self.short.filter(|short| short.scale >= 0)?;
        short.shifted(short.scale)
    }
}

impl Short {
    fn parse(text: &str) -> Option<Short> {
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        let (whole, rest) = split_digits(unsigned);
        let (fraction, suffix) = rest.strip_prefix('.').map_or(("", rest), split_digits);
        let whole = whole.trim_start_matches('0');
        let n_digits = whole.len().max(1) + fraction.len();
        const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
        const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
        let binary = BINARY.iter().position(|known| *known == suffix);
        let (factor, scale) = match binary.map(|index| (index as u32 + 1) * 10) {
            Some(bits) if fraction.is_empty() && n_digits + bits as usize * 3 / 10 < 15 => {
                (1 << bits, 0)
            }
            Some(_) => return None,
            None => {
                let scale: i32 = match DECIMAL.iter().position(|known| *known == suffix) {
                    Some(index) => (index as i32 - 3) * 3,
                    None => suffix.strip_prefix(['e', 'E'])?.parse().ok()?,
                };
                (1, scale.checked_sub(i32::try_from(fraction.len()).ok()?)?)
            }
        };
        if n_digits > 18 || scale < -9 {
            return None;
        }
        let value: i64 = format!("0{whole}{fraction}").parse().ok()?;
        let sign = if text.starts_with('-') { -1 } else { 1 };
        Some(Short {
            value: value.checked_mul(factor)? * sign,
            scale,
        })
    }

    fn shifted(&self, by: i32) -> Option<i64> {
        self.value
            .checked_mul(10i64.checked_pow(by.try_into().ok()?)?)
    }

    fn add(self, other: Short) -> Option<Short> {
        if self.value == 0 || other.value == 0 {
            return Some(if self.value == 0 { other } else { self });
        }
        let scale = self.scale.min(other.scale);
        let value = self
            .shifted(self.scale - scale)?
            .checked_add(other.shifted(other.scale - scale)?)?;
        Some(Short { value, scale })
    }
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(
        text.bytes()
            .position(|byte| !byte.is_ascii_digit())
            .unwrap_or(text.len()),
    )
}

impl Opaque for QuantityVal {
    fn type_name(&self) -> &str {
        "kubernetes.Quantity"
    }

    fn equals(&self, other: &dyn Opaque) -> bool {
        other
            .downcast::<QuantityVal>()
            .is_some_and(|other| other.quantity == self.quantity)
    }
}

/// The functions of `quantity(…)`.
pub(super) fn library() -> Library {
    use Type::{Bool, Double, Int, String};
    let amount = || Type::object("kubernetes.Quantity");
    let functions = functions! {
        "quantity" {
            global "string_to_quantity" (String) -> amount() =>
                |_, it| QuantityVal::parse(text(it, 0)?)
                    .map(Value::opaque)
                    .map_err(|error| EvalError::new(error.to_string())),
                costs cost::traverse, cost::estimate_traverse;
        }
        "isQuantity" {
            global "is_quantity_string" (String) -> Bool =>
                |_, it| Ok(QuantityVal::parse(text(it, 0)?).is_ok().into()),
                costs cost::traverse, cost::estimate_traverse;
        }
        // Kubernetes: it is declared as a global function (library/quantity.go).
        "sign" { global "quantity_sign" (amount()) -> Int => sign; }
        "isGreaterThan" {
            member "quantity_is_greater_than" (amount(), amount()) -> Bool =>
                |_, it| Ok(ordering(it)?.is_gt().into());
        }
        "isLessThan" {
            member "quantity_is_less_than" (amount(), amount()) -> Bool =>
                |_, it| Ok(ordering(it)?.is_lt().into());
        }
        "compareTo" {
            member "quantity_compare_to" (amount(), amount()) -> Int =>
                |_, it| Ok(Value::Int(ordering(it)? as i64));
        }
        "asApproximateFloat" {
            member "quantity_get_float" (amount()) -> Double =>
                |_, it| Ok(this(it)?.quantity.as_f64().into());
        }
        "asInteger" { member "quantity_get_int" (amount()) -> Int => |_, it| {
                let integer = this(it)?.as_int().map(Value::Int);
                integer.ok_or_else(|| EvalError::new("cannot convert value to integer"))
            };
        }
        "isInteger" {
            member "quantity_is_integer" (amount()) -> Bool =>
                |_, it| Ok(this(it)?.as_int().is_some().into());
        }
        "add" {
            member "quantity_add" (amount(), amount()) -> amount() => add;
            member "quantity_add_int" (amount(), Int) -> amount() => add;
        }
        "sub" {
            member "quantity_sub" (amount(), amount()) -> amount() => sub;
            member "quantity_sub_int" (amount(), Int) -> amount() => sub;
        }
    };
    Library::new("kubernetes.quantity", (1, 28), functions)
}

fn sign<'a>(_: &CallSite, arguments: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::Int(
        this(arguments)?.quantity.cmp(&Quantity::default()) as i64,
    ))
}

fn this<'v>(arguments: &'v [Value]) -> Result<&'v QuantityVal, EvalError> {
    opaque(arguments, 0)
}

fn ordering(arguments: &[Value]) -> Result<Ordering, EvalError> {
    Ok(this(arguments)?
        .quantity
        .cmp(&opaque::<QuantityVal>(arguments, 1)?.quantity))
}

/// The second argument: a quantity or an integer.
fn other(arguments: &[Value]) -> Result<QuantityVal, EvalError> {
    match arguments.get(1) {
        Some(Value::Int(int)) => Ok(QuantityVal::from_int(*int)),
        _ => opaque(arguments, 1).copied(),
    }
}

fn add<'a>(_: &CallSite, arguments: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::opaque(this(arguments)?.add(&other(arguments)?)))
}

fn sub<'a>(_: &CallSite, arguments: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::opaque(
        this(arguments)?.add(&other(arguments)?.negated()),
    ))
}
