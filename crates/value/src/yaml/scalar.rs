//! Resolution of plain scalars: null, boolean, number, or string.

use crate::time::days_in;

/// The type and value of a scalar.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Meaning {
    Null,
    Bool(bool),
    Int(i64),
    /// An integer that only fits an unsigned type.
    Unsigned(u64),
    Float(f64),
    /// A timestamp. It stays a string when parsed, but is quoted when printed.
    Timestamp,
    Text,
}

impl Meaning {
    /// The tag of this type.
    pub(super) fn tag(&self) -> &'static str {
        match self {
            Meaning::Null => "!!null",
            Meaning::Bool(_) => "!!bool",
            Meaning::Int(_) | Meaning::Unsigned(_) => "!!int",
            Meaning::Float(_) => "!!float",
            Meaning::Timestamp => "!!timestamp",
            Meaning::Text => "!!str",
        }
    }
}

/// Resolves a plain scalar without a tag.
pub(super) fn resolve(text: &str) -> Meaning {
    if let Some(meaning) = constant(text) {
        return meaning;
    }
    match text.as_bytes()[0] {
        b'.' => go_float(text).map_or(Meaning::Text, Meaning::Float),
        b'0'..=b'9' | b'+' | b'-' if is_timestamp(text) => Meaning::Timestamp,
        b'0'..=b'9' | b'+' | b'-' => {
            let text = text.replace('_', "");
            let float = || go_float(&text).map_or(Meaning::Text, Meaning::Float);
            go_int(&text).unwrap_or_else(float)
        }
        _ => Meaning::Text,
    }
}

fn constant(text: &str) -> Option<Meaning> {
    Some(match text {
        "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" | "true" | "True" | "TRUE" => {
            Meaning::Bool(true)
        }
        "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" | "false" | "False" | "FALSE" => {
            Meaning::Bool(false)
        }
        "" | "~" | "null" | "Null" | "NULL" => Meaning::Null,
        ".nan" | ".NaN" | ".NAN" => Meaning::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => Meaning::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => Meaning::Float(f64::NEG_INFINITY),
        _ => return None,
    })
}

/// Parses an integer in Go's notation: `0x`, `0o`, `0b`, or `0` before octal digits.
fn go_int(text: &str) -> Option<Meaning> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let lower = unsigned.to_ascii_lowercase();
    let (radix, digits) = match lower.as_bytes() {
        [b'0', b'x', ..] => (16, &lower[2..]),
        [b'0', b'o', ..] => (8, &lower[2..]),
        [b'0', b'b', ..] => (2, &lower[2..]),
        [b'0', _, ..] => (8, &lower[1..]),
        _ => (10, lower.as_str()),
    };
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_alphanumeric()) {
        return None;
    }
    let magnitude = u64::from_str_radix(digits, radix).ok()?;
    match text.as_bytes()[0] {
        b'-' => 0i64.checked_sub_unsigned(magnitude).map(Meaning::Int),
        sign => match i64::try_from(magnitude) {
            Ok(int) => Some(Meaning::Int(int)),
            // Go's unsigned parser accepts no sign.
            Err(_) => (sign != b'+').then_some(Meaning::Unsigned(magnitude)),
        },
    }
}

/// Parses a float: digits with at most one point, and an exponent. `None` if it is out of range.
fn go_float(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let mantissa_fits = match mantissa.split_once('.') {
        Some((whole, fraction)) => is_digits(whole) && is_digits(fraction) && mantissa.len() > 1,
        None => is_digits(mantissa) && !mantissa.is_empty(),
    };
    let exponent_fits = exponent.is_none_or(|exponent| {
        let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        !digits.is_empty() && is_digits(digits)
    });
    if !mantissa_fits || !exponent_fits {
        return None;
    }
    text.parse().ok().filter(|float: &f64| float.is_finite())
}

/// Whether it is a date, or a date and a time.
pub(super) fn is_timestamp(text: &str) -> bool {
    let mut rest = text;
    let Some(year) = digits(&mut rest, 4, 4) else {
        return false;
    };
    let Some(month) = strip(&mut rest, "-")
        .then(|| digits(&mut rest, 1, 2))
        .flatten()
    else {
        return false;
    };
    let Some(day) = strip(&mut rest, "-")
        .then(|| digits(&mut rest, 1, 2))
        .flatten()
    else {
        return false;
    };
    if !(1..=12).contains(&month) || day < 1 || day > days_in(year, month) {
        return false;
    }
    match rest.as_bytes().first() {
        None => true,
        Some(b'T' | b't') => {
            rest = &rest[1..];
            is_time_of_day(&mut rest) && is_zone(rest)
        }
        Some(b' ') => {
            rest = rest.trim_start_matches(' ');
            is_time_of_day(&mut rest) && rest.is_empty()
        }
        _ => false,
    }
}

fn is_time_of_day(rest: &mut &str) -> bool {
    let is_time = digits(rest, 1, 2).is_some_and(|hour| hour < 24)
        && strip(rest, ":")
        && digits(rest, 1, 2).is_some_and(|minute| minute < 60)
        && strip(rest, ":")
        && digits(rest, 1, 2).is_some_and(|second| second < 60);
    if let Some(fraction) = rest.strip_prefix(['.', ',']) {
        let after = fraction.trim_start_matches(|char: char| char.is_ascii_digit());
        if after.len() < fraction.len() {
            *rest = after;
        }
    }
    is_time
}

fn is_zone(mut rest: &str) -> bool {
    if rest == "Z" {
        return true;
    }
    (strip(&mut rest, "+") || strip(&mut rest, "-"))
        && digits(&mut rest, 2, 2).is_some_and(|hour| hour <= 24)
        && strip(&mut rest, ":")
        && digits(&mut rest, 2, 2).is_some_and(|minute| minute <= 60)
        && rest.is_empty()
}

fn strip(rest: &mut &str, prefix: &str) -> bool {
    match rest.strip_prefix(prefix) {
        Some(after) => {
            *rest = after;
            true
        }
        None => false,
    }
}

/// Parses the next `min` to `max` digits.
fn digits(rest: &mut &str, min: usize, max: usize) -> Option<i64> {
    let n = rest
        .bytes()
        .take(max)
        .take_while(u8::is_ascii_digit)
        .count();
    if n < min {
        return None;
    }
    let (digits, after) = rest.split_at(n);
    *rest = after;
    digits.parse().ok()
}

/// A float in Go's shortest notation: with an exponent if there are more than six digits before the
/// point or more than four zeros after it.
pub(super) fn float_text(float: f64, is_single: bool) -> String {
    match float {
        f64::INFINITY => return ".inf".into(),
        f64::NEG_INFINITY => return "-.inf".into(),
        _ if float.is_nan() => return ".nan".into(),
        _ => {}
    }
    let text = if is_single {
        format!("{:e}", float as f32)
    } else {
        format!("{float:e}")
    };
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    match exponent.parse::<i32>().unwrap_or_default() {
        -4..6 if is_single => format!("{}", float as f32),
        -4..6 => format!("{float}"),
        exponent => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
    }
}
