//! Field selectors in their text form: `metadata.name=a,status.phase!=Running`.

use mizzen_value::Str;

/// A field selector: all terms must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSelector {
    /// Field, whether it must be equal (or different), value.
    pub terms: Vec<(Str, bool, Str)>,
}

impl FieldSelector {
    /// Parses a selector; the error is a message for the client.
    pub fn parse(text: &str) -> Result<FieldSelector, String> {
        let mut parts = split(text);
        parts.sort_unstable();
        let terms = parts
            .into_iter()
            .filter(|part| !part.is_empty())
            .map(|part| term(text, part));
        let mut terms: Vec<(Str, bool, Str)> = terms.collect::<Result<_, _>>()?;
        // Kubernetes: a term without field and value selects everything (apimachinery, fields/selector.go, `Transform`).
        terms.retain(|(field, _, value)| !field.is_empty() || !value.is_empty());
        Ok(FieldSelector { terms })
    }

    /// Whether it selects everything.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// The required value of a field, if there is one.
    pub fn exact(&self, field: &str) -> Option<&str> {
        self.terms
            .iter()
            .find(|term| term.0 == field && term.1)
            .map(|term| term.2.as_str())
    }

    /// Whether it selects an object with these fields.
    pub fn matches<'a>(&self, field: impl Fn(&str) -> &'a str) -> bool {
        self.terms
            .iter()
            .all(|(name, equal, value)| (field(name) == value) == *equal)
    }
}

/// Splits at unescaped commas.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut escaped) = (Vec::new(), 0, false);
    for (at, char) in text.char_indices() {
        match char {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn term(whole: &str, part: &str) -> Result<(Str, bool, Str), String> {
    for (at, _) in part.char_indices() {
        for (operator, equal) in [("!=", false), ("==", true), ("=", true)] {
            if let Some(value) = part[at..].strip_prefix(operator) {
                return Ok((part[..at].into(), equal, unescape(value)?.into()));
            }
        }
    }
    Err(format!(
        "invalid selector: '{whole}'; can't understand '{part}'"
    ))
}

fn unescape(value: &str) -> Result<String, String> {
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(char) = chars.next() {
        match char {
            '\\' => match chars.next() {
                Some(char @ ('\\' | ',' | '=')) => out.push(char),
                Some(char) => {
                    return Err(format!(
                        "invalid field selector: invalid escape sequence: \\{char}"
                    ));
                }
                None => return Err("invalid field selector: invalid escape sequence: \\".into()),
            },
            ',' | '=' => {
                let code = u32::from(char);
                return Err(format!(
                    "invalid field selector: unescaped character in value: {code}"
                ));
            }
            _ => out.push(char),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_are_equal_or_different() {
        let selector = FieldSelector::parse("metadata.name=a,status.phase!=Running").unwrap();
        let pod = |phase: &'static str| {
            move |field: &str| if field == "metadata.name" { "a" } else { phase }
        };
        assert!(selector.matches(pod("Pending")));
        assert!(!selector.matches(pod("Running")));
        assert_eq!(selector.exact("metadata.name"), Some("a"));
        assert_eq!(
            FieldSelector::parse(r"a=b\,c").unwrap().exact("a"),
            Some("b,c")
        );
    }

    #[test]
    fn a_term_without_field_and_value_selects_everything() {
        for text in ["=", "==", "!=", "=,==", ",=,"] {
            assert!(FieldSelector::parse(text).unwrap().is_empty(), "{text}");
        }
        let fields = |text: &str| -> Vec<Str> {
            let terms = FieldSelector::parse(text).unwrap().terms;
            terms.into_iter().map(|(field, _, _)| field).collect()
        };
        assert_eq!(fields("source=Running,=="), ["source"]);
        assert_eq!(fields("=x,a="), ["", "a"]);
    }
}
