//! The choice of a scalar's style: plain, single-quoted, double-quoted or literal.

use super::cursor::is_break;
use super::scalar::{Meaning, resolve};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    Single,
    Double,
    Literal,
}

/// The properties of a text on which the style depends.
#[derive(Default)]
pub(super) struct Traits {
    /// It has more than one line.
    pub(super) is_multiline: bool,
    plain_allowed: bool,
    single_allowed: bool,
    block_allowed: bool,
}

/// The style for a text, as a key on one line or anywhere else.
pub(super) fn style(text: &str, traits: &Traits, is_key: bool) -> Style {
    let is_text = resolve(text) == Meaning::Text && !is_base60(text);
    let wanted = match text.contains('\n') {
        _ if is_key && traits.is_multiline => Style::Double,
        true => Style::Literal,
        false if is_text => Style::Plain,
        false => Style::Double,
    };
    match wanted {
        Style::Plain if traits.plain_allowed => Style::Plain,
        Style::Plain if traits.single_allowed => Style::Single,
        Style::Literal if traits.block_allowed && !is_key => Style::Literal,
        _ => Style::Double,
    }
}

impl Traits {
    pub(super) fn from_text(text: &str) -> Traits {
        if text.is_empty() {
            return Traits {
                plain_allowed: true,
                single_allowed: true,
                ..Traits::default()
            };
        }
        let is_multiline = text.chars().any(is_break);
        let has_special = text.chars().any(|char| !is_printable(char));
        let is_padded = text.starts_with(' ') || text.ends_with(' ');
        let pairs = || text.chars().zip(text.chars().skip(1));
        let space_after_break = pairs().any(|(first, second)| is_break(first) && second == ' ');
        let space_before_break = pairs().any(|(first, second)| first == ' ' && is_break(second));
        let is_broken = space_before_break || has_special;
        Traits {
            is_multiline,
            plain_allowed: !is_padded && !is_multiline && !is_broken && !has_indicators(text),
            single_allowed: !space_after_break && !is_broken,
            block_allowed: !text.ends_with(' ') && !is_broken,
        }
    }
}

/// Whether it contains YAML syntax.
fn has_indicators(text: &str) -> bool {
    let is_blank_at = |at: usize| {
        text[at..]
            .chars()
            .next()
            .is_none_or(|char| matches!(char, ' ' | '\t'))
    };
    let at_start = match text.as_bytes()[0] {
        b'#' | b',' | b'[' | b']' | b'{' | b'}' | b'&' | b'*' | b'!' | b'|' | b'>' | b'\''
        | b'"' | b'%' | b'@' | b'`' => true,
        b'?' | b':' | b'-' => is_blank_at(1),
        _ => false,
    };
    let is_marker = text.starts_with("---") || text.starts_with("...");
    let within =
        text.char_indices()
            .zip(text.chars().skip(1))
            .any(|((at, before), char)| match char {
                ':' => is_blank_at(at + before.len_utf8() + 1),
                '#' => is_break(before) || matches!(before, ' ' | '\t' | '\0'),
                _ => false,
            });
    at_start || is_marker || within
}

/// Kubernetes: go-yaml does not treat characters beyond 16 bits as printable (yamlprivateh.go).
pub(super) fn is_printable(char: char) -> bool {
    matches!(char, '\n' | ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}')
        && char != '\u{feff}'
}

/// Whether it looks like a base-60 number, which YAML 1.1 parsers accept: `1:30`.
fn is_base60(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (number, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let mut groups = number.split(':');
    let first = groups.next().unwrap_or_default();
    let is_digit = |byte: u8| byte.is_ascii_digit() || byte == b'_';
    let is_group = |group: &str| match group.as_bytes() {
        [digit] => digit.is_ascii_digit(),
        [b'0'..=b'5', digit] => digit.is_ascii_digit(),
        _ => false,
    };
    number.contains(':')
        && first.starts_with(|char: char| char.is_ascii_digit())
        && first.bytes().all(is_digit)
        && fraction.bytes().all(is_digit)
        && groups.all(is_group)
}
