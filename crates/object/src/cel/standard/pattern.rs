//! Regular expressions as Go reads them.

use regex::{Regex, RegexBuilder};

use crate::cel::value::EvalError;

/// A compiled automaton may not be larger.
const MAX_SIZE: usize = 10 << 20;

/// Compiles a regular expression. Go's classes like `\d` are ASCII only.
pub(crate) fn regex(pattern: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(&to_ascii_classes(pattern)).size_limit(MAX_SIZE).build()
}

/// Why a pattern is refused, in Go's words where they are known.
pub(crate) fn regex_error(pattern: &str, error: &regex::Error) -> EvalError {
    let text = error.to_string();
    let last = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
    let from = |part: &str| pattern.find(part).map_or(pattern, |at| &pattern[at..]);
    let message = match last {
        "unclosed group" => format!("missing closing ): `{pattern}`"),
        "unopened group" => format!("unexpected ): `{pattern}`"),
        "unclosed character class" => format!("missing closing ]: `{}`", from("[")),
        "repetition operator missing expression" => {
            let operator = pattern.find(['*', '+', '?']).map_or(pattern, |at| &pattern[at..at + 1]);
            format!("missing argument to repetition operator: `{operator}`")
        }
        other => other.into(),
    };
    EvalError::new(format!("error parsing regexp: {message}"))
}

/// Writes `\d`, `\w`, `\s`, `\b` and `\z` so that they mean what they mean in Go.
fn to_ascii_classes(pattern: &str) -> String {
    let (mut out, mut characters, mut in_class) =
        (String::with_capacity(pattern.len()), pattern.chars(), false);
    while let Some(c) = characters.next() {
        match c {
            '\\' => match characters.next() {
                Some(class @ ('d' | 'D' | 'w' | 'W' | 's' | 'S')) => {
                    out.push_str(ascii_class(class, in_class))
                }
                Some(boundary @ ('b' | 'B')) if !in_class => out.push_str(&format!("(?-u:\\{boundary})")),
                Some('Q') => quote(&mut characters, &mut out),
                Some(escaped) => out.extend(['\\', escaped]),
                None => out.push('\\'),
            },
            '[' if in_class && !characters.as_str().starts_with(':') => out.push_str("\\["),
            '[' => {
                out.push('[');
                if !in_class {
                    in_class = true;
                    open_class(&mut characters, &mut out);
                } else {
                    // `[:alpha:]` inside of a class.
                    for c in characters.by_ref() {
                        out.push(c);
                        if c == ']' {
                            break;
                        }
                    }
                }
            }
            ']' => {
                in_class = false;
                out.push(']');
            }
            // These mean something between brackets only to this crate.
            '&' | '~' if in_class => out.extend(['\\', c]),
            _ => out.push(c),
        }
    }
    out
}

/// A bracket right after the opening one is not the closing one.
fn open_class(characters: &mut std::str::Chars, out: &mut String) {
    if characters.as_str().starts_with('^') {
        out.extend(characters.next());
    }
    if characters.as_str().starts_with(']') {
        characters.next();
        out.push_str("\\]");
    }
}

fn ascii_class(class: char, in_class: bool) -> &'static str {
    match (class, in_class) {
        ('d', true) => "0-9",
        ('w', true) => "0-9A-Za-z_",
        ('s', true) => "\\t\\n\\f\\r ",
        ('d', false) => "[0-9]",
        ('w', false) => "[0-9A-Za-z_]",
        ('s', false) => "[\\t\\n\\f\\r ]",
        ('D', _) => "[^0-9]",
        ('W', _) => "[^0-9A-Za-z_]",
        _ => "[^\\t\\n\\f\\r ]",
    }
}

/// `\Q...\E` is taken as it stands.
fn quote(characters: &mut std::str::Chars, out: &mut String) {
    let rest = characters.as_str();
    let (quoted, after) = rest.split_once("\\E").unwrap_or((rest, ""));
    out.push_str(&regex::escape(quoted));
    *characters = after.chars();
}
