//! Resource quantities: `100m`, `1Gi`, `12e6`.
//!
//! A quantity is an integer times a power of ten, and remembers the format of its suffix. Exponents
//! are compared and reduced, never multiplied out, so `1e2147483647` costs what `1` costs.
//!
//! Invariant: at most 35 significant digits are kept, and nothing finer than a nano. The rest is
//! rounded up, so that a request greater than zero never becomes zero.

use std::cmp::Ordering;
use std::fmt;

/// The canonical form of a quantity. Surrounding white space is ignored, as upstream does in JSON.
pub fn canonical(text: &str) -> Result<String, QuantityError> {
    let text = text.trim();
    let parts = QuantityParts::split(text)?;
    let quantity = parts.quantity()?;
    Ok(if parts.is_canonical() {
        text.into()
    } else {
        quantity.to_string()
    })
}

/// The canonical form of a quantity that was written as a JSON number.
pub fn canonical_number(literal: &str) -> Result<String, QuantityError> {
    canonical(literal)
}

/// Why a string is not a quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// It does not match the syntax.
    #[error(
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    )]
    Format,
    /// It has no number.
    #[error("unable to parse numeric part of quantity")]
    Number,
    /// Its suffix is unknown.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

/// The format of a quantity's suffix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum QuantityFormat {
    /// `12M`, powers of 1000.
    #[default]
    Decimal,
    /// `12Mi`, powers of 1024.
    Binary,
    /// `12e6`.
    Exponent,
}

/// An exact amount.
#[derive(Debug, Clone, Copy, Default)]
pub struct Quantity {
    mantissa: i128,
    exponent: i32,
    /// The format in which it is printed.
    pub format: QuantityFormat,
}

const NANO: i32 = -9;
const MILLI: i32 = -3;
/// An `i128` holds any number of this many digits, with room for sums.
const MAX_DIGITS: u32 = 35;

impl Quantity {
    /// Parses a quantity.
    pub fn parse(text: &str) -> Result<Quantity, QuantityError> {
        QuantityParts::split(text.trim())?.quantity()
    }

    /// Parses a quantity that was validated before; anything else is zero.
    pub fn parse_or_zero(text: &str) -> Quantity {
        Quantity::parse(text).unwrap_or_default()
    }

    /// An integer.
    pub fn from_int(value: i64, format: QuantityFormat) -> Quantity {
        Quantity {
            mantissa: value.into(),
            exponent: 0,
            format,
        }
    }

    /// An amount in thousandths.
    pub fn from_milli(value: i64, format: QuantityFormat) -> Quantity {
        Quantity {
            mantissa: value.into(),
            exponent: MILLI,
            format,
        }
    }

    /// Whether it is zero.
    pub fn is_zero(&self) -> bool {
        self.mantissa == 0
    }

    /// Whether it is less than zero.
    pub fn is_negative(&self) -> bool {
        self.mantissa < 0
    }

    /// The amount as an integer, rounded away from zero.
    pub fn value(&self) -> i64 {
        self.scaled(0)
    }

    /// The amount in thousandths, rounded away from zero.
    pub fn milli_value(&self) -> i64 {
        self.scaled(MILLI)
    }

    /// Whether it is an integer.
    pub fn is_whole(&self) -> bool {
        self.exponent >= 0 || self.with_exponent(0).is_some_and(|whole| whole == *self)
    }

    /// The nearest `f64`.
    pub fn as_f64(&self) -> f64 {
        self.mantissa as f64 * 10f64.powi(self.exponent)
    }

    /// The amount rounded up to thousandths; `None` if it needs no rounding.
    pub fn rounded_to_milli(&self) -> Option<Quantity> {
        if self.exponent >= MILLI {
            None
        } else {
            self.with_exponent(MILLI)
        }
    }

    /// The sum, in the format of `self` unless that is zero.
    pub fn add(&self, other: &Quantity) -> Quantity {
        let format = if self.is_zero() {
            other.format
        } else {
            self.format
        };
        if self.is_zero() || other.is_zero() {
            let sum = if self.is_zero() { other } else { self };
            return Quantity { format, ..*sum };
        }
        let (low, high) = if self.exponent <= other.exponent {
            (self, other)
        } else {
            (other, self)
        };
        // If the exponents are too far apart for one number, the smaller summand is rounded.
        let high = high.trimmed().lowered(low.exponent);
        let low = low.with_exponent(high.exponent).unwrap_or(*low);
        let mantissa = high.mantissa.saturating_add(low.mantissa);
        Quantity {
            mantissa,
            exponent: high.exponent,
            format,
        }
    }

    /// The difference, in the format that [`Quantity::add`] would choose.
    pub fn sub(&self, other: &Quantity) -> Quantity {
        self.add(&other.negated())
    }

    /// The negated amount.
    pub fn negated(&self) -> Quantity {
        Quantity {
            mantissa: self.mantissa.saturating_neg(),
            ..*self
        }
    }

    fn scaled(&self, exponent: i32) -> i64 {
        let limit = if self.is_negative() {
            i64::MIN
        } else {
            i64::MAX
        };
        match self.with_exponent(exponent) {
            Some(scaled) => i64::try_from(scaled.mantissa).unwrap_or(limit),
            None => limit,
        }
    }

    /// The amount as a multiple of 10^`exponent`, rounded away from zero; `None` on overflow.
    fn with_exponent(&self, exponent: i32) -> Option<Quantity> {
        let shift = self.exponent.abs_diff(exponent);
        let mantissa = match (self.exponent >= exponent, 10i128.checked_pow(shift)) {
            _ if self.is_zero() => 0,
            (true, power) => self.mantissa.checked_mul(power?)?,
            (false, Some(power)) => divide_away(self.mantissa, power),
            (false, None) => self.mantissa.signum(),
        };
        Some(Quantity {
            mantissa,
            exponent,
            format: self.format,
        })
    }

    /// Moves factors of ten from the mantissa into the exponent.
    fn trimmed(mut self) -> Quantity {
        while self.mantissa != 0 && self.mantissa % 10 == 0 {
            let Some(exponent) = self.exponent.checked_add(1) else {
                break;
            };
            self.mantissa /= 10;
            self.exponent = exponent;
        }
        self
    }

    /// Lowers the exponent to `exponent`, or as far as the mantissa has room.
    fn lowered(mut self, exponent: i32) -> Quantity {
        while self.exponent > exponent && n_digits(self.mantissa) < MAX_DIGITS {
            self.mantissa *= 10;
            self.exponent -= 1;
        }
        self
    }

    /// The order of magnitude: digits before the decimal point.
    fn magnitude(&self) -> i64 {
        i64::from(n_digits(self.mantissa)) + i64::from(self.exponent)
    }
}

fn n_digits(mantissa: i128) -> u32 {
    mantissa
        .unsigned_abs()
        .checked_ilog10()
        .map_or(0, |log| log + 1)
}

fn divide_away(number: i128, divisor: i128) -> i128 {
    let quotient = number / divisor;
    if number % divisor == 0 {
        quotient
    } else {
        quotient + number.signum()
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Quantity) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Quantity) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Compares amounts; the format is ignored.
impl Ord for Quantity {
    fn cmp(&self, other: &Quantity) -> Ordering {
        let by_sign = self.mantissa.signum().cmp(&other.mantissa.signum());
        if by_sign != Ordering::Equal || self.is_zero() {
            return by_sign;
        }
        let (left, right) = (self.trimmed(), other.trimmed());
        let by_size = left.magnitude().cmp(&right.magnitude()).then_with(|| {
            let exponent = left.exponent.min(right.exponent);
            let (left, right) = (
                left.lowered(exponent).mantissa,
                right.lowered(exponent).mantissa,
            );
            left.unsigned_abs().cmp(&right.unsigned_abs())
        });
        if self.is_negative() {
            by_size.reverse()
        } else {
            by_size
        }
    }
}

/// The canonical form: no fraction, and the largest suffix that loses nothing.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        if self.is_zero() {
            return f.write_str("0");
        }
        if let Some(whole) = self.as_binary() {
            let (mut number, mut steps) = (whole, 0);
            while number % 1024 == 0 {
                number /= 1024;
                steps += 1;
            }
            let suffixes = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
            return write!(f, "{number}{}", suffixes.get(steps).unwrap_or(&""));
        }
        let (mantissa, exponent) = self.in_thousands();
        match self.format {
            QuantityFormat::Exponent if exponent != 0 => write!(f, "{mantissa}e{exponent}"),
            QuantityFormat::Exponent => write!(f, "{mantissa}"),
            _ => {
                // Kubernetes: beyond `E` there is no suffix, and upstream prints none
                // (resource/suffix.go).
                let known = |(_, power): &&(&str, i32)| i64::from(*power) == exponent;
                let suffix = DECIMAL.iter().find(known).map_or("", |(suffix, _)| suffix);
                write!(f, "{mantissa}{suffix}")
            }
        }
    }
}

impl Quantity {
    /// The integer to print with a binary suffix, if such a suffix fits.
    fn as_binary(&self) -> Option<i128> {
        if self.format != QuantityFormat::Binary || self.is_below_1024() {
            return None;
        }
        let whole = self.with_exponent(0)?;
        (whole == *self).then_some(whole.mantissa)
    }

    fn is_below_1024(&self) -> bool {
        let limit = Quantity::from_int(1024, QuantityFormat::Binary);
        *self < limit && *self > limit.negated()
    }

    /// Mantissa and exponent, with the largest exponent that is a multiple of three.
    fn in_thousands(&self) -> (i128, i64) {
        let Quantity {
            mut mantissa,
            exponent,
            ..
        } = self.trimmed();
        let surplus = exponent.rem_euclid(3);
        for _ in 0..surplus {
            mantissa = mantissa.saturating_mul(10);
        }
        (mantissa, i64::from(exponent) - i64::from(surplus))
    }
}

const DECIMAL: [(&str, i32); 10] = [
    ("n", -9),
    ("u", -6),
    ("m", -3),
    ("", 0),
    ("k", 3),
    ("M", 6),
    ("G", 9),
    ("T", 12),
    ("P", 15),
    ("E", 18),
];

const BINARY: [(&str, u32); 6] = [
    ("Ki", 10),
    ("Mi", 20),
    ("Gi", 30),
    ("Ti", 40),
    ("Pi", 50),
    ("Ei", 60),
];

/// The parts of a quantity's text.
struct QuantityParts<'a> {
    is_negative: bool,
    /// Whether there are digits at all: `.Ki` has none and is zero.
    has_digits: bool,
    whole: &'a str,
    fraction: &'a str,
    suffix: Suffix,
}

enum Suffix {
    Ten(i32, QuantityFormat),
    Two(u32),
}

impl<'a> QuantityParts<'a> {
    fn split(text: &'a str) -> Result<QuantityParts<'a>, QuantityError> {
        if text.is_empty() {
            return Err(QuantityError::Format);
        }
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        let (digits, rest) = split_digits(unsigned);
        let (fraction, suffix) = rest.strip_prefix('.').map_or(("", rest), split_digits);
        let exponent = suffix.trim_start_matches(|char| "eEinumkKMGTP".contains(char));
        let exponent = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        if !split_digits(exponent).1.is_empty() {
            return Err(QuantityError::Format);
        }
        Ok(QuantityParts {
            is_negative: text.starts_with('-'),
            // Kubernetes: a sign alone is zero too, and does not count as a missing number.
            has_digits: !digits.is_empty() || !fraction.is_empty() || unsigned.is_empty(),
            whole: match digits.trim_start_matches('0') {
                "" => "0",
                whole => whole,
            },
            fraction,
            suffix: Suffix::parse(suffix).ok_or(QuantityError::Suffix)?,
        })
    }

    fn quantity(&self) -> Result<Quantity, QuantityError> {
        if !self.has_digits && !self.is_short() {
            return Err(QuantityError::Number);
        }
        let (mantissa, dropped) = self.mantissa();
        let point = dropped - i32::try_from(self.fraction.len()).unwrap_or(i32::MAX);
        let mut quantity = match self.suffix {
            Suffix::Ten(exponent, format) => Quantity {
                mantissa,
                exponent: exponent.wrapping_add(point),
                format,
            },
            Suffix::Two(exponent) => Quantity::times_power_of_two(mantissa, point, exponent),
        };
        if quantity.exponent < NANO {
            quantity = quantity.with_exponent(NANO).unwrap_or(quantity);
        }
        if self.is_negative {
            quantity.mantissa = -quantity.mantissa;
        }
        Ok(quantity)
    }

    /// The digits as one number, and the number of digits that were rounded away.
    fn mantissa(&self) -> (i128, i32) {
        let digits = self
            .whole
            .bytes()
            .chain(self.fraction.bytes())
            .skip_while(|digit| *digit == b'0');
        let (mut mantissa, mut kept, mut dropped, mut is_inexact) = (0i128, 0, 0i32, false);
        for digit in digits.map(|digit| digit - b'0') {
            if kept < MAX_DIGITS {
                mantissa = mantissa * 10 + i128::from(digit);
                kept += 1;
            } else {
                dropped = dropped.saturating_add(1);
                is_inexact |= digit != 0;
            }
        }
        (mantissa + i128::from(is_inexact), dropped)
    }

    /// Whether upstream parses it into 64 bits, which decides what is canonical.
    fn is_short(&self) -> bool {
        let n_digits = (self.whole.len() + self.fraction.len()) as i64;
        match self.suffix {
            Suffix::Ten(exponent, _) => n_digits <= 18 && self.scale(exponent) >= NANO,
            Suffix::Two(exponent) => {
                self.fraction.is_empty() && 15 - n_digits - i64::from(exponent * 3 / 10) > 0
            }
        }
    }

    fn scale(&self, exponent: i32) -> i32 {
        exponent.wrapping_sub(self.fraction.len() as i32)
    }

    /// Kubernetes: a text that looks canonical is kept, `1.250` and `+5` included
    /// (resource/quantity.go, ParseQuantity).
    fn is_canonical(&self) -> bool {
        if !self.is_short() {
            return false;
        }
        match self.suffix {
            Suffix::Ten(exponent, _) => {
                let ends_in_thousands = [self.whole, self.fraction].concat().ends_with("000");
                self.scale(exponent) % 3 == 0 && !ends_in_thousands && self.whole != "0"
            }
            Suffix::Two(_) => self.mantissa().0 % 8 != 0,
        }
    }
}

fn split_digits(text: &str) -> (&str, &str) {
    let end = text
        .bytes()
        .position(|byte| !byte.is_ascii_digit())
        .unwrap_or(text.len());
    text.split_at(end)
}

impl Suffix {
    fn parse(text: &str) -> Option<Suffix> {
        if let Some((_, exponent)) = DECIMAL.iter().find(|(suffix, _)| *suffix == text) {
            return Some(Suffix::Ten(*exponent, QuantityFormat::Decimal));
        }
        if let Some((_, exponent)) = BINARY.iter().find(|(suffix, _)| *suffix == text) {
            return Some(Suffix::Two(*exponent));
        }
        let exponent: i64 = text.strip_prefix(['e', 'E'])?.parse().ok()?;
        // Kubernetes: only the low 32 bits count (resource/suffix.go).
        Some(Suffix::Ten(exponent as i32, QuantityFormat::Exponent))
    }
}

impl Quantity {
    /// `mantissa`·10^`point`·2^`exponent`, at most 2^63-1. Less than one is printed in decimal.
    fn times_power_of_two(mut mantissa: i128, mut point: i32, exponent: u32) -> Quantity {
        let factor = 1i128 << exponent;
        let product = loop {
            match mantissa.checked_mul(factor) {
                Some(product) => break product,
                None => {
                    mantissa = divide_away(mantissa, 10);
                    point = point.saturating_add(1);
                }
            }
        };
        let amount = Quantity {
            mantissa: product,
            exponent: point,
            format: QuantityFormat::Binary,
        };
        let amount = amount.with_exponent(point.max(NANO)).unwrap_or(amount);
        let limit = Quantity::from_int(i64::MAX, QuantityFormat::Binary);
        match amount {
            amount if amount > limit => limit,
            amount
                if amount.exponent < 0
                    && amount < Quantity::from_int(1, QuantityFormat::Binary) =>
            {
                Quantity {
                    format: QuantityFormat::Decimal,
                    ..amount
                }
            }
            amount => amount,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: &str) {
        let answer = canonical(text).unwrap_or_else(|error| format!("error: {error}"));
        assert_eq!(answer, expect, "of {text:?}");
    }

    const NO_FORMAT: &str = "error: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
    const NO_NUMBER: &str = "error: unable to parse numeric part of quantity";
    const NO_SUFFIX: &str = "error: unable to parse quantity's suffix";

    #[test]
    fn the_largest_exact_suffix_is_printed() {
        check("0.5Gi", "512Mi");
        check("1024Mi", "1Gi");
        check("1000m", "1");
        check("0.1", "100m");
        check("1500", "1500");
        check("15000000", "15M");
        check("1.5G", "1500M");
        check("-1.5Ki", "-1536");
        check("1e10", "10e9");
        check("1000e3", "1e6");
        check(" 1 ", "1");
    }

    #[test]
    fn the_format_of_the_suffix_is_kept() {
        check("1e9", "1e9");
        check("1E9", "1E9");
        check("1000000000", "1G");
        check("1023Ki", "1023Ki");
        check("1.1Ki", "1126400m");
        check("0.0001Ki", "102400u");
    }

    #[test]
    fn zero_is_canonical_in_every_notation() {
        for text in ["0", "-0", "00", "0Ki", "0e5", "+", "-", ".", "m", "0.000"] {
            check(text, "0");
        }
    }

    #[test]
    fn a_text_that_looks_canonical_is_kept() {
        check("+5", "+5");
        check("1.250", "1.250");
        check("01Ki", "01Ki");
        check("0.250", "250m");
    }

    #[test]
    fn amounts_below_a_nano_are_rounded_up() {
        check("1.5n", "2n");
        check("1e-12", "1e-9");
        check("-0.1n", "-1n");
    }

    #[test]
    fn binary_amounts_are_capped() {
        check("9Ei", "9223372036854775807");
        check("-9Ei", "-9223372036854775807");
        check(
            "123456789012345678901234567890",
            "123456789012345678901234567890",
        );
        check("1e2147483647", "10e2147483646");
        // Rounded up to a power of ten for which there is no suffix.
        check(&"9".repeat(100_000), "10");
    }

    #[test]
    fn an_invalid_quantity_has_upstreams_error() {
        check("", NO_FORMAT);
        check("abc", NO_FORMAT);
        check("1Gi2x", NO_FORMAT);
        check("1é", NO_FORMAT);
        check("1K", NO_SUFFIX);
        check("1e", NO_SUFFIX);
        check("1e99999999999999999999", NO_SUFFIX);
        check("e-20", NO_NUMBER);
    }

    #[test]
    fn quantities_compare_by_amount() {
        let of = Quantity::parse_or_zero;
        assert_eq!(of("1Ki"), of("1024"));
        assert_eq!(of("1k"), of("1000000m"));
        assert!(of("1e2147483647") > of("9Ei"));
        assert!(of("-1e2147483647") < of("-1n"));
        assert!(of("100m") < of("0.2"));
        assert!(of("-1").is_negative() && !of("1").is_negative() && of("0").is_zero());
    }

    #[test]
    fn sums_and_parts_are_exact() {
        let of = Quantity::parse_or_zero;
        assert_eq!(of("1Gi").add(&of("512Mi")).to_string(), "1536Mi");
        assert_eq!(of("0").add(&of("512Mi")).to_string(), "512Mi");
        assert_eq!(of("1").sub(&of("100m")).to_string(), "900m");
        assert_eq!(
            of("1e100").sub(&of("1")).to_string(),
            format!("{}e66", "9".repeat(34))
        );
        assert_eq!(
            (
                of("1500m").value(),
                of("1500m").milli_value(),
                of("-1500m").value()
            ),
            (2, 1500, -2)
        );
        assert_eq!(of("1e30").value(), i64::MAX);
        assert_eq!(
            of("1.0001").rounded_to_milli().unwrap().to_string(),
            "1001m"
        );
        assert!(of("1.001").rounded_to_milli().is_none());
    }
    mod any_input {
        use proptest::prelude::*;

        use super::super::*;

        proptest! {
            #[test]
            fn any_text_is_parsed_or_rejected(text in "[+-]?[0-9]{0,40}[.]?[0-9]{0,40}([eE][+-]?[0-9]{0,11}|[eEinumkKMGTPé]{0,2})") {
                if let Ok(first) = canonical(&text) {
                    prop_assert_eq!(canonical(&first), Ok(first));
                    let (quantity, other) = (Quantity::parse_or_zero(&text), Quantity::parse_or_zero("1Gi"));
                    let _ = (quantity.add(&other), quantity.sub(&other), quantity.cmp(&other));
                    let _ = (quantity.value(), quantity.milli_value(), quantity.is_whole());
                }
            }
        }
    }
}
