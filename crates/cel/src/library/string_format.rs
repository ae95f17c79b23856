//! `'%s is %d'.format([…])`: values put into a text.
//!
//! Kubernetes: the numbers of `%f` and `%e` are written as people in the USA would, with commas and powers of ten,
//! and the precision of `%e` is its width (cel-go, ext/formatting.go, version 2 of the library).

use super::{MAX_TEXT, list, text, to_text};
use crate::ast::{Expr, ExprKind, Id};
use crate::{EvalError, List, Map, Outcome, Site, Type, Value};
use mizzen_value::json::quote;

/// Why something cannot be put into a text, and which expression is to blame where that is known.
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

/// Puts the items of a list into a text.
pub(super) fn run<'a>(_: &Site, arguments: &[Value<'a>]) -> Outcome<'a> {
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

/// Checks a call of which text and list are literals: are there as many items as the text wants, of types that
/// fit?
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

/// Asked for the text in place of a clause: `None` where the text ends after `%`, an error where the clause cannot
/// be read.
type Fill<'f> =
    dyn FnMut(Option<Result<Clause, FormatError>>, usize) -> Result<String, FormatError> + 'f;

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
        let parsed = (!after.is_empty()).then(|| Clause::parse(after));
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

/// What stands after `%`.
#[derive(Clone, Copy)]
struct Clause {
    verb: Verb,
    precision: usize,
}

#[derive(Clone, Copy)]
enum Verb {
    Text,
    Decimal,
    Fixed,
    Scientific,
    Binary,
    Hex { upper: bool },
    Octal,
}

const DEFAULT_PRECISION: usize = 6;

impl Clause {
    /// Reads a clause, and says how long it is.
    fn parse(text: &str) -> Result<(Clause, usize), String> {
        let (precision, size) = parse_precision(text)
            .map_err(|error| format!("error while parsing precision: {error}"))?;
        let byte = text.as_bytes()[size];
        let verb = match byte {
            b's' => Verb::Text,
            b'd' => Verb::Decimal,
            b'f' => Verb::Fixed,
            b'e' => Verb::Scientific,
            b'b' => Verb::Binary,
            b'x' | b'X' => Verb::Hex {
                upper: byte == b'X',
            },
            b'o' => Verb::Octal,
            _ => {
                return Err(format!(
                    "unrecognized formatting clause \"{}\"",
                    char::from(byte)
                ));
            }
        };
        Ok((Clause { verb, precision }, size + 1))
    }

    fn write(self, value: &Value) -> Result<String, String> {
        match (self.verb, value) {
            (Verb::Text, value) => write_text(value),
            (Verb::Decimal | Verb::Octal | Verb::Hex { .. } | Verb::Binary, Value::Int(int)) => {
                let sign = if *int < 0 { "-" } else { "" };
                Ok(format!("{sign}{}", self.digits(int.unsigned_abs())))
            }
            (Verb::Decimal | Verb::Octal | Verb::Hex { .. } | Verb::Binary, Value::Uint(uint)) => {
                Ok(self.digits(*uint))
            }
            (Verb::Binary, Value::Bool(bool)) => Ok(u8::from(*bool).to_string()),
            (Verb::Hex { upper }, Value::String(text)) => Ok(hex(text.as_bytes(), upper)),
            (Verb::Hex { upper }, Value::Bytes(bytes)) => Ok(hex(bytes, upper)),
            (Verb::Fixed, value) => Ok(fixed(self.number(value)?, self.precision)),
            (Verb::Scientific, value) => Ok(scientific(self.number(value)?, self.precision)),
            _ => Err(self.refusal(&value.type_name())),
        }
    }

    fn digits(self, number: u64) -> String {
        match self.verb {
            Verb::Binary => format!("{number:b}"),
            Verb::Octal => format!("{number:o}"),
            Verb::Hex { upper: true } => format!("{number:X}"),
            Verb::Hex { upper: false } => format!("{number:x}"),
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
            Verb::Text => {
                "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps"
            }
            Verb::Decimal => "decimal clause can only be used on integers",
            Verb::Fixed => "fixed-point clause can only be used on doubles",
            Verb::Scientific => "scientific clause can only be used on doubles",
            Verb::Binary => "only integers and bools can be formatted as binary",
            Verb::Hex { .. } => "only integers, byte buffers, and strings can be formatted as hex",
            Verb::Octal => "octal clause can only be used on integers",
        };
        format!("{takes}, was given {given}")
    }

    /// The expression in `item` whose type does not fit, and why not.
    fn misfit(self, item: &Expr, type_of: &dyn Fn(Id) -> Type) -> Option<(Id, String)> {
        let kind = type_of(item.id);
        if !self.takes(&kind) {
            return Some((item.id, self.refusal(&kind.name())));
        }
        match (self.verb, &item.kind) {
            (Verb::Text, ExprKind::List(..) | ExprKind::Map(_)) => item
                .children()
                .into_iter()
                .find_map(|child| self.misfit(child, type_of)),
            _ => None,
        }
    }

    fn takes(self, kind: &Type) -> bool {
        match (self.verb, kind) {
            (_, Type::Dyn | Type::Error) => true,
            (Verb::Text, kind) => !matches!(
                kind,
                Type::Object(_) | Type::Opaque(..) | Type::Parameter(_) | Type::Nullable(_)
            ),
            (Verb::Fixed | Verb::Scientific, kind) => matches!(kind, Type::Double | Type::String),
            (Verb::Hex { .. }, Type::String | Type::Bytes) | (Verb::Binary, Type::Bool) => true,
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

/// Commas between thousands; ties go to the even digit.
fn fixed(number: f64, precision: usize) -> String {
    if let Some(special) = special(number) {
        return special;
    }
    // No number has more digits than this after its point; more than 255 zeros are never added.
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
    let text = special(number).unwrap_or_else(|| {
        let text = format!("{:.6e}", number.abs());
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (minus, exponent) = exponent
            .strip_prefix('-')
            .map_or(("", exponent), |exponent| ("⁻", exponent));
        let exponent: String = format!("{exponent:0>2}").bytes().map(superscript).collect();
        let sign = if number < 0.0 { "-" } else { "" };
        format!("{sign}{digits}×10{minus}{exponent}")
    });
    let width = width % 65536;
    format!("{text:>width$}")
}

fn superscript(digit: u8) -> char {
    ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'][usize::from(digit - b'0')]
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

/// A value as text stands for itself; inside of lists and maps it is written as a literal would be.
pub(super) fn write_text(value: &Value) -> Result<String, String> {
    match value {
        Value::List(list) => write_list(list),
        Value::Map(map) => write_map(map),
        Value::Null => Ok("null".into()),
        Value::Type(name) => Ok(name.to_string()),
        Value::Optional(_) | Value::Opaque(_) => Err(Clause {
            verb: Verb::Text,
            precision: 0,
        }
        .refusal(&value.type_name())),
        _ => plain(value),
    }
}

/// The text that a value is converted to.
fn plain(value: &Value) -> Result<String, String> {
    to_text(value).map_err(|error| {
        format!(
            "could not convert argument {} to string",
            quote(&error.to_string())
        )
    })
}

fn write_list(list: &List) -> Result<String, String> {
    let items = list
        .iter()
        .map(|item| write_literal(&item.map_err(|error| error.to_string())?));
    Ok(format!("[{}]", joined(items)?))
}

fn write_map(map: &Map) -> Result<String, String> {
    let mut entries = Vec::with_capacity(map.len());
    for key in map.keys() {
        let value = map
            .get(&key)
            .ok_or("no such key")?
            .map_err(|error| error.to_string())?;
        entries.push((write_key(&key)?, write_literal(&value)?));
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

/// Invariant: gives up as soon as the whole is too long. Lists may share what is in them, so a small value can be a
/// text without end.
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

fn write_key(key: &Value) -> Result<String, String> {
    match key {
        Value::String(_) | Value::Bool(_) | Value::Int(_) | Value::Uint(_) => write_literal(key),
        _ => Err(format!(
            "no formatting function for map key of type {}",
            key.type_name()
        )),
    }
}

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
