//! Prints JSON as Go's encoder does: `<`, `>`, `&`, U+2028 and U+2029 are escaped.

use super::plain_run;
use crate::Value;

/// Appends the compact form of `value`.
pub fn write(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Int(int) => out.extend_from_slice(itoa::Buffer::new().format(*int).as_bytes()),
        Value::Number(literal) => out.extend_from_slice(literal.as_bytes()),
        Value::String(text) => write_string(text, out),
        Value::List(list) => {
            out.push(b'[');
            for (index, item) in list.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write(item, out);
            }
            out.push(b']');
        }
        Value::Map(map) => {
            out.push(b'{');
            for (index, (key, value)) in map.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write_string(key, out);
                out.push(b':');
                write(value, out);
            }
            out.push(b'}');
        }
    }
}

/// Appends a quoted string.
pub fn write_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let (bytes, mut done, mut at) = (text.as_bytes(), 0, 0);
    loop {
        // A byte that needs escaping, or may be the last byte of a sequence that does.
        at += plain_run(&bytes[at..], |byte| {
            byte < 0x20 || matches!(byte, b'"' | b'\\' | b'<' | b'>' | b'&' | 0xa8 | 0xa9)
        });
        let Some(&byte) = bytes.get(at) else { break };
        at += 1;
        let Some((escape, length)) = escape(&bytes[..at], byte) else {
            continue;
        };
        out.extend_from_slice(&bytes[done..at - length]);
        out.extend_from_slice(escape);
        if escape == UNICODE {
            out.extend_from_slice(format!("{byte:04x}").as_bytes());
        }
        done = at;
    }
    out.extend_from_slice(&bytes[done..]);
    out.push(b'"');
}

const UNICODE: &[u8] = b"\\u";

/// The escape for the last byte of `text`, and the number of bytes that it replaces.
fn escape(text: &[u8], last: u8) -> Option<(&'static [u8], usize)> {
    let escape: &[u8] = match last {
        b'"' => b"\\\"",
        b'\\' => b"\\\\",
        b'\n' => b"\\n",
        b'\r' => b"\\r",
        b'\t' => b"\\t",
        0x08 => b"\\b",
        0x0c => b"\\f",
        // U+2028 and U+2029 are E2 80 A8 and E2 80 A9.
        0xa8 if text.ends_with(b"\xe2\x80\xa8") => return Some((b"\\u2028", 3)),
        0xa9 if text.ends_with(b"\xe2\x80\xa9") => return Some((b"\\u2029", 3)),
        0xa8 | 0xa9 => return None,
        _ => UNICODE,
    };
    Some((escape, 1))
}

/// A float as Go's encoder prints it: shortest digits, an exponent only for very small and large
/// numbers. It must be finite.
pub fn write_number(number: f64) -> String {
    let magnitude = number.abs();
    if magnitude == 0.0 || (1e-6..1e21).contains(&magnitude) {
        return format!("{number}");
    }
    let text = format!("{number:e}");
    if text.contains("e-") {
        text
    } else {
        text.replacen('e', "e+", 1)
    }
}

/// Quotes text as Go's `%q` does.
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for char in text.chars() {
        match char {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x07' => out.push_str("\\a"),
            '\x08' => out.push_str("\\b"),
            '\x0b' => out.push_str("\\v"),
            '\x0c' => out.push_str("\\f"),
            '\0'..='\x1f' | '\x7f' => out.push_str(&format!("\\x{:02x}", u32::from(char))),
            '\u{80}'..='\u{a0}'
            | '\u{ad}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202f}'
            | '\u{feff}' => {
                out.push_str(&format!("\\u{:04x}", u32::from(char)));
            }
            _ => out.push(char),
        }
    }
    out.push('"');
    out
}

/// Indents compact JSON by two spaces per level, for `?pretty=true`.
pub fn pretty(compact: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(compact.len() * 2);
    let (mut depth, mut in_string, mut escaped) = (0usize, false, false);
    let mut bytes = compact.iter().peekable();
    while let Some(&byte) = bytes.next() {
        if in_string {
            out.push(byte);
            in_string = escaped || byte != b'"';
            escaped = !escaped && byte == b'\\';
            continue;
        }
        match byte {
            b'{' | b'[' => {
                out.push(byte);
                if let Some(&&close @ (b'}' | b']')) = bytes.peek() {
                    out.push(close);
                    bytes.next();
                } else {
                    depth += 1;
                    new_line(depth, &mut out);
                }
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                new_line(depth, &mut out);
                out.push(byte);
            }
            b',' => {
                out.push(byte);
                new_line(depth, &mut out);
            }
            b':' => out.extend_from_slice(b": "),
            b'"' => {
                in_string = true;
                out.push(byte);
            }
            b'\n' => {}
            _ => out.push(byte),
        }
    }
    out
}

fn new_line(depth: usize, out: &mut Vec<u8>) {
    out.push(b'\n');
    out.extend(std::iter::repeat_n(b' ', depth * 2));
}
