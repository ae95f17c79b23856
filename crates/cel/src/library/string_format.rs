//! `'%s is %d'.format([…])`.
//!
//! Kubernetes: `%f` and `%e` are formatted for the locale en-US, with commas and powers of ten, and
//! the precision of `%e` is its width (cel-go, ext/formatting.go, version 2 of the library).

use super::{MAX_TEXT, list, text, to_text};
use crate::ast::{Expr, ExprKind, Id};
use crate::{CallSite, EvalError, MapVal, Outcome, Type, Value};
use mizzen_value::json::quote;

/// A format error, and the expression to report if it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FormatError {
    /// The expression; `None` is the call itself.
    pub(crate) at: Option<Id>,
    /// The message.
    pub(crate) message: String,
}

impl From<String> for FormatError {
    fn from(message: String) -> FormatError {
        FormatError { at: None, message }
    }
}

/// Formats the items of a list.
pub(super) fn run<'a>(_: &CallSite, arguments: &[Value<'a>]) -> Outcome<'a> {
    let (format, values) = (text(arguments, 0)?, list(arguments, 1)?.to_vec()?);
    let outcome = expand(format, &mut |clause, index| {
        let value = values
            .get(index)
            .ok_or_else(|| format!("index {index} out of range"))?;
        match clause {
            Some(clause) => clause?
                .write(value)
                .map_err(|error| format!("error during formatting: {error}").into()),
            None => Err("unexpected end of string".to_owned().into()),
        }
    });
    match outcome {
        Ok(text) if text.len() <= MAX_TEXT => Ok(text.into()),
        Err(error) if !error.message.ends_with(TOO_LONG) => Err(EvalError::new(error.message)),
        _ => Err(EvalError::CostLimit),
    }
}

/// Checks a call whose format and list are literals: the number of items and their types.
pub(crate) fn check(
    format: &str,
    items: &[Expr],
    type_of: &dyn Fn(Id) -> Type,
) -> Result<(), FormatError> {
    let mut n_wanted = 0;
    expand(format, &mut |clause, index| {
        n_wanted += 1;
        let clause = clause.ok_or_else(|| "unexpected end of string".to_owned())?;
        let item = items
            .get(index)
            .ok_or_else(|| format!("index {index} out of range"))?;
        match clause?.misfit(item, type_of) {
            Some((at, error)) => Err(FormatError {
                at: Some(at),
                message: format!("error during formatting: {error}"),
            }),
            None => Ok(String::new()),
        }
    })?;
    if items.len() > n_wanted {
        let n_items = items.len();
        let message = format!(
            "too many arguments supplied to string.format (expected {n_wanted}, got {n_items})"
        );
        return Err(message.into());
    }
    Ok(())
}

/// Formats a clause: `None` where the text ends after `%`, an error where the clause is invalid.
type Fill<'f> =
    dyn FnMut(Option<Result<FormatClause, FormatError>>, usize) -> Result<String, FormatError> + 'f;

fn expand(format: &str, fill: &mut Fill) -> Result<String, FormatError> {
    let mut expanded = String::with_capacity(format.len());
    let mut rest = format;
    let mut index = 0;
    while let Some((plain, after)) = rest.split_once('%') {
        expanded.push_str(plain);
        if let Some(after) = after.strip_prefix('%') {
            expanded.push('%');
            rest = after;
            continue;
        }
        let parsed = (!after.is_empty()).then(|| FormatClause::parse(after));
        let (clause, size) = match parsed {
            Some(Ok((clause, size))) => (Some(Ok(clause)), size),
            Some(Err(error)) => (
                Some(Err(
                    format!("could not parse formatting clause: {error}").into()
                )),
                0,
            ),
            None => (None, 0),
        };
        expanded.push_str(&fill(clause, index)?);
        rest = &after[size..];
        index += 1;
    }
    expanded.push_str(rest);
    Ok(expanded)
}

/// A formatting clause: what follows `%`.
#[derive(Clone, Copy)]
struct FormatClause {
    verb: FormatVerb,
    precision: usize,
}

#[derive(Clone, Copy)]
enum FormatVerb {
    Text,
    Decimal,
    Fixed,
    Scientific,
    Binary,
    Hex { upper: bool },
    Octal,
}

const DEFAULT_PRECISION: usize = 6;

impl FormatClause {
    /// Parses a clause; returns its length, too.
    fn parse(text: &str) -> Result<(FormatClause, usize), String> {
        let (precision, size) = parse_precision(text)
            .map_err(|error| format!("error while parsing precision: {error}"))?;
        let byte = text.as_bytes()[size];
        let verb = match byte {
            b's' => FormatVerb::Text,
            b'd' => FormatVerb::Decimal,
            b'f' => FormatVerb::Fixed,
            b'e' => FormatVerb::Scientific,
            b'b' => FormatVerb::Binary,
            b'x' | b'X' => FormatVerb::Hex {
                upper: byte == b'X',
            },
            b'o' => FormatVerb::Octal,
            _ => {
                return Err(format!(
                    "unrecognized formatting clause \"{}\"",
                    char::from(byte)
                ));
            }
        };
        Ok((FormatClause { verb, precision }, size + 1))
    }

    fn write(self, value: &Value) -> Result<String, String> {
        match (self.verb, value) {
            (FormatVerb::Text, value) => write_text(value),
            (
                FormatVerb::Decimal
                | FormatVerb::Octal
                | FormatVerb::Hex { .. }
                | FormatVerb::Binary,
                Value::Int(int),
            ) => {
                let sign = if *int < 0 { "-" } else { "" };
                Ok(format!("{sign}{}", self.digits(int.unsigned_abs())))
            }
            (
                FormatVerb::Decimal
                | FormatVerb::Octal
                | FormatVerb::Hex { .. }
                | FormatVerb::Binary,
                Value::Uint(uint),
            ) => Ok(self.digits(*uint)),
            (FormatVerb::Binary, Value::Bool(bool)) => Ok(u8::from(*bool).to_string()),
            (FormatVerb::Hex { upper }, Value::String(text)) => Ok(hex(text.as_bytes(), upper)),
            (FormatVerb::Hex { upper }, Value::Bytes(bytes)) => Ok(hex(bytes, upper)),
            (FormatVerb::Fixed, value) => Ok(fixed(self.number(value)?, self.precision)),
            (FormatVerb::Scientific, value) => Ok(scientific(self.number(value)?, self.precision)),
            _ => Err(self.refusal(&value.type_name())),
        }
    }

    fn digits(self, number: u64) -> String {
        match self.verb {
            FormatVerb::Binary => format!("{number:b}"),
            FormatVerb::Octal => format!("{number:o}"),
            FormatVerb::Hex { upper: true } => format!("{number:X}"),
            FormatVerb::Hex { upper: false } => format!("{number:x}"),
            _ => number.to_string(),
        }
    }

    fn number(self, value: &Value) -> Result<f64, String> {
        match value {
            Value::Double(double) => Ok(*double),
            Value::String(text) if &**text == "NaN" => Ok(f64::NAN),
            Value::String(text) if &**text == "Infinity" => Ok(f64::INFINITY),
            Value::String(text) if &**text == "-Infinity" => Ok(f64::NEG_INFINITY),
            _ => Err(self.refusal(&value.type_name())),
        }
    }

    fn refusal(self, given: &str) -> String {
        let takes = match self.verb {
            FormatVerb::Text => {
                "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps"
            }
            FormatVerb::Decimal => "decimal clause can only be used on integers",
            FormatVerb::Fixed => "fixed-point clause can only be used on doubles",
            FormatVerb::Scientific => "scientific clause can only be used on doubles",
            FormatVerb::Binary => "only integers and bools can be formatted as binary",
            FormatVerb::Hex { .. } => {
                "only integers, byte buffers, and strings can be formatted as hex"
            }
            FormatVerb::Octal => "octal clause can only be used on integers",
        };
        format!("{takes}, was given {given}")
    }

    /// The expression in `item` whose type does not match, and the message.
    fn misfit(self, item: &Expr, type_of: &dyn Fn(Id) -> Type) -> Option<(Id, String)> {
        let kind = type_of(item.id);
        if !self.takes(&kind) {
            return Some((item.id, self.refusal(&kind.name())));
        }
        match (self.verb, &item.kind) {
            (FormatVerb::Text, ExprKind::List(..) | ExprKind::Map(_)) => item
                .children()
                .into_iter()
                .find_map(|child| self.misfit(child, type_of)),
            _ => None,
        }
    }

    fn takes(self, kind: &Type) -> bool {
        match (self.verb, kind) {
            (_, Type::Dyn | Type::Error) => true,
            (FormatVerb::Text, kind) => !matches!(
                kind,
                Type::Object(_) | Type::Opaque(..) | Type::Parameter(_) | Type::Nullable(_)
            ),
            (FormatVerb::Fixed | FormatVerb::Scientific, kind) => {
                matches!(kind, Type::Double | Type::String)
            }
            (FormatVerb::Hex { .. }, Type::String | Type::Bytes)
            | (FormatVerb::Binary, Type::Bool) => true,
            (_, kind) => matches!(kind, Type::Int | Type::Uint),
        }
    }
}

fn parse_precision(text: &str) -> Result<(usize, usize), String> {
    let Some(rest) = text.strip_prefix('.') else {
        return Ok((DEFAULT_PRECISION, 0));
    };
    let end = rest
        .bytes()
        .position(|byte| !byte.is_ascii_digit())
        .ok_or("could not find end of precision specifier")?;
    let precision = rest[..end].parse::<i64>().map_err(|_| {
        let why = if end == 0 {
            "invalid syntax"
        } else {
            "value out of range"
        };
        let digits = quote(&rest[..end]);
        format!(
            "error while converting precision to integer: strconv.Atoi: parsing {digits}: {why}"
        )
    })?;
    Ok((usize::try_from(precision).unwrap_or(usize::MAX), end + 1))
}

fn hex(bytes: &[u8], upper: bool) -> String {
    let octet = |byte: &u8| {
        if upper {
            format!("{byte:02X}")
        } else {
            format!("{byte:02x}")
        }
    };
    bytes.iter().map(octet).collect()
}

/// Formats with commas between thousands; ties round to even.
fn fixed(number: f64, precision: usize) -> String {
    if let Some(special) = special(number) {
        return special;
    }
    // No number has more digits after its point; more than 255 zeros are never added.
    let mut text = format!("{:.*}", precision.min(1100), number.abs());
    let n_fraction = precision % 256;
    while text.len() - text.find('.').map_or(text.len(), |point| point + 1) > n_fraction
        && text.ends_with('0')
    {
        text.pop();
    }
    let (whole, fraction) = text.split_at(text.find('.').unwrap_or(text.len()));
    let sign = if number < 0.0 { "-" } else { "" };
    format!(
        "{sign}{}{}",
        with_commas(whole),
        fraction.trim_end_matches('.')
    )
}

fn with_commas(digits: &str) -> String {
    let mut grouped = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

fn scientific(number: f64, width: usize) -> String {
    const SUPERSCRIPTS: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    let text = special(number).unwrap_or_else(|| {
        let text = format!("{:.6e}", number.abs());
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (minus, exponent) = exponent
            .strip_prefix('-')
            .map_or(("", exponent), |exponent| ("⁻", exponent));
        let exponent: String = format!("{exponent:0>2}")
            .bytes()
            .map(|digit| SUPERSCRIPTS[usize::from(digit - b'0')])
            .collect();
        let sign = if number < 0.0 { "-" } else { "" };
        format!("{sign}{digits}×10{minus}{exponent}")
    });
    let width = width % 65536;
    format!("{text:>width$}")
}

fn special(number: f64) -> Option<String> {
    let text = match number {
        _ if number.is_nan() => "NaN",
        f64::INFINITY => "∞",
        f64::NEG_INFINITY => "-∞",
        _ => return None,
    };
    Some(text.into())
}

/// A string as itself; inside of lists and maps as a literal.
pub(super) fn write_text(value: &Value) -> Result<String, String> {
    match value {
        Value::List(list) => {
            let items = list
                .iter()
                .map(|item| write_literal(&item.map_err(|error| error.to_string())?));
            Ok(format!("[{}]", joined(items)?))
        }
        Value::Map(map) => write_map(map),
        Value::Null => Ok("null".into()),
        Value::Type(name) => Ok(name.to_string()),
        Value::Optional(_) | Value::Opaque(_) => Err(FormatClause {
            verb: FormatVerb::Text,
            precision: 0,
        }
        .refusal(&value.type_name())),
        _ => plain(value),
    }
}

/// The string that a value is converted to.
fn plain(value: &Value) -> Result<String, String> {
    to_text(value).map_err(|error| {
        format!(
            "could not convert argument {} to string",
            quote(&error.to_string())
        )
    })
}

fn write_map(map: &MapVal) -> Result<String, String> {
    let mut entries = Vec::with_capacity(map.len());
    for key in map.keys() {
        let value = map
            .get(&key)
            .ok_or("no such key")?
            .map_err(|error| error.to_string())?;
        if !matches!(
            key,
            Value::String(_) | Value::Bool(_) | Value::Int(_) | Value::Uint(_)
        ) {
            let kind = key.type_name();
            return Err(format!("no formatting function for map key of type {kind}"));
        }
        entries.push((write_literal(&key)?, write_literal(&value)?));
    }
    entries.sort();
    Ok(format!(
        "{{{}}}",
        joined(
            entries
                .into_iter()
                .map(|(key, value)| Ok(format!("{key}:{value}")))
        )?
    ))
}

/// Invariant: stops as soon as the result is too long. Items may be shared, so a small value can
/// have an enormous text.
fn joined(parts: impl Iterator<Item = Result<String, String>>) -> Result<String, String> {
    let mut whole = String::new();
    for part in parts {
        if !whole.is_empty() {
            whole.push_str(", ");
        }
        whole.push_str(&part?);
        if whole.len() > MAX_TEXT {
            return Err(TOO_LONG.into());
        }
    }
    Ok(whole)
}

const TOO_LONG: &str = "text too long";

fn write_literal(value: &Value) -> Result<String, String> {
    match value {
        Value::Optional(_) | Value::Opaque(_) => {
            Err(format!("no formatting function for {}", value.type_name()))
        }
        Value::String(text) => Ok(quote(text)),
        Value::Bytes(_) => Ok(format!("b{}", quote(&plain(value)?))),
        Value::Timestamp(..) => Ok(format!("timestamp({})", quote(&plain(value)?))),
        Value::Duration(_) => Ok(format!("duration({})", quote(&plain(value)?))),
        Value::Double(double) if double.is_nan() => Ok("\"NaN\"".into()),
        Value::Double(double) if double.is_infinite() => Ok(if *double > 0.0 {
            "\"+Inf\""
        } else {
            "\"-Inf\""
        }
        .into()),
        Value::Double(double) => Ok(format!("{double:.6}")),
        _ => write_text(value),
    }
}
