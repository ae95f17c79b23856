//! Regular expressions as Go understands them.
//!
//! The `regex` crate is of the same family; what differs is brought over: `\d`, `\s`, `\w` and `\b` know only
//! ASCII, and inside brackets `[`, `&&`, `--` and `~~` are plain characters.

mod complaint;

pub use regex::Regex;

/// Compiles an expression; none if it is not one.
pub fn compile(text: &str) -> Option<Regex> {
    Regex::new(&translate(text)).ok()
}

/// Why text is no expression, in Go's words.
pub fn check(text: &str) -> Result<(), String> {
    let complaint = complaint::of(text);
    let other =
        || Regex::new(&translate(text)).is_err().then(|| "invalid or unsupported Perl syntax".to_string());
    match complaint.or_else(other) {
        None => Ok(()),
        Some(complaint) => Err(format!("error parsing regexp: {complaint}")),
    }
}

fn translate(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    let mut class: Option<usize> = None;
    while let Some(char) = chars.next() {
        match (char, class) {
            ('\\', _) => match chars.next() {
                Some(named @ ('p' | 'P' | 'x')) => {
                    out.push('\\');
                    out.push(named);
                    // The braces of a name count nothing.
                    if chars.next_if_eq(&'{').is_some() {
                        out.push('{');
                        out.extend(chars.by_ref().take_while(|char| *char != '}'));
                        out.push('}');
                    }
                }
                Some(escaped) => escape(escaped, class.is_some(), &mut out),
                None => out.push('\\'),
            },
            ('[', None) => {
                out.push('[');
                if chars.next_if_eq(&'^').is_some() {
                    out.push('^');
                }
                // A bracket that comes first is a character.
                if chars.next_if_eq(&']').is_some() {
                    out.push_str(r"\]");
                }
                class = Some(out.len());
            }
            ('[', Some(_)) if chars.peek() == Some(&':') => {
                out.push('[');
                for char in chars.by_ref() {
                    out.push(char);
                    if char == ']' {
                        break;
                    }
                }
            }
            ('[' | '&' | '~', Some(_)) => {
                out.push('\\');
                out.push(char);
            }
            // Two hyphens are no operator: the first or the second is a bound.
            ('-', Some(start)) if chars.next_if_eq(&'-').is_some() => {
                out.push_str(if out.len() == start { r"\--" } else { r"-\-" });
            }
            // What counts nothing is a plain character.
            ('{', None) if complaint::count(&text[text.len() - rest(&chars)..]).is_none() => {
                out.push_str(r"\{")
            }
            (']', Some(_)) => {
                out.push(']');
                class = None;
            }
            _ => out.push(char),
        }
    }
    out
}

/// How many bytes are left, the last character that was taken included.
fn rest(chars: &std::iter::Peekable<std::str::Chars>) -> usize {
    let left: usize = chars.clone().map(char::len_utf8).sum();
    left + 1
}

fn escape(char: char, in_class: bool, out: &mut String) {
    match char {
        'd' => out.push_str("[0-9]"),
        'D' => out.push_str("[^0-9]"),
        's' => out.push_str(r"[\t\n\f\r ]"),
        'S' => out.push_str(r"[^\t\n\f\r ]"),
        'w' => out.push_str("[0-9A-Za-z_]"),
        'W' => out.push_str("[^0-9A-Za-z_]"),
        'b' | 'B' if !in_class => {
            out.push_str(r"(?-u:\");
            out.push(char);
            out.push(')');
        }
        '<' | '>' => out.push(char),
        _ => {
            out.push('\\');
            out.push(char);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::compile;

    #[track_caller]
    fn check(expression: &str, text: &str, expected: bool) {
        assert_eq!(compile(expression).map(|regex| regex.is_match(text)), Some(expected), "{expression}");
    }

    #[test]
    fn classes_know_only_ascii() {
        check(r"^\d+$", "12", true);
        check(r"^\d+$", "١٢", false);
        check(r"^\w+$", "é", false);
        check(r"^[\w-]+$", "a-b", true);
        check(r"^[^\s]+$", "ab", true);
        check(r"\bfoo\b", "a foo b", true);
    }

    #[test]
    fn brackets_hold_plain_characters() {
        check(r"^[[a]+$", "[a", true);
        check(r"^[a&&b]+$", "&", true);
        check(r"^[]x]+$", "]x", true);
        check(r"^[[:alpha:]-]+$", "a-", true);
        check(r"^[!--]+$", "#", true);
        check(r"^[--/]+$", ".", true);
    }

    #[test]
    fn what_is_no_expression_does_not_compile() {
        assert!(compile("(").is_none());
        assert!(compile(r"(?=a)").is_none());
    }
}
