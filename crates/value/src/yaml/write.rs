//! Prints YAML as go-yaml does: indented by two spaces, keys in natural order, lists not indented,
//! long lines folded.

use std::cmp::Ordering;

use super::cursor::is_break;
use super::scalar::float_text;
use super::style::{Style, Traits, is_printable, style};
use crate::json;
use crate::{Map, Value};

/// The YAML text of a value.
pub fn write(value: &Value) -> String {
    let mut writer = YamlWriter {
        out: String::with_capacity(1024),
        column: 0,
        is_spaced: true,
        is_indented: true,
    };
    writer.node(value, None, false);
    writer.indent(0);
    writer.out
}

/// A line is folded at the first space after this column.
const WIDTH: usize = 80;

/// The maximum length of a simple key.
const MAX_SIMPLE_KEY: usize = 128;

struct YamlWriter {
    out: String,
    column: usize,
    /// Whether the last character is white space.
    is_spaced: bool,
    /// Whether this line has only indentation and list markers so far.
    is_indented: bool,
}

impl YamlWriter {
    /// Writes a value below a parent that is indented by `parent`.
    fn node(&mut self, value: &Value, parent: Option<usize>, in_map: bool) {
        match value {
            Value::Map(map) if map.is_empty() => self.word("{}"),
            Value::List(items) if items.is_empty() => self.word("[]"),
            Value::Map(map) => self.map(map, parent),
            Value::List(items) => self.list(items, parent, in_map),
            Value::String(text) => self.text(text, parent, false),
            Value::Null => self.word("null"),
            // A number as YAML resolves it.
            Value::Number(literal) => match literal.parse::<f64>() {
                Ok(float) if float.is_finite() && literal.parse::<u64>().is_err() => {
                    self.word(&float_text(float, false));
                }
                _ => self.word(literal),
            },
            other => self.word(&json::to_string(other)),
        }
    }

    fn map(&mut self, map: &Map, parent: Option<usize>) {
        let indent = parent.map_or(0, |parent| parent + 2);
        let mut members: Vec<_> = map.iter().collect();
        merge_sort(&mut members, &|left, right| {
            natural_order(left.0, right.0) == Ordering::Greater
        });
        for (key, value) in members {
            self.indent(indent);
            let traits = Traits::from_text(key);
            if traits.is_multiline || key.len() > MAX_SIMPLE_KEY {
                self.marker("?");
                self.text(key, Some(indent), false);
                self.indent(indent);
                self.marker(":");
            } else {
                self.text(key, Some(indent), true);
                self.put(":");
                (self.is_spaced, self.is_indented) = (false, false);
            }
            self.node(value, Some(indent), true);
        }
    }

    fn list(&mut self, items: &[Value], parent: Option<usize>, in_map: bool) {
        let indent = match parent {
            None => 0,
            // A list in a map is not indented.
            Some(parent) if in_map && !self.is_indented => parent,
            Some(parent) => parent + 2,
        };
        for item in items {
            self.indent(indent);
            self.marker("-");
            self.node(item, Some(indent), false);
        }
    }

    fn text(&mut self, text: &str, parent: Option<usize>, is_key: bool) {
        let indent = parent.map_or(2, |parent| parent + 2);
        match style(text, &Traits::from_text(text), is_key) {
            Style::Plain => self.plain(text, indent, is_key),
            Style::Single => self.single(text, indent, is_key),
            Style::Double => self.double(text, indent, is_key),
            Style::Literal => self.literal(text, indent),
        }
    }

    fn plain(&mut self, text: &str, indent: usize, is_key: bool) {
        self.space();
        self.folded(text, indent, is_key, 0);
        (self.is_spaced, self.is_indented) = (false, false);
    }

    fn single(&mut self, text: &str, indent: usize, is_key: bool) {
        self.space();
        self.put("'");
        self.is_indented = false;
        self.folded(&text.replace('\'', "''"), indent, is_key, 1);
        self.put("'");
        (self.is_spaced, self.is_indented) = (false, false);
    }

    /// Writes words, and breaks the line at a single space where it is long enough. The first and
    /// last `margin` characters stay on their line.
    fn folded(&mut self, text: &str, indent: usize, is_key: bool, margin: usize) {
        let (mut after_space, mut after_break) = (false, false);
        for (at, char) in text.char_indices() {
            if is_break(char) {
                self.put_break(char);
                self.is_indented = true;
                after_break = true;
                continue;
            }
            if std::mem::take(&mut after_break) {
                self.indent(indent);
            }
            let next_is_space = text[at + char.len_utf8()..].starts_with(' ');
            let is_inside = at >= margin && at + margin < text.len();
            if char == ' '
                && !is_key
                && !after_space
                && !next_is_space
                && is_inside
                && self.column > WIDTH
            {
                self.indent(indent);
            } else {
                self.put_char(char);
            }
            after_space = char == ' ';
            self.is_indented &= char == ' ';
        }
    }

    fn double(&mut self, text: &str, indent: usize, is_key: bool) {
        self.space();
        self.put("\"");
        self.is_indented = false;
        let mut after_space = false;
        for (at, char) in text.char_indices() {
            let is_inside = at > 0 && at + 1 < text.len();
            if !is_printable(char) || is_break(char) || matches!(char, '"' | '\\') {
                self.put(&escape(char));
            } else if char == ' ' && !is_key && !after_space && is_inside && self.column > WIDTH {
                self.indent(indent);
                self.is_indented = false;
                if text[at + 1..].starts_with(' ') {
                    self.put("\\");
                }
            } else {
                self.put_char(char);
            }
            after_space = char == ' ';
        }
        self.put("\"");
        (self.is_spaced, self.is_indented) = (false, false);
    }

    fn literal(&mut self, text: &str, indent: usize) {
        self.space();
        self.put("|");
        if text.starts_with(|char| char == ' ' || is_break(char)) {
            self.put("2");
        }
        self.put(chomping(text));
        self.put_break('\n');
        (self.is_spaced, self.is_indented) = (true, true);
        let mut at_line_start = true;
        for char in text.chars() {
            if is_break(char) {
                self.put_break(char);
                self.is_indented = true;
                at_line_start = true;
                continue;
            }
            if at_line_start {
                self.indent(indent);
            }
            self.put_char(char);
            self.is_indented = false;
            at_line_start = false;
        }
    }

    /// Starts a new line, unless this one can still be used, and indents it.
    fn indent(&mut self, indent: usize) {
        if !self.is_indented || self.column > indent || (self.column == indent && !self.is_spaced) {
            self.put_break('\n');
        }
        while self.column < indent {
            self.put(" ");
        }
        (self.is_spaced, self.is_indented) = (true, true);
    }

    fn word(&mut self, word: &str) {
        self.space();
        self.put(word);
        (self.is_spaced, self.is_indented) = (false, false);
    }

    /// Writes an indicator after which a map or list can start on the same line.
    fn marker(&mut self, marker: &str) {
        self.space();
        self.put(marker);
        self.is_spaced = false;
    }

    fn space(&mut self) {
        if !self.is_spaced {
            self.put(" ");
        }
    }

    fn put(&mut self, text: &str) {
        self.out.push_str(text);
        self.column += text.len();
    }

    fn put_char(&mut self, char: char) {
        self.out.push(char);
        self.column += 1;
    }

    fn put_break(&mut self, char: char) {
        self.out.push(char);
        self.column = 0;
    }
}

/// The chomping indicator of a block: `-` without a final line break, `+` with several.
fn chomping(text: &str) -> &'static str {
    let mut backwards = text.chars().rev();
    match (backwards.next().is_some_and(is_break), backwards.next()) {
        (false, _) => "-",
        (true, None) => "+",
        (true, Some(char)) if is_break(char) => "+",
        _ => "",
    }
}

fn escape(char: char) -> String {
    let short = match char {
        '\0' => '0',
        '\x07' => 'a',
        '\x08' => 'b',
        '\t' => 't',
        '\n' => 'n',
        '\x0b' => 'v',
        '\x0c' => 'f',
        '\r' => 'r',
        '\x1b' => 'e',
        '"' | '\\' => char,
        '\u{85}' => 'N',
        '\u{a0}' => '_',
        '\u{2028}' => 'L',
        '\u{2029}' => 'P',
        _ => {
            return match u32::from(char) {
                code @ ..=0xff => format!("\\x{code:02X}"),
                code @ ..=0xffff => format!("\\u{code:04X}"),
                code => format!("\\U{code:08X}"),
            };
        }
    };
    format!("\\{short}")
}

/// A merge sort. The standard library's sorts may panic on an inconsistent order, and the natural
/// order is inconsistent for some keys with leading zeros.
fn merge_sort<T: Copy>(items: &mut [T], is_after: &impl Fn(T, T) -> bool) {
    if items.len() < 2 {
        return;
    }
    let (left, right) = items.split_at_mut(items.len() / 2);
    merge_sort(left, is_after);
    merge_sort(right, is_after);
    let mut merged = Vec::with_capacity(items.len());
    let (left, right) = items.split_at(items.len() / 2);
    let (mut left, mut right) = (
        left.iter().copied().peekable(),
        right.iter().copied().peekable(),
    );
    while let (Some(first), Some(second)) = (left.peek(), right.peek()) {
        let next = if is_after(*first, *second) {
            right.next()
        } else {
            left.next()
        };
        merged.extend(next);
    }
    merged.extend(left.chain(right));
    items.copy_from_slice(&merged);
}

/// Kubernetes: keys are sorted as go-yaml does: punctuation before letters, numbers by value
/// (sorter.go).
fn natural_order(left: &str, right: &str) -> Ordering {
    let (left, right): (Vec<char>, Vec<char>) = (left.chars().collect(), right.chars().collect());
    let Some(at) = left
        .iter()
        .zip(&right)
        .position(|(left, right)| left != right)
    else {
        return left.len().cmp(&right.len());
    };
    let (first, second) = (left[at], right[at]);
    match (first.is_alphabetic(), second.is_alphabetic()) {
        (true, true) => return first.cmp(&second),
        (true, false) => return Ordering::Greater,
        (false, true) => return Ordering::Less,
        (false, false) => {}
    }
    // Common leading digits count if one number continues with a zero: 100 is more than 12.
    let in_common = left[..at]
        .iter()
        .rev()
        .take_while(|char| char.is_ascii_digit())
        .any(|digit| *digit != '0');
    let start = i64::from(in_common && (first == '0' || second == '0'));
    let (left_number, left_end) = number_at(&left, at, start);
    let (right_number, right_end) = number_at(&right, at, start);
    left_number
        .cmp(&right_number)
        .then(left_end.cmp(&right_end))
        .then(first.cmp(&second))
}

fn number_at(chars: &[char], at: usize, start: i64) -> (i64, usize) {
    let digits = chars[at..].iter().map_while(|char| char.to_digit(10));
    digits.fold((start, at), |(number, end), digit| {
        (number.wrapping_mul(10).wrapping_add(digit.into()), end + 1)
    })
}
