//! Accessors of timestamps and durations. The time zone is UTC by default.

use super::zone;
use crate::function::{Function, Overload, OverloadFn};
use crate::types::Type;
use crate::value::{EvalError, Outcome, Value};
use mizzen_value::time::{date_of, day_of};

/// The fields of a timestamp in a time zone.
struct CivilTime {
    year: i64,
    /// From 1.
    month: i64,
    /// From 1.
    day: i64,
    /// From 0.
    day_of_year: i64,
    /// Sunday is 0.
    weekday: i64,
    seconds: i64,
    millis: i64,
}

pub(super) fn functions() -> Vec<Function> {
    vec![
        accessor("getFullYear", "timestamp_to_year", None, |_, arguments| {
            read(arguments, |clock| clock.year)
        }),
        accessor("getMonth", "timestamp_to_month", None, |_, arguments| {
            read(arguments, |clock| clock.month - 1)
        }),
        accessor(
            "getDayOfYear",
            "timestamp_to_day_of_year",
            None,
            |_, arguments| read(arguments, |clock| clock.day_of_year),
        ),
        accessor(
            "getDayOfMonth",
            "timestamp_to_day_of_month",
            None,
            |_, arguments| read(arguments, |clock| clock.day - 1),
        ),
        accessor(
            "getDate",
            "timestamp_to_day_of_month_1_based",
            None,
            |_, arguments| read(arguments, |clock| clock.day),
        ),
        accessor(
            "getDayOfWeek",
            "timestamp_to_day_of_week",
            None,
            |_, arguments| read(arguments, |clock| clock.weekday),
        ),
        accessor(
            "getHours",
            "timestamp_to_hours",
            Some(3_600_000_000_000),
            |_, arguments| read(arguments, |clock| clock.seconds / 3600),
        ),
        accessor(
            "getMinutes",
            "timestamp_to_minutes",
            Some(60_000_000_000),
            |_, arguments| read(arguments, |clock| clock.seconds / 60 % 60),
        ),
        accessor(
            "getSeconds",
            "timestamp_to_seconds",
            Some(1_000_000_000),
            |_, arguments| read(arguments, |clock| clock.seconds % 60),
        ),
        accessor(
            "getMilliseconds",
            "timestamp_to_milliseconds",
            Some(1_000_000),
            |_, arguments| read(arguments, |clock| clock.millis),
        ),
    ]
}

/// An accessor of timestamps, and of durations if they have that part.
fn accessor(name: &'static str, id: &'static str, unit: Option<i64>, run: OverloadFn) -> Function {
    let mut overloads = vec![
        Overload::member(id, vec![Type::Timestamp], Type::Int, run),
        Overload::member(
            "with_time_zone",
            vec![Type::Timestamp, Type::String],
            Type::Int,
            run,
        ),
    ];
    let of_span: Option<OverloadFn> = match unit {
        Some(3_600_000_000_000) => Some(|_, arguments| span(arguments, 3_600_000_000_000)),
        Some(60_000_000_000) => Some(|_, arguments| span(arguments, 60_000_000_000)),
        Some(1_000_000_000) => Some(|_, arguments| span(arguments, 1_000_000_000)),
        Some(_) => Some(|_, arguments| span(arguments, 1_000_000)),
        None => None,
    };
    overloads.extend(
        of_span.map(|run| Overload::member("duration", vec![Type::Duration], Type::Int, run)),
    );
    Function::new(name, overloads)
}

fn span<'a>(arguments: &[Value], unit: i64) -> Outcome<'a> {
    match arguments {
        [Value::Duration(nanos)] => Ok(Value::Int(nanos / unit)),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn read<'a>(arguments: &[Value], part: fn(&CivilTime) -> i64) -> Outcome<'a> {
    let (moment, offset) = match arguments {
        [Value::Timestamp(moment, _)] => (moment, 0),
        [Value::Timestamp(moment, _), Value::String(name)] => {
            (moment, zone::offset(name, moment.seconds)?)
        }
        _ => return Err(EvalError::no_such_overload()),
    };
    Ok(Value::Int(part(&clock(
        moment.seconds + offset,
        moment.nanos,
    ))))
}

fn clock(seconds: i64, nanos: u32) -> CivilTime {
    let days = seconds.div_euclid(86_400);
    let (year, month, day) = date_of(days);
    let new_year = day_of(year, 1, 1);
    CivilTime {
        year,
        month,
        day,
        day_of_year: days - new_year,
        weekday: (days + 4).rem_euclid(7),
        seconds: seconds.rem_euclid(86_400),
        millis: i64::from(nanos / 1_000_000),
    }
}
