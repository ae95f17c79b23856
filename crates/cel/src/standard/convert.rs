//! Conversions between types, and to strings.

use super::arithmetic::{int_overflow, moment, uint_overflow};
use super::cost;
use crate::function::{CallSite, Function, Overload, OverloadFn};
use crate::types::Type;
use crate::value::{EvalError, Outcome, Value};
use mizzen_value::time::{self, Moment};

pub(super) fn functions() -> Vec<Function> {
    use Type::{Bool, Bytes, Double, Duration, Int, String, Timestamp, Uint};
    let to = |name, result: Type, run: OverloadFn, from: Vec<(&'static str, Type)>| {
        let overload = |(id, kind)| Overload::global(id, vec![kind], result.clone(), run);
        Function::new(name, from.into_iter().map(overload).collect())
    };
    let mut bytes = to(
        "bytes",
        Bytes,
        to_bytes,
        vec![("bytes_to_bytes", Bytes), ("string_to_bytes", String)],
    );
    charge(&mut bytes, "string_to_bytes", cost::estimate_to_bytes);
    let mut string = to(
        "string",
        String,
        to_string,
        vec![
            ("string_to_string", String),
            ("bool_to_string", Bool),
            ("bytes_to_string", Bytes),
            ("double_to_string", Double),
            ("duration_to_string", Duration),
            ("int64_to_string", Int),
            ("timestamp_to_string", Timestamp),
            ("uint64_to_string", Uint),
        ],
    );
    charge(&mut string, "bytes_to_string", cost::estimate_to_string);
    let any = || Type::parameter("A");
    vec![
        Function::new(
            "type",
            vec![Overload::global(
                "type",
                vec![any()],
                Type::type_of(any()),
                |_, arguments| Ok(Value::Type(arguments[0].type_name())),
            )],
        ),
        to(
            "bool",
            Bool,
            to_bool,
            vec![("bool_to_bool", Bool), ("string_to_bool", String)],
        ),
        bytes,
        to(
            "double",
            Double,
            to_double,
            vec![
                ("double_to_double", Double),
                ("int64_to_double", Int),
                ("string_to_double", String),
                ("uint64_to_double", Uint),
            ],
        ),
        to(
            "duration",
            Duration,
            to_duration,
            vec![
                ("duration_to_duration", Duration),
                ("int64_to_duration", Int),
                ("string_to_duration", String),
            ],
        ),
        Function::new(
            "dyn",
            vec![Overload::global(
                "to_dyn",
                vec![any()],
                Type::Dyn,
                |_, arguments| Ok(arguments[0].clone()),
            )],
        ),
        to(
            "int",
            Int,
            to_int,
            vec![
                ("int64_to_int64", Int),
                ("double_to_int64", Double),
                ("duration_to_int64", Duration),
                ("string_to_int64", String),
                ("timestamp_to_int64", Timestamp),
                ("uint64_to_int64", Uint),
            ],
        ),
        string,
        to(
            "timestamp",
            Timestamp,
            to_timestamp,
            vec![
                ("timestamp_to_timestamp", Timestamp),
                ("int64_to_timestamp", Int),
                ("string_to_timestamp", String),
            ],
        ),
        to(
            "uint",
            Uint,
            to_uint,
            vec![
                ("uint64_to_uint64", Uint),
                ("double_to_uint64", Double),
                ("int64_to_uint64", Int),
                ("string_to_uint64", String),
            ],
        ),
    ]
}

fn charge(function: &mut Function, id: &str, estimate: crate::function::CostEstimateFn) {
    for overload in function
        .overloads
        .iter_mut()
        .filter(|overload| overload.id == id)
    {
        *overload = overload.clone().costs(cost::of_first, estimate);
    }
}

fn refuse(from: &Value, to: &str) -> EvalError {
    EvalError::new(format!(
        "type conversion error from '{}' to '{to}'",
        from.type_name()
    ))
}

fn to_bool<'a>(_: &CallSite, arguments: &[Value<'a>]) -> Outcome<'a> {
    match &arguments[0] {
        Value::Bool(bool) => Ok(Value::Bool(*bool)),
        Value::String(text) => match &**text {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Value::Bool(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Value::Bool(false)),
            _ => Err(refuse(&arguments[0], "bool")),
        },
        other => Err(refuse(other, "bool")),
    }
}

fn to_bytes<'a>(_: &CallSite, arguments: &[Value<'a>]) -> Outcome<'a> {
    match &arguments[0] {
        Value::Bytes(bytes) => Ok(Value::Bytes(bytes.clone())),
        Value::String(text) => Ok(Value::Bytes(text.as_bytes().into())),
        other => Err(refuse(other, "bytes")),
    }
}

fn to_double<'a>(_: &CallSite, arguments: &[Value<'a>]) -> Outcome<'a> {
    let number = match &arguments[0] {
        Value::Double(double) => Some(*double),
        Value::Int(int) => Some(*int as f64),
        Value::Uint(uint) => Some(*uint as f64),
        // Go parses what Rust parses, but rejects what is out of range.
        Value::String(text) => text.parse().ok().filter(|number: &f64| {
            let digits = text.trim_start_matches(['+', '-']);
            number.is_finite() || digits.starts_with(|c: char| c.is_ascii_alphabetic())
        }),
        _ => None,
    };
    number
        .map(Value::Double)
        .ok_or_else(|| refuse(&arguments[0], "double"))
}

fn to_duration<'a>(_: &CallSite, arguments: &[Value<'a>]) -> Outcome<'a> {
    match &arguments[0] {
        Value::Duration(span) => Ok(Value::Duration(*span)),
        Value::Int(nanos) => Ok(Value::Duration(*nanos)),
        Value::String(text) => parse_duration(text).map(Value::Duration),
        other => Err(refuse(other, "google.protobuf.Duration")),
    }
}

pub(crate) fn parse_duration(text: &str) -> Result<i64, EvalError> {
    time::duration_nanos(text).map_err(|_| refuse(&Value::from(text), "google.protobuf.Duration"))
}

fn to_timestamp<'a>(_: &CallSite, arguments: &[Value<'a>]) -> Outcome<'a> {
    match &arguments[0] {
        Value::Timestamp(moment, offset) => Ok(Value::Timestamp(*moment, *offset)),
        Value::Int(seconds) => moment(*seconds, 0).map(Value::from),
        Value::String(text) => parse_timestamp(text),
        other => Err(refuse(other, "google.protobuf.Timestamp")),
    }
}

pub(crate) fn parse_timestamp<'a>(text: &str) -> Outcome<'a> {
    let parsed =
        Moment::parse(text).map_err(|_| refuse(&Value::from(text), "google.protobuf.Timestamp"))?;
    moment(parsed.seconds, parsed.nanos)
        .map(|moment| Value::Timestamp(moment, written_offset(text)))
}

/// The offset from UTC of a timestamp that was parsed, in seconds.
pub(crate) fn written_offset(text: &str) -> i32 {
    let Some((sign, (hours, minutes))) = text.len().checked_sub(6).and_then(|at| {
        let (sign, time) = text.get(at..)?.split_at_checked(1)?;
        Some((sign, time.split_once(':')?))
    }) else {
        return 0;
    };
    let seconds = hours.parse::<i32>().unwrap_or_default() * 3600
        + minutes.parse::<i32>().unwrap_or_default() * 60;
    match sign {
        "+" => seconds,
        "-" => -seconds,
        _ => 0,
    }
}

fn to_int<'a>(_: &CallSite, arguments: &[Value<'a>]) -> Outcome<'a> {
    let number = match &arguments[0] {
        Value::Int(int) => *int,
        Value::Uint(uint) => i64::try_from(*uint).map_err(|_| int_overflow())?,
        Value::Double(double)
            if *double > -9_223_372_036_854_775_808.0 && *double < 9_223_372_036_854_775_807.0 =>
        {
            *double as i64
        }
        Value::Double(_) => return Err(int_overflow()),
        Value::Duration(nanos) => *nanos,
        Value::Timestamp(moment, _) => moment.seconds,
        Value::String(text) => text.parse().map_err(|_| refuse(&arguments[0], "int"))?,
        other => return Err(refuse(other, "int")),
    };
    Ok(Value::Int(number))
}

fn to_uint<'a>(_: &CallSite, arguments: &[Value<'a>]) -> Outcome<'a> {
    let number = match &arguments[0] {
        Value::Uint(uint) => *uint,
        Value::Int(int) => u64::try_from(*int).map_err(|_| uint_overflow())?,
        Value::Double(double) if *double >= 0.0 && *double < 18_446_744_073_709_551_615.0 => {
            *double as u64
        }
        Value::Double(_) => return Err(uint_overflow()),
        // Go rejects a sign here.
        Value::String(text) if !text.starts_with('+') => {
            text.parse().map_err(|_| refuse(&arguments[0], "uint"))?
        }
        other => return Err(refuse(other, "uint")),
    };
    Ok(Value::Uint(number))
}

fn to_string<'a>(_: &CallSite, arguments: &[Value<'a>]) -> Outcome<'a> {
    match &arguments[0] {
        text @ Value::String(_) => Ok(text.clone()),
        other => to_text(other).map(Value::from),
    }
}

/// A value converted to a string.
pub(crate) fn to_text(value: &Value) -> Result<String, EvalError> {
    match value {
        Value::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => Ok(text.into()),
            Err(_) => Err(EvalError::new(
                "invalid UTF-8 in bytes, cannot convert to string",
            )),
        },
        Value::Opaque(opaque) => opaque.text().ok_or_else(|| refuse(value, "string")),
        Value::List(_) | Value::Map(_) | Value::Type(_) | Value::Optional(_) => {
            Err(refuse(value, "string"))
        }
        _ => Ok(show(value)),
    }
}

/// A value as a string for messages.
pub(crate) fn show(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(bool) => bool.to_string(),
        Value::Int(int) => int.to_string(),
        Value::Uint(uint) => uint.to_string(),
        Value::Double(double) => show_double(*double),
        Value::String(text) => text.to_string(),
        Value::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::Duration(nanos) => format!("{}s", plain(*nanos as f64 / 1e9)),
        Value::Timestamp(moment, offset) => show_moment(moment, *offset),
        Value::Type(name) => name.to_string(),
        Value::Opaque(opaque) => opaque.text().unwrap_or_else(|| opaque.type_name().into()),
        Value::List(list) => {
            let items: Vec<String> = list.iter().flatten().map(|item| show(&item)).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Map(map) => {
            let entry = |key: Value| {
                let value = map.get(&key).and_then(Result::ok).unwrap_or(Value::Null);
                format!("{}: {}", show(&key), show(&value))
            };
            format!(
                "{{{}}}",
                map.keys()
                    .into_iter()
                    .map(entry)
                    .collect::<Vec<_>>()
                    .join(", ")
            )
        }
        Value::Optional(Some(inside)) => format!("optional({})", show(inside)),
        Value::Optional(None) => "optional.none()".into(),
    }
}

/// The shortest decimal of a number, without an exponent.
fn plain(number: f64) -> String {
    format!("{number}")
}

/// The shortest decimal of a number, as Go's `%g` prints it.
fn show_double(double: f64) -> String {
    match double {
        _ if double.is_nan() => return "NaN".into(),
        _ if double.is_infinite() => {
            return if double > 0.0 {
                "+Inf".into()
            } else {
                "-Inf".into()
            };
        }
        _ => {}
    }
    let scientific = format!("{double:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    match exponent.parse::<i32>().unwrap_or_default() {
        -4..6 => plain(double),
        exponent => format!(
            "{digits}e{}{:02}",
            if exponent < 0 { '-' } else { '+' },
            exponent.abs()
        ),
    }
}

/// A timestamp with as many decimals as it needs, in its original offset.
fn show_moment(moment: &Moment, offset: i32) -> String {
    let mut shown = time::from_unix(moment.seconds + i64::from(offset));
    shown.pop();
    if moment.nanos != 0 {
        let decimals = format!("{:09}", moment.nanos);
        shown = format!("{shown}.{}", decimals.trim_end_matches('0'));
    }
    let (sign, minutes) = (if offset < 0 { '-' } else { '+' }, offset.abs() / 60);
    match offset {
        0 => shown + "Z",
        _ => format!("{shown}{sign}{:02}:{:02}", minutes / 60, minutes % 60),
    }
}
