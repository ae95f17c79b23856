//! Values as Go's `fmt` prints them (`%v` and `%s`), for error messages.

use std::fmt::Write as _;

use mizzen_value::{Map, Value};

/// The value as `%v` prints it: `map[a:1 b:[x y] c:<nil>]`.
pub fn go_text(value: &Value) -> String {
    let mut out = String::new();
    write(value, GoVerb::Value, &mut out);
    out
}

/// The value as `%s` prints it, which marks whatever is not a string: `%!s(int64=1)`.
pub(super) fn go_string(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Null => out.push_str("%!s(<nil>)"),
        _ => write(value, GoVerb::String, &mut out),
    }
    out
}

/// The values as `%v` prints a slice: `[a b]`.
pub(super) fn go_list(items: &[Value]) -> String {
    let mut out = String::new();
    write_list(items, GoVerb::Value, &mut out);
    out
}

/// The type as `%T` prints it.
pub fn go_type_verb(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        value => go_type(value),
    }
}

/// The Go type that upstream's decoder would choose, as `%s` prints a `reflect.Type`.
pub fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "%!s(<nil>)",
        Value::Bool(_) => "bool",
        Value::Int(_) => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::List(_) => "[]interface {}",
        Value::Map(_) => "map[string]interface {}",
    }
}

#[derive(Clone, Copy, PartialEq)]
enum GoVerb {
    Value,
    String,
}

fn write(value: &Value, verb: GoVerb, out: &mut String) {
    match value {
        Value::Null => out.push_str("<nil>"),
        Value::String(text) => out.push_str(text),
        Value::List(items) => write_list(items, verb, out),
        Value::Map(map) => write_map(map, verb, out),
        scalar if verb == GoVerb::String => {
            let _ = write!(out, "%!s({}=", go_type(scalar));
            write(scalar, GoVerb::Value, out);
            out.push(')');
        }
        Value::Bool(bool) => out.push_str(if *bool { "true" } else { "false" }),
        Value::Int(int) => {
            let _ = write!(out, "{int}");
        }
        Value::Number(literal) => out.push_str(&go_float(literal.parse().unwrap_or_default())),
    }
}

fn write_list(items: &[Value], verb: GoVerb, out: &mut String) {
    out.push('[');
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push(' ');
        }
        write(item, verb, out);
    }
    out.push(']');
}

fn write_map(map: &Map, verb: GoVerb, out: &mut String) {
    let mut members: Vec<_> = map.iter().collect();
    members.sort_unstable_by_key(|(key, _)| *key);
    out.push_str("map[");
    for (index, (key, value)) in members.into_iter().enumerate() {
        if index > 0 {
            out.push(' ');
        }
        out.push_str(key);
        out.push(':');
        write(value, verb, out);
    }
    out.push(']');
}

/// The shortest decimal; below 0.0001 and from a million on with an exponent of at least two
/// digits.
pub(crate) fn go_float(number: f64) -> String {
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..6).contains(&exponent) {
        return format!("{number}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_value::json;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(go_text(&json::parse(text.as_bytes()).unwrap()), expected);
    }

    #[test]
    fn maps_are_sorted_and_nothing_is_quoted() {
        check(
            r#"{"b":[1,"x y",null],"a":{"z":true,"c":{}}}"#,
            "map[a:map[c:map[] z:true] b:[1 x y <nil>]]",
        );
    }

    #[test]
    fn floats_have_the_shortest_form() {
        check(
            "[1.50,1.0,0.0001,0.00001,12345678.5]",
            "[1.5 1 0.0001 1e-05 1.23456785e+07]",
        );
        check(
            "[100000.0,1000000.0,12345678901234567890]",
            "[100000 1e+06 1.2345678901234567e+19]",
        );
    }

    #[test]
    fn non_strings_are_marked_by_the_s_verb() {
        let value = json::parse(br#"{"a":1,"b":null,"c":[true,"x"]}"#).unwrap();
        assert_eq!(
            go_string(&value),
            "map[a:%!s(int64=1) b:<nil> c:[%!s(bool=true) x]]"
        );
        assert_eq!(go_string(&Value::Null), "%!s(<nil>)");
    }
}
