//! JSON: parsed with the errors of Go's scanner, printed as Go prints it.

mod scan;
mod write;

pub use scan::{JsonScanner, SyntaxError};
pub use write::{pretty, quote, write, write_number, write_string};

use crate::Map;
pub use crate::Value;

/// The maximum nesting depth. Upstream allows 10,000.
pub const MAX_DEPTH: usize = 1_000;

/// Parses one value with nothing after it. The last of duplicate keys wins.
pub fn parse(text: &[u8]) -> Result<Value, SyntaxError> {
    let mut scanner = JsonScanner::new(text);
    let value = read(&mut scanner)?;
    scanner.end()?;
    Ok(value)
}

/// Like [`parse`], with whether any object has duplicate keys.
pub fn parse_noting_duplicates(text: &[u8]) -> Result<(Value, bool), SyntaxError> {
    let (mut scanner, mut has_duplicates) = (JsonScanner::new(text), false);
    let value = read_noting(&mut scanner, &mut has_duplicates)?;
    scanner.end()?;
    Ok((value, has_duplicates))
}

/// Parses one value without the members of these names, at any depth.
pub fn outline(text: &[u8], uninteresting: &[&str]) -> Result<Value, SyntaxError> {
    let mut scanner = JsonScanner::new(text);
    let value = read_outline(&mut scanner, uninteresting)?;
    scanner.end()?;
    Ok(value)
}

fn read_outline(scanner: &mut JsonScanner, uninteresting: &[&str]) -> Result<Value, SyntaxError> {
    match scanner.peek()? {
        b'{' => {
            let mut map = Map::default();
            scanner.open_map()?;
            while let Some(key) = scanner.key()? {
                match uninteresting.contains(&key.as_str()) {
                    true => skip(scanner)?,
                    false => drop(map.insert(key, read_outline(scanner, uninteresting)?)),
                }
            }
            Ok(Value::Map(map))
        }
        b'[' => {
            let mut list = Vec::new();
            scanner.open_list()?;
            while scanner.item()? {
                list.push(read_outline(scanner, uninteresting)?);
            }
            Ok(Value::List(list))
        }
        _ => read(scanner),
    }
}

/// The canonical JSON text of a value.
pub fn to_string(value: &Value) -> String {
    let mut out = Vec::with_capacity(256);
    write(value, &mut out);
    String::from_utf8(out).expect("JSON is written from text")
}

/// Parses the next value.
pub fn read(scanner: &mut JsonScanner) -> Result<Value, SyntaxError> {
    read_noting(scanner, &mut false)
}

fn read_noting(scanner: &mut JsonScanner, has_duplicates: &mut bool) -> Result<Value, SyntaxError> {
    Ok(match scanner.peek()? {
        b'{' => {
            let mut map = Map::default();
            scanner.open_map()?;
            while let Some(key) = scanner.key()? {
                let value = read_noting(scanner, has_duplicates)?;
                *has_duplicates |= map.insert(key, value).is_some();
            }
            Value::Map(map)
        }
        b'[' => {
            let mut list = Vec::new();
            scanner.open_list()?;
            while scanner.item()? {
                list.push(read_noting(scanner, has_duplicates)?);
            }
            Value::List(list)
        }
        b'"' => Value::String(scanner.string()?),
        b't' | b'f' => Value::Bool(scanner.bool()?),
        b'n' => {
            scanner.null()?;
            Value::Null
        }
        _ => number(scanner.number()?),
    })
}

/// The value of a number literal.
pub fn number(literal: &str) -> Value {
    match literal.parse::<i64>() {
        Ok(int) if literal != "-0" => Value::Int(int),
        _ => Value::Number(literal.into()),
    }
}

/// A number literal as Go decodes it into `interface{}`: an integer if it is written as one and
/// fits 64 bits, a float otherwise. A float stays one even if it is integral: `1.0` is printed as
/// `1` and differs from `1`. `None` if it fits neither.
pub fn free_number(literal: &str) -> Option<Value> {
    if let Ok(int) = literal.parse() {
        return Some(Value::Int(int));
    }
    let float: f64 = literal.parse().ok()?;
    float.is_finite().then(|| Value::Number(written(float)))
}

/// A Go float64: integers beyond 2^53 are printed as the nearest float.
pub fn float(number: f64) -> Value {
    self::number(&write_number(number))
}

/// The literal of the first number that fits no float. Go does not decode it into `interface{}`.
pub fn overflow(value: &Value) -> Option<&str> {
    match value {
        Value::Number(literal) => free_number(literal).is_none().then_some(&**literal),
        Value::List(items) => items.iter().find_map(overflow),
        Value::Map(map) => map.values().find_map(overflow),
        _ => None,
    }
}

/// Go's error for such a number.
pub fn overflow_error(literal: &str) -> String {
    format!("json: cannot unmarshal number {literal} into Go value of type float64")
}

/// Normalizes an untyped value to what Go prints: sorted maps, floats in their shortest form.
pub fn normalize(value: &mut Value) {
    match value {
        Value::Map(map) => {
            map.sort();
            map.values_mut().for_each(normalize);
        }
        Value::List(items) => items.iter_mut().for_each(normalize),
        Value::Number(literal) => {
            if let Some(float) = literal.parse().ok().filter(|float: &f64| float.is_finite()) {
                *literal = written(float);
            }
        }
        _ => {}
    }
}

/// Like [`normalize`], and decoded by Go again: an integral float becomes an integer.
pub fn rewrite(value: &mut Value) {
    match value {
        Value::Map(map) => {
            map.sort();
            map.values_mut().for_each(rewrite);
        }
        Value::List(items) => items.iter_mut().for_each(rewrite),
        Value::Number(_) => {
            normalize(value);
            *value = number(&to_string(value));
        }
        _ => {}
    }
}

/// Negative zero is decoded as zero, so it is printed as zero.
fn written(float: f64) -> Box<str> {
    write_number(if float == 0.0 { 0.0 } else { float }).into()
}

/// Skips the next value.
pub fn skip(scanner: &mut JsonScanner) -> Result<(), SyntaxError> {
    match scanner.peek()? {
        b'{' => {
            scanner.open_map()?;
            while scanner.key()?.is_some() {
                skip(scanner)?;
            }
        }
        b'[' => {
            scanner.open_list()?;
            while scanner.item()? {
                skip(scanner)?;
            }
        }
        b'"' => scanner.skip_string()?,
        b't' | b'f' => {
            scanner.bool()?;
        }
        b'n' => scanner.null()?,
        _ => {
            scanner.number()?;
        }
    }
    Ok(())
}

/// The number of bytes before the first special one. Most strings have none, so chunks are tested
/// at once.
fn plain_run(bytes: &[u8], is_special: impl Fn(u8) -> bool) -> usize {
    const TOGETHER: usize = 16;
    let is_plain = |chunk: &&[u8]| {
        !chunk
            .iter()
            .fold(false, |found, &byte| found | is_special(byte))
    };
    let plain = bytes.chunks_exact(TOGETHER).take_while(is_plain).count() * TOGETHER;
    let rest = &bytes[plain..];
    plain
        + rest
            .iter()
            .position(|&byte| is_special(byte))
            .unwrap_or(rest.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    #[track_caller]
    fn check(text: &str, expect: Expect) {
        let answer = match parse(text.as_bytes()) {
            Ok(value) => to_string(&value),
            Err(error) => format!("error: {error}"),
        };
        expect.assert_eq(&answer);
    }

    #[test]
    fn values_round_trip() {
        check(
            r#" {"b":[1,-2,3.50,1e3,true,null],"a":"x\u00e9\n\"<"} "#,
            expect![[r#"{"b":[1,-2,3.50,1e3,true,null],"a":"xé\n\"\u003c"}"#]],
        );
    }

    #[test]
    fn errors_have_upstream_messages() {
        check("", expect!["error: unexpected end of JSON input"]);
        check(
            "a",
            expect!["error: invalid character 'a' looking for beginning of value"],
        );
        check(
            "{a",
            expect!["error: invalid character 'a' looking for beginning of object key string"],
        );
        check(
            r#"{"a" 1"#,
            expect!["error: invalid character '1' after object key"],
        );
        check(r#"{"a":1 "#, expect!["error: unexpected end of JSON input"]);
        check(
            r#"{"a":1]"#,
            expect!["error: invalid character ']' after object key:value pair"],
        );
        check(
            r#"{"a":1,}"#,
            expect!["error: invalid character '}' looking for beginning of object key string"],
        );
        check(
            "[1 2]",
            expect!["error: invalid character '2' after array element"],
        );
        check(
            "[1,]",
            expect!["error: invalid character ']' looking for beginning of value"],
        );
        check(
            "trux",
            expect!["error: invalid character 'x' in literal true (expecting 'e')"],
        );
        check(
            "1 x",
            expect!["error: invalid character 'x' after top-level value"],
        );
        check(
            "01",
            expect!["error: invalid character '1' after top-level value"],
        );
        check(
            "-x",
            expect!["error: invalid character 'x' in numeric literal"],
        );
        check(
            "1.x",
            expect!["error: invalid character 'x' after decimal point in numeric literal"],
        );
        check(
            "1ex",
            expect!["error: invalid character 'x' in exponent of numeric literal"],
        );
        check(
            "\"a\nb\"",
            expect![[r#"error: invalid character '\n' in string literal"#]],
        );
        check(
            r#""\x""#,
            expect!["error: invalid character 'x' in string escape code"],
        );
        check(
            r#""\u00g0""#,
            expect![[r#"error: invalid character 'g' in \u hexadecimal character escape"#]],
        );
        check("\"abc", expect!["error: unexpected end of JSON input"]);
    }

    #[test]
    fn invalid_utf8_is_replaced() {
        assert_eq!(parse(b"\"a\xffb\"").unwrap().str(), "a\u{fffd}b");
        assert_eq!(parse(br#""\ud800x""#).unwrap().str(), "\u{fffd}x");
        assert_eq!(parse(br#""\ud83d\ude00""#).unwrap().str(), "😀");
    }

    #[test]
    fn every_byte_is_written_as_it_is_read_wherever_it_stands() {
        for length in 0..40 {
            for char in (0..0x100u32)
                .chain([0x2027, 0x2028, 0x2029, 0x202a, 0x1f600])
                .filter_map(char::from_u32)
            {
                let text = format!(
                    "{}{char}{}",
                    "é".repeat(length / 2),
                    "x".repeat(40 - length)
                );
                let written = to_string(&Value::from(text.as_str()));
                assert!(
                    !written.contains(['<', '>', '&', '\u{2028}', '\u{2029}']),
                    "{written}"
                );
                assert_eq!(parse(written.as_bytes()).unwrap().str(), text);
                skip(&mut JsonScanner::new(written.as_bytes())).unwrap();
            }
        }
    }

    #[test]
    fn skipped_values_are_validated() {
        for (text, expected) in [
            (r#""a\x""#, "invalid character 'x' in string escape code"),
            ("\"a\nb\"", "invalid character '\\n' in string literal"),
            ("\"abc", "unexpected end of JSON input"),
        ] {
            let error = skip(&mut JsonScanner::new(text.as_bytes())).unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
    }

    #[test]
    fn nesting_is_bounded() {
        let deep = "[".repeat(MAX_DEPTH + 1);
        check(&deep, expect!["error: exceeded max depth"]);
        let fine = format!("{}{}", "[".repeat(200), "]".repeat(200));
        assert!(parse(fine.as_bytes()).is_ok());
    }
}
