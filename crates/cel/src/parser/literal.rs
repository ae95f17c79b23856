//! The values of literals.

use super::lexer::TokenKind;
use crate::ast::Literal;

/// Parses a literal; `None` if the token is not one.
pub(super) fn read(kind: TokenKind, text: &str, negative: bool) -> Option<Result<Literal, String>> {
    let sign = if negative { "-" } else { "" };
    Some(match kind {
        TokenKind::Int => match text.strip_prefix("0x") {
            Some(hex) => i64::from_str_radix(&format!("{sign}{hex}"), 16),
            None => format!("{sign}{text}").parse(),
        }
        .map(Literal::Int)
        .map_err(|_| "invalid int literal".into()),
        TokenKind::Uint => {
            let digits = text.trim_end_matches(['u', 'U']);
            match digits.strip_prefix("0x") {
                Some(hex) => u64::from_str_radix(hex, 16),
                None => digits.parse(),
            }
            .map(Literal::Uint)
            .map_err(|_| "invalid uint literal".into())
        }
        TokenKind::Float => {
            let number = format!("{sign}{text}")
                .parse()
                .ok()
                .filter(|number: &f64| number.is_finite());
            number
                .map(Literal::Double)
                .ok_or_else(|| "invalid double literal".into())
        }
        TokenKind::String => unescape(text, false)
            .map(|bytes| Literal::String(String::from_utf8_lossy(&bytes).into())),
        TokenKind::Bytes => unescape(&text[1..], true).map(|bytes| Literal::Bytes(bytes.into())),
        TokenKind::True => Ok(Literal::Bool(true)),
        TokenKind::False => Ok(Literal::Bool(false)),
        TokenKind::Null => Ok(Literal::Null),
        _ => return None,
    })
}

/// The content of a quoted string.
fn unescape(text: &str, bytes: bool) -> Result<Vec<u8>, String> {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let raw = text.starts_with(['r', 'R']);
    let quoted = if raw { &text[1..] } else { text.as_str() };
    let thrice = quoted.len() >= 6 && (quoted.starts_with("'''") || quoted.starts_with("\"\"\""));
    let quotes = if thrice { 3 } else { 1 };
    let content = &quoted[quotes..quoted.len() - quotes];
    if raw {
        return Ok(content.as_bytes().to_vec());
    }
    let (mut out, mut rest) = (Vec::with_capacity(content.len()), content);
    while let Some(at) = rest.find('\\') {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        rest = escape_sequence(&rest[at + 1..], bytes, &mut out)?;
    }
    out.extend_from_slice(rest.as_bytes());
    Ok(out)
}

/// Parses an escape sequence; the lexer has checked that it is complete.
fn escape_sequence<'a>(text: &'a str, bytes: bool, out: &mut Vec<u8>) -> Result<&'a str, String> {
    let wrong = || String::from("unable to unescape string");
    let first = text.chars().next().ok_or_else(wrong)?;
    let plain = match first {
        'a' => 7,
        'b' => 8,
        't' => 9,
        'n' => 10,
        'v' => 11,
        'f' => 12,
        'r' => 13,
        '\\' | '\'' | '"' | '`' | '?' => first as u8,
        _ => 0,
    };
    if plain != 0 {
        out.push(plain);
        return Ok(&text[1..]);
    }
    let (digits, radix, length) = match first {
        'x' | 'X' => (1, 16, 2),
        'u' if !bytes => (1, 16, 4),
        'U' if !bytes => (1, 16, 8),
        '0'..='3' => (0, 8, 3),
        _ => return Err(wrong()),
    };
    let digits = text.get(digits..digits + length).ok_or_else(wrong)?;
    let code = u32::from_str_radix(digits, radix).map_err(|_| wrong())?;
    match (bytes, char::from_u32(code)) {
        (true, _) => out.push(code as u8),
        (false, Some(c)) => out.extend(c.encode_utf8(&mut [0; 4]).as_bytes()),
        (false, None) => return Err("invalid unicode code point".into()),
    }
    Ok(&text[length + usize::from(radix == 16)..])
}
