//! `quantity(…)`: amounts with a suffix that can be compared and added.

use std::cmp::Ordering;

use super::{cost, opaque, text};
use crate::{EvalError, Library, Opaque, Outcome, Site, Type, Value};
use mizzen_value::quantity::{Format, Quantity, QuantityError};

/// An amount.
///
/// Kubernetes: whether it is called a whole number depends on how it was written, not on what it is: `1000m` is
/// none, nor is `100000Gi` (apimachinery, resource/quantity.go, AsInt64). So the short form that upstream would
/// keep it in is kept too.
#[derive(Debug, Clone, Copy)]
pub(super) struct Amount {
    quantity: Quantity,
    short: Option<Short>,
}

/// A number of 64 bits and the power of ten that it is to be multiplied with.
#[derive(Debug, Clone, Copy)]
struct Short {
    value: i64,
    scale: i32,
}

impl Amount {
    /// Reads an amount.
    pub(super) fn parse(text: &str) -> Result<Amount, QuantityError> {
        if text.trim() != text {
            return Err(QuantityError::Format);
        }
        Ok(Amount {
            quantity: Quantity::parse(text)?,
            short: Short::parse(text),
        })
    }

    fn from_int(value: i64) -> Amount {
        Amount {
            quantity: Quantity::from_int(value, Format::Exponent),
            short: Some(Short { value, scale: 0 }),
        }
    }

    fn add(&self, other: &Amount) -> Amount {
        let short = self
            .short
            .zip(other.short)
            .and_then(|(left, right)| left.add(right));
        Amount {
            quantity: self.quantity.add(&other.quantity),
            short,
        }
    }

    fn negated(&self) -> Amount {
        let negate = |short: Short| {
            Some(Short {
                value: short.value.checked_neg()?,
                ..short
            })
        };
        Amount {
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
        let (factor, scale) = match suffix_bits(suffix) {
            Some(bits) if fraction.is_empty() && n_digits + bits as usize * 3 / 10 < 15 => {
                (1 << bits, 0)
            }
            Some(_) => return None,
            None => (
                1,
                suffix_scale(suffix)?.checked_sub(i32::try_from(fraction.len()).ok()?)?,
            ),
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

fn suffix_bits(suffix: &str) -> Option<u32> {
    let index = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]
        .iter()
        .position(|known| *known == suffix)?;
    Some((index as u32 + 1) * 10)
}

fn suffix_scale(suffix: &str) -> Option<i32> {
    const SUFFIXES: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
    match SUFFIXES.iter().position(|known| *known == suffix) {
        Some(index) => Some((index as i32 - 3) * 3),
        None => suffix.strip_prefix(['e', 'E'])?.parse().ok(),
    }
}

impl Opaque for Amount {
    fn type_name(&self) -> &str {
        "kubernetes.Quantity"
    }

    fn equals(&self, other: &dyn Opaque) -> bool {
        other
            .downcast::<Amount>()
            .is_some_and(|other| other.quantity == self.quantity)
    }
}

/// `quantity(…)` and what can be done with one.
pub(super) fn library() -> Library {
    use Type::{Bool, Double, Int, String};
    let amount = || Type::object("kubernetes.Quantity");
    let functions = functions! {
        "quantity" {
            global "string_to_quantity" (String) -> amount() => from_text,
                costs cost::traverse, cost::estimate_traverse;
        }
        "isQuantity" {
            global "is_quantity_string" (String) -> Bool =>
                |_, it| Ok(Amount::parse(text(it, 0)?).is_ok().into()),
                costs cost::traverse, cost::estimate_traverse;
        }
        // Kubernetes: it is declared as a function, not as a member (library/quantity.go).
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
        "asInteger" { member "quantity_get_int" (amount()) -> Int => as_integer; }
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

fn from_text<'a>(_: &Site, arguments: &[Value<'a>]) -> Outcome<'a> {
    let amount = Amount::parse(text(arguments, 0)?);
    amount
        .map(Value::opaque)
        .map_err(|error| EvalError::new(error.to_string()))
}

fn sign<'a>(_: &Site, arguments: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::Int(
        this(arguments)?.quantity.cmp(&Quantity::default()) as i64,
    ))
}

fn as_integer<'a>(_: &Site, arguments: &[Value<'a>]) -> Outcome<'a> {
    let whole = this(arguments)?.as_int();
    whole
        .map(Value::Int)
        .ok_or_else(|| EvalError::new("cannot convert value to integer"))
}

fn this<'v>(arguments: &'v [Value]) -> Result<&'v Amount, EvalError> {
    opaque(arguments, 0)
}

fn ordering(arguments: &[Value]) -> Result<Ordering, EvalError> {
    Ok(this(arguments)?
        .quantity
        .cmp(&opaque::<Amount>(arguments, 1)?.quantity))
}

/// The second argument: an amount or a whole number.
fn other(arguments: &[Value]) -> Result<Amount, EvalError> {
    match arguments.get(1) {
        Some(Value::Int(int)) => Ok(Amount::from_int(*int)),
        _ => opaque(arguments, 1).copied(),
    }
}

fn add<'a>(_: &Site, arguments: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::opaque(this(arguments)?.add(&other(arguments)?)))
}

fn sub<'a>(_: &Site, arguments: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::opaque(
        this(arguments)?.add(&other(arguments)?.negated()),
    ))
}
