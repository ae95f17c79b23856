//! Field paths in a schema: `.spec.replicas`, `.spec.ports['http'].name`.

use mizzen_value::Value;

/// The target of a field path.
#[derive(Debug)]
pub struct FieldPathTarget<'a> {
    /// Its schema; null if anything is allowed.
    pub schema: &'a Value,
    /// The path in canonical form.
    pub path: String,
    /// The first field of the path.
    pub root: String,
}

/// Resolves a path in a schema; the error is a message for the author. Kubernetes: `ValidFieldPath`
/// in apiextensions-apiserver's schema/cel/validation.go.
pub fn resolve<'a>(
    path: &str,
    schema: &'a Value,
    quoted: bool,
) -> Result<FieldPathTarget<'a>, String> {
    let mut place = FieldPathTarget {
        schema,
        path: String::new(),
        root: String::new(),
    };
    let mut tokens = tokens(path).into_iter();
    while let Some(token) = tokens.next() {
        let mut next = || {
            tokens
                .next()
                .ok_or_else(|| "unexpected end of JSON path".to_string())
        };
        match token {
            "." => {
                let name = next()?;
                place.enter(name)?;
            }
            "[" if !quoted => return Err("array notation is not allowed".into()),
            "[" => {
                let text = next()?;
                let inner = text
                    .strip_prefix('\'')
                    .and_then(|text| text.strip_suffix('\''));
                let inner =
                    inner.ok_or_else(|| format!("expected single quoted string but got {text}"))?;
                place.enter(&unescape(inner)?)?;
                match next()? {
                    "]" => {}
                    other => return Err(format!("expected ] but got {other}")),
                }
            }
            other => return Err(format!("expected [ or . but got: {other}")),
        }
    }
    Ok(place)
}

impl FieldPathTarget<'_> {
    fn enter(&mut self, name: &str) -> Result<(), String> {
        let nowhere = || "does not refer to a valid field".to_string();
        let (below, step) = if !self.schema["properties"].is_empty() {
            let below = self.schema["properties"].get(name).ok_or_else(nowhere)?;
            (below, format!(".{name}"))
        } else {
            (
                self.schema
                    .get("additionalProperties")
                    .ok_or_else(nowhere)?,
                format!("[{name}]"),
            )
        };
        if self.path.is_empty() {
            self.root = name.into();
        }
        self.schema = below;
        self.path += &step;
        Ok(())
    }
}

/// Splits a path into delimiters, quoted strings, and the text between.
fn tokens(path: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = path;
    while let Some(first) = rest.chars().next() {
        let end = match first {
            '.' | '[' | ']' => 1,
            '\'' => {
                let mut quotes = rest.match_indices('\'').skip(1);
                let closing = quotes.find(|(at, _)| rest.as_bytes()[at - 1] != b'\\');
                closing.map_or(rest.len(), |(at, _)| at + 1)
            }
            _ => rest.find(['.', '[', ']']).unwrap_or(rest.len()),
        };
        let (token, after) = rest.split_at(end);
        tokens.push(token);
        rest = after;
    }
    tokens
}

fn unescape(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        match char {
            '\\' => match chars.next() {
                Some(escaped @ ('\\' | '\'')) => out.push(escaped),
                Some('n') => out.push('\n'),
                Some('t') => out.push('\t'),
                Some('r') => out.push('\r'),
                Some('a') => out.push('\x07'),
                Some('b') => out.push('\x08'),
                Some('f') => out.push('\x0c'),
                Some('v') => out.push('\x0b'),
                Some(other) => {
                    return Err(format!(
                        "invalid string literal: invalid escape char \\{other}"
                    ));
                }
                None => out.push('\\'),
            },
            char => out.push(char),
        }
    }
    Ok(out)
}
